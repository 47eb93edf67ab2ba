"""usp: heads split over U neighbouring ranks, a ring over the R groups of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.masks import AnyMask
from longca.parallel.grid import Grid
from longca.parallel.method import IN_STEPS, Method, Plan
from longca.parallel.ranges import Shards, count
from longca.parallel.sharding import rings_of, split_each, zigzag

if TYPE_CHECKING:
    from longca.parallel.comm.base import Comm
    from longca.parallel.primitives.program import Program


class Usp(Method):
    name = "usp"
    about = "ulysses inside a node, ring_p2p across nodes"
    needs = "a grid UxR with U·R ranks and at least U query heads; U inside a node"
    order = 40
    splits_heads, columns_alike = True, True
    has_ring, takes_sinks, no_blocks = True, True, IN_STEPS

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return split_each(zigzag(mask, grid.ring), grid.heads)

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.head_split import HeadSplit
        from longca.parallel.primitives.heads import Heads
        from longca.parallel.primitives.ring import DoubleRing

        grid, split = plan.grid, HeadSplit.of(plan.case, plan.grid.heads)
        place, group = grid.head_position(comm.rank), grid.head_group(comm.rank)
        kernel = plan.local_kernel(comm, split.case(plan.case, place))
        around = comm.sub(grid.ring_group(comm.rank))
        ring = DoubleRing(kernel, around, plan.mask, rings_of(plan.shards, grid)[0], split.queries[place], grid.windows)
        if grid.heads == 1:
            return ring
        return Heads(ring, kernel, comm.sub(group), split, [count(plan.shards[rank]) for rank in group])
