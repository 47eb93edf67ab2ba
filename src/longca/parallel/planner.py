"""Planner: makes plans on the host, for one rank of a group, so that a process that loads data can plan the next batch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import index
from typing import Any

from longca.errors import BadInput, Refused
from longca.kernels.base import Case
from longca.kernels.functional import BEST
from longca.masks import AnyMask, BlockMask, Mask
from longca.parallel import registry
from longca.parallel.grid import Grid
from longca.parallel.method import make_plan
from longca.parallel.options import Options
from longca.parallel.plan import Plan
from longca.parallel.ranges import Shards

ONLY = "mask"  # the name of a mask that was given without one


@dataclass(frozen=True)
class Planner:
    """Rank `rank` of `ranks`, `ranks_per_node` of which share a node (0: unknown), on a kind of device. It can be pickled."""

    rank: int
    ranks: int
    ranks_per_node: int = 0
    device: str = "cpu"

    def plan(
        self,
        mask: AnyMask | Mapping[str, AnyMask],
        heads: tuple[int, int],
        head_dim: int | tuple[int, int],
        *,
        method: str | None = None,
        grid: str = "",
        kernel: str | None = None,
        options: Options | None = None,
        layers: Mapping[str, int] | None = None,
        deterministic: bool = False,
    ) -> Plan:
        """Returns a plan as `Group.plan` does; `Group.use` makes it ready for attention."""
        masks = _checked(mask)
        weights = _weights(masks, layers)
        (heads_q, heads_kv), (size, size_v) = _pair("heads", heads), _pair("head_dim", head_dim)
        chosen = registry.get(method or default_method(masks))
        length = next(iter(masks.values())).seqlen_q
        case = Case(length, length, heads_q, heads_kv, size, size_v, device=self.device, deterministic=deterministic)
        usual = chosen.default_options(case.group, self.ranks, self.ranks_per_node) if self.ranks_per_node else {}
        laid_out = Grid.parse(grid) if grid else chosen.default_grid(case, self.ranks, self.ranks_per_node or 1)
        given: dict[str, Any] = {"grid": laid_out, "options": usual | dict(options or {}), "kernel": kernel or BEST}
        case = replace(case, backward=False)  # whether there is a backward is known at the call, which refuses a kernel that has none
        heaviest = max(masks, key=lambda name: weights[name] * masks[name].area // masks[name].heads)
        first = make_plan(chosen, masks[heaviest], case, self.ranks, **given)
        shards = chosen.partition([(masks[name], weights[name]) for name in masks], first.grid) if len(masks) > 1 else first.shards
        for name in masks:  # refuses a mask that the method cannot do, before anything is sent
            make_plan(chosen, masks[name], case, self.ranks, shards=shards, **given)
        settings = (chosen.name, str(first.grid), dict(first.options), first.kernel, (heads_q, heads_kv), (size, size_v), deterministic)
        return Plan(self.rank, masks, *settings, shards, _digest(masks, shards, settings))


def default_method(masks: Mapping[str, AnyMask]) -> str:
    """Returns the method for masks where none is named: casts follow documents and windows, rings suit the rest."""
    if any(isinstance(mask, BlockMask) for mask in masks.values()):
        return "ring_allgather"
    is_local = any(len(mask.documents or ()) > 1 or 2 * mask.area < mask.seqlen_q * mask.seqlen_k for mask in masks.values())
    return "magi" if len(masks) > 1 or is_local else "usp"


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
    return dict(layers) if layers else dict.fromkeys(masks, 1)


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
