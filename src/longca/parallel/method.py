"""What a method is: how tokens are given to ranks, and the program that each rank runs. One class per file, found by the registry.

class MyMethod(Method):
    name, about, needs = "mine", "one line", "what it asks of heads and ranks"
    def shards(self, mask, grid): ...
    def program(self, plan, comm): ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from longca.code_version import module_path
from longca.errors import BadInput, Refused, Unavailable
from longca.kernels.base import Answer, Case, No, Yes
from longca.masks import AnyMask, BlockMask
from longca.parallel.grid import Grid, default_heads, default_windows
from longca.parallel.kernel_requirements import refuse_kernel
from longca.parallel.options import NODE, Option, Options, settle
from longca.parallel.ranges import Ranges, Shards, as_array, count

if TYPE_CHECKING:
    import torch

    from longca.parallel.comm.base import Comm
    from longca.parallel.primitives.local import LocalKernel
    from longca.parallel.primitives.program import Program

FRAMEWORK = True

KERNEL = "torch:chunked"  # runs everywhere, under every mask
RANKS_PER_NODE = 8
IN_STEPS = "it attends to the keys of one rank at a time, and a block pattern leaves rows without any key in such a step"


class Method(ABC):
    """Everything at class level, `default_grid` and `supports` work without torch; `program` may import anything."""

    name: ClassVar[str] = ""
    about: ClassVar[str] = ""  # one line for `longca ls cp`
    needs: ClassVar[str] = ""  # what it asks of heads and ranks, in words
    order: ClassVar[int] = 100  # place in listings, lowest first; methods of one place are sorted by name
    splits_heads: ClassVar[bool] = False
    columns_alike: ClassVar[bool] = False  # it splits heads, and programs depend on a rank's column by its heads and tokens alone
    gathers_queries: ClassVar[bool] = False  # the first number of its grid is ranks that gather their queries, not ranks that split heads
    has_ring: ClassVar[bool] = False
    has_windows: ClassVar[bool] = False
    merges: ClassVar[bool] = True  # results over several sets of keys are put together, for which kernels must give the lse
    own_backward: ClassVar[bool] = False  # a kernel's backward belongs to one forward of its own, so that autograd can do it
    peer: ClassVar[bool] = False  # another project's: it calls torch.distributed itself, so its transfers are neither counted nor left out
    balancer: ClassVar[bool] = False  # another project's shards with LongCA's transfers; listed with the peers
    modules: ClassVar[tuple[str, ...]] = ()  # what must be installed
    package: ClassVar[str] = ""  # what pip calls it
    takes_sinks: ClassVar[bool] = False  # its programs take sinks as a fourth argument, as those of the primitives do
    no_blocks: ClassVar[str] = "it takes static masks, not block patterns"  # why it takes none; empty: it does, see `Plan.mask_of`
    options: ClassVar[tuple[Option, ...]] = ()  # numbers that a user may choose; `Plan.options` has them
    takes_every_mask: ClassVar[bool] = True  # False: `supports` refuses some static masks
    takes_blocks_alone: ClassVar[bool] = False  # it refuses all of them
    takes_any_shards: ClassVar[bool] = True  # False: its programs work with the shards of their own mask alone

    @property
    def has_columns(self) -> bool:
        """Whether the first number of its grid may be more than 1."""
        return self.splits_heads or self.gathers_queries

    def default_grid(self, case: Case, ranks: int, ranks_per_node: int = RANKS_PER_NODE) -> Grid:
        if not self.has_ring:
            return Grid(ranks, 1) if self.splits_heads else Grid(1, ranks)
        heads = default_heads(ranks, case.heads_q, ranks_per_node) if self.splits_heads else 1
        ring = ranks // heads
        return Grid(heads, ring, default_windows(ring) if self.has_windows else 1)

    def default_options(self, group: int, ranks: int, ranks_per_node: int) -> dict[str, int]:
        """Returns the options that follow from the query heads of one KV head and from the nodes, where those are known."""
        takes_node = any(option.name == NODE.name for option in self.options)
        return {NODE.name: ranks_per_node} if takes_node and 1 < ranks_per_node < ranks else {}

    def available(self) -> Answer:
        missing = [module for module in self.modules if module_path(module) is None]
        return No(f"needs {', '.join(missing)}: pip install {self.package or missing[0]}") if missing else Yes()

    def supports(self, mask: AnyMask, case: Case, ranks: int, grid: Grid) -> Answer:
        if self.takes_blocks_alone and not isinstance(mask, BlockMask):
            return No("it takes block patterns alone; use magi for other masks")
        if isinstance(mask, BlockMask) and self.no_blocks:
            return No(f"{self.no_blocks}; use {'ulysses, ' if ranks <= case.heads_q else ''}ring_allgather or block_cast")
        if mask.heads not in (1, case.heads_kv):
            return No(f"the mask has {mask.heads} block patterns for {case.heads_kv} KV heads; give 1 or {case.heads_kv}")
        if case.sinks and not self.takes_sinks:
            return No("its programs do not take attention sinks")
        if mask.seqlen_q != mask.seqlen_k:
            return No(f"it shares one sequence among ranks, not {mask.seqlen_q} queries and {mask.seqlen_k} keys; give a square mask")
        if case.heads_q % case.heads_kv:
            return No(f"{case.heads_q} query heads do not divide into {case.heads_kv} groups; give a multiple of {case.heads_kv}")
        if grid.ranks != ranks:
            return No(f"the grid {grid} is for {grid.ranks} ranks, and there are {ranks}; {self._suggest(case, ranks)}")
        if grid.heads > 1 and not self.has_columns:
            return No(f"it does not split heads, so it cannot use the grid {grid}; {self._suggest(case, ranks)}")
        if grid.ring > 1 and self.has_columns and not self.has_ring:
            return No(f"it has no ring, so it cannot use the grid {grid}; {self._suggest(case, ranks)}")
        if grid.windows > 1 and not self.has_windows:
            other = "loongtrain" if self.has_columns else "burst"
            return No(f"it has no windows, so it cannot use the grid {grid}; leave the last number out, or use {other}")
        if self.splits_heads and grid.heads > case.heads_q:
            return No(f"{grid.heads} ranks cannot share {case.heads_q} query heads; {self._suggest(case, ranks)}")
        return Yes()

    def _suggest(self, case: Case, ranks: int) -> str:
        """What would work."""
        if self.splits_heads and not self.has_ring and ranks > case.heads_q:
            return f"use usp with grid {Grid(best := default_heads(ranks, case.heads_q, ranks), ranks // best)}, or ring_p2p"
        return f"use grid {self.default_grid(case, ranks)}"

    @abstractmethod
    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        """The tokens of each rank, from mask and grid alone."""

    def partition(self, masks: Sequence[tuple[AnyMask, int]], grid: Grid) -> Shards:
        """The tokens of each rank for several masks, each with its number of layers: those of the mask with the most work."""
        return self.shards(max(masks, key=lambda entry: entry[1] * entry[0].area // entry[0].heads)[0], grid)

    def describe(self, plan: Plan) -> list[str]:
        """Lines about what a plan decided beyond its grid, for people."""
        return []

    @abstractmethod
    def program(self, plan: Plan, comm: Comm) -> Program:
        """What this rank of `comm` does. Kernels are prepared here, nothing is sent."""


@dataclass(frozen=True)
class Plan:
    """A method for one mask, one case and one grid; `program(comm)` is what a rank runs."""

    method: Method
    mask: AnyMask
    case: Case
    grid: Grid
    kernel: str
    shards: Shards
    accumulate: torch.dtype | None = None  # of partial results: fp32, where no test asks for another
    options: Options = field(default_factory=dict)  # those of the method, with its defaults; windows are in the grid

    @property
    def ranks(self) -> int:
        return self.grid.ranks

    def rows(self, rank: int) -> Ranges:
        """The tokens that a rank has, in order."""
        return self.shards[rank]

    def crosses_nodes(self, ranks: Iterable[int]) -> bool:
        """Returns whether these ranks are on several nodes. Without the option `node`, or if it is 1, nodes are not considered."""
        node = self.options.get(NODE.name, 1)
        return node > 1 and len({rank // node for rank in ranks}) > 1

    def describe(self) -> list[str]:
        """Lines for people: what the method decided, and the tokens of each rank where that or a quarter more on one makes them uneven."""
        own, lines = [count(shard) for shard in self.shards], self.method.describe(self)
        uneven = max(own) - min(own) > 2 and (lines or 4 * self.ranks * max(own) > 5 * sum(own))
        return [f"tokens of each rank: {', '.join(map(str, own))}", *lines] if uneven else lines

    def mask_of(self, heads: tuple[int, int]) -> AnyMask:
        """What these query heads see, of one group or of whole groups: of a block pattern, the patterns of their KV heads."""
        first, last = heads
        return self.mask if self.mask.heads == 1 else self.mask.take_heads(range(first // self.case.group, -(-last // self.case.group)))

    def pairs(self, rows: Ranges, heads: tuple[int, int], keys: Ranges | None = None) -> int:
        """The visible pairs of these rows and keys (of all keys, if none are given) in these query heads."""
        mask = self.mask_of(heads)
        within = as_array([(0, mask.seqlen_k)]) if keys is None else keys
        area = int(mask.pair_areas([rows], [within])[0, 0])  # type: ignore[list-item]  # arrays are ranges too
        return area * (heads[1] - heads[0]) // mask.heads

    def program(self, comm: Comm) -> Program:
        if comm.size != self.ranks:
            raise BadInput(f"the plan is for {self.ranks} ranks and the group has {comm.size}; plan for {comm.size}.")
        return self.method.program(self, comm)

    def local_kernel(self, comm: Comm, case: Case | None = None) -> LocalKernel:
        from longca.parallel.primitives.local import LocalKernel

        return LocalKernel(self.kernel, case or self.case, comm, self.accumulate, self.method.merges)


def make_plan(
    method: Method,
    mask: AnyMask,
    case: Case,
    ranks: int,
    grid: Grid | None = None,
    kernel: str = KERNEL,
    ranks_per_node: int = RANKS_PER_NODE,
    accumulate: torch.dtype | None = None,
    options: Options | None = None,
    shards: Shards | None = None,
) -> Plan:
    """Decide everything that does not depend on the rank, or refuse with the reason. `shards`: a partition made for several masks."""
    if isinstance(here := method.available(), No):
        raise Unavailable(f"{method.name} is not available here ({here.reason}).")
    if ranks < 1:
        raise BadInput(f"{ranks} ranks cannot share a sequence; give 1 or more.")
    if grid is not None and grid.windows > 1 and (options or {}).get("windows", grid.windows) != grid.windows:
        raise BadInput(f"the grid {grid} and the option windows={(options or {})['windows']} differ; give one of them.")
    grid, settled = settle(method, grid or method.default_grid(case, ranks, ranks_per_node), options or {})
    answer = method.supports(mask, case, ranks, grid)
    if isinstance(answer, No):
        raise Refused(f"{method.name} cannot do this: {answer.reason}.")
    partial = case.backward and not method.own_backward
    case = replace(case, seqlen_q=mask.seqlen_q, seqlen_k=mask.seqlen_k, scale=case.softmax_scale, partial_backward=partial)
    refuse_kernel(method, kernel, mask, case, ranks)
    if shards is not None and (method.peer or not method.takes_any_shards) and not _same(shards, method.shards(mask, grid)):
        raise Refused(f"{method.name} cannot do this: it deals tokens out by the work of one mask; use magi for several masks.")
    return Plan(method, mask, case, grid, kernel, method.shards(mask, grid) if shards is None else shards, accumulate, settled)


def _same(one: Shards, other: Shards) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
