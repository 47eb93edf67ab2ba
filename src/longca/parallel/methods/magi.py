"""magi: chunks given to ranks by the work they make, and every rank gets exactly the keys its rows see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.masks import AnyMask, Mask
from longca.parallel.grid import Grid
from longca.parallel.method import Method, Plan
from longca.parallel.ranges import Shards
from longca.parallel.sharding import balanced

if TYPE_CHECKING:
    from longca.parallel.comm.base import Comm
    from longca.parallel.primitives.program import Program


class Magi(Method):
    name = "magi"
    about = "chunks balanced by mask area; each rank receives the keys its rows see and returns their gradients, in stages"
    needs = "nothing of heads; any number of ranks"
    order = 60
    takes_sinks = True
    no_blocks = "it sends each rank the keys that its rows see as a few ranges, and scattered blocks are not that"

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return balanced(mask, grid.ranks)

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.primitives.group_cast import GroupCast

        assert isinstance(plan.mask, Mask)  # block patterns are refused
        return GroupCast(plan.local_kernel(comm), comm, plan.mask, plan.shards, (0, plan.case.heads_q))
