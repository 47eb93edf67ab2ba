"""block_cast: every rank receives exactly the key blocks that its rows selected, head by head, and returns their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.masks import AnyMask, BlockMask
from longca.parallel.block_balance import balanced_blocks
from longca.parallel.grid import Grid
from longca.parallel.method import Method, Plan
from longca.parallel.options import NODE
from longca.parallel.ranges import Shards, cut

if TYPE_CHECKING:
    from longca.parallel.comm.base import Comm
    from longca.parallel.primitives.program import Program


class BlockCast(Method):
    name = "block_cast"
    about = "whole row blocks, their work even; each rank receives the key blocks its rows selected, by head, and returns their gradients"
    needs = "a block pattern"
    order = 65
    merges, takes_sinks, no_blocks = False, True, ""
    takes_every_mask, takes_blocks_alone = False, True
    options = (NODE,)

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        assert isinstance(mask, BlockMask)  # other masks are refused
        return balanced_blocks(mask, grid.ranks)

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.primitives.block_cast import BlockCast as Cast
        from longca.parallel.primitives.gather import Gather
        from longca.parallel.primitives.local import Local

        assert isinstance(plan.mask, BlockMask)  # other masks are refused
        kernel, heads, rows = plan.local_kernel(comm), (0, plan.case.heads_q), plan.rows(comm.rank)
        if comm.size == 1:
            return Local(kernel, plan.mask, rows, heads)
        cast = Cast(kernel, comm, plan.mask, plan.shards, plan.options["node"])
        return Gather(kernel, rows, heads, kernel.over(cut(plan.mask, rows, cast.keys)), cast)
