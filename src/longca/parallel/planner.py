"""Planner: makes plans on the host, for one rank of a group, so that a process that loads data can plan the next batch."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any

from longca.errors import BadInput, Refused
from longca.kernels.base import Case
from longca.kernels.functional import BEST
from longca.masks import AnyMask, BlockMask, Mask
from longca.parallel import registry
from longca.parallel.default_method import by_rule
from longca.parallel.grid import Grid
from longca.parallel.method import Plan as MethodPlan
from longca.parallel.method import make_plan
from longca.parallel.options import Options
from longca.parallel.plan import Plan
from longca.parallel.ranges import Shards

ONLY = "mask"  # the name of a mask that was given without one


@dataclass(frozen=True)
class Wanted:
    """What a plan is for, and all its settings but the method."""

    masks: dict[str, AnyMask]
    weights: dict[str, int]  # how many layers have each mask
    case: Case
    grid: str
    kernel: str
    options: Options

    @classmethod
    def of(
        cls,
        mask: AnyMask | Mapping[str, AnyMask],
        heads: tuple[int, int],
        head_dim: int | tuple[int, int],
        device: str,
        *,
        grid: str = "",
        kernel: str | None = None,
        options: Options | None = None,
        layers: Mapping[str, int] | None = None,
        deterministic: bool = False,
    ) -> Wanted:
        """Checks the arguments of `Group.plan`."""
        masks = _checked(mask)
        sizes = (*_pair("heads", heads), *_pair("head_dim", head_dim))
        length = next(iter(masks.values())).seqlen_q
        # whether there is a backward is known at the call, which refuses a kernel that has none
        case = Case(length, length, *sizes, device=device, backward=False, deterministic=deterministic)
        return cls(masks, _weights(masks, layers), case, grid, kernel or BEST, dict(options or {}))

    @property
    def kind(self) -> Hashable:
        """Later batches have the same: other documents, and lengths up to a factor of two, change nothing."""
        masks = tuple((name, type(mask).__name__, getattr(mask, "name", ""), bool(mask.documents)) for name, mask in self.masks.items())
        shape = replace(self.case, seqlen_q=self.case.seqlen_q.bit_length(), seqlen_k=0)
        return masks, tuple(self.weights.values()), shape, self.grid, self.kernel, tuple(sorted(self.options.items()))

    def plans(self, name: str, ranks: int, ranks_per_node: int, backward: bool = False) -> dict[str, MethodPlan]:
        """Returns what ranks do by a method under each mask, with one partition of the tokens; or raises Refused."""
        method, case = registry.get(name), replace(self.case, backward=backward)
        usual = method.default_options(case.group, ranks, ranks_per_node) if ranks_per_node else {}
        grid = Grid.parse(self.grid) if self.grid else method.default_grid(case, ranks, ranks_per_node or 1)
        given: dict[str, Any] = {"grid": grid, "options": {**usual, **self.options}, "kernel": self.kernel}
        heaviest = max(self.masks, key=lambda name: self.weights[name] * self.masks[name].area // self.masks[name].heads)
        first = make_plan(method, self.masks[heaviest], case, ranks, **given)
        several = len(self.masks) > 1
        shards = method.partition([(self.masks[name], self.weights[name]) for name in self.masks], first.grid) if several else first.shards
        return {name: make_plan(method, mask, case, ranks, shards=shards, **given) for name, mask in self.masks.items()}


@dataclass(frozen=True)
class Planner:
    """Rank `rank` of `ranks`, `ranks_per_node` of which share a node (0: unknown), on a kind of device. It can be pickled."""

    rank: int
    ranks: int
    ranks_per_node: int = 0
    device: str = "cpu"
    methods: dict[Hashable, str] = field(default_factory=dict, hash=False)  # that its group has chosen, by kind of plan

    def plan(
        self,
        mask: AnyMask | Mapping[str, AnyMask],
        heads: tuple[int, int],
        head_dim: int | tuple[int, int],
        *,
        method: str | None = None,
        **settings: Any,
    ) -> Plan:
        """Returns a plan as `Group.plan` does, with the same settings; `Group.use` makes it ready for attention."""
        return self.make(Wanted.of(mask, heads, head_dim, self.device, **settings), method)

    def make(self, wanted: Wanted, method: str | None = None) -> Plan:
        """Returns the plan; where no method is named, with the one that the group has chosen for such plans, or else by the rule."""
        masks, case, rule = wanted.masks, wanted.case, by_rule(wanted.masks)
        chosen = method or self.methods.get(wanted.kind, rule)
        try:
            made = wanted.plans(chosen, self.ranks, self.ranks_per_node)
        except Refused:
            if chosen in (method, rule):
                raise
            made = wanted.plans(rule, self.ranks, self.ranks_per_node)  # such as a window that has become too wide for a halo
        first = next(iter(made.values()))
        sizes = (case.heads_q, case.heads_kv), (case.head_dim, case.head_dim_v)
        settings = (first.method.name, str(first.grid), dict(first.options), first.kernel, *sizes, case.deterministic)
        return Plan(self.rank, masks, *settings, first.shards, _digest(masks, first.shards, settings))


def _checked(given: Any) -> dict[str, AnyMask]:
    masks = dict(given) if isinstance(given, Mapping) else {ONLY: given}
    if not masks:
        raise BadInput("a plan needs a mask; give one of longca.masks, or several by name.")
    for name, mask in masks.items():
        if not isinstance(mask, Mask | BlockMask):
            raise BadInput(f"the mask {name!r} must be one of longca.masks, such as longca.masks.causal(8192), not {mask!r:.60}.")
        if mask.seqlen_q != mask.seqlen_k:
            raise Refused(f"the mask {name!r} has {mask.seqlen_q} queries and {mask.seqlen_k} keys; ranks share one sequence.")
    lengths = {name: mask.seqlen_q for name, mask in masks.items()}
    if len(set(lengths.values())) > 1:
        raise BadInput(f"the masks of a plan are for one sequence, and these have lengths {lengths}; make them of one length.")
    return masks


def _weights(masks: Mapping[str, AnyMask], layers: Mapping[str, int] | None) -> dict[str, int]:
    if layers is not None and (set(layers) != set(masks) or any(count < 1 for count in layers.values())):
        raise BadInput(f"layers must say how many layers each of {', '.join(masks)} has, not {dict(layers)}.")
    return {name: layers[name] if layers else 1 for name in masks}


def _pair(name: str, given: Any) -> tuple[int, int]:
    """Returns two whole numbers of 1 or more, also from one that stands for both, or from numpy's; refuses anything else."""
    several = tuple(given) if isinstance(given, list | tuple) else (given, given)
    numbers = [index(number) if hasattr(number, "__index__") else 0 for number in several]
    if len(numbers) != 2 or min(numbers) < 1:
        raise BadInput(f"{name} must be whole numbers of 1 or more, such as {'(64, 8)' if name == 'heads' else '128'}, not {given!r}.")
    return numbers[0], numbers[1]


def _digest(masks: Mapping[str, AnyMask], shards: Shards, settings: tuple[object, ...]) -> str:
    digest = hashlib.sha256(repr(([(name, mask.digest) for name, mask in masks.items()], settings)).encode())
    for shard in shards:
        digest.update(shard.tobytes() + b"|")
    return digest.hexdigest()[:16]
