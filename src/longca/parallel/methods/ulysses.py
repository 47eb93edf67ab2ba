"""ulysses: all-to-all from tokens to heads, one attention over all tokens, all-to-all back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.masks import AnyMask
from longca.parallel.grid import Grid
from longca.parallel.method import Method, Plan
from longca.parallel.ranges import Shards, as_array, count
from longca.parallel.sharding import contiguous

if TYPE_CHECKING:
    from longca.parallel.comm.base import Comm
    from longca.parallel.primitives.program import Program


class Ulysses(Method):
    name = "ulysses"
    about = "all-to-all to split heads, one attention over all tokens, all-to-all back"
    needs = "no more ranks than query heads; KV heads are replicated where there are fewer than ranks"
    order = 10
    splits_heads, columns_alike, takes_sinks, no_blocks = True, True, True, ""
    merges, own_backward = False, True

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return contiguous(mask.seqlen_q, grid.ranks)

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.head_split import HeadSplit
        from longca.parallel.primitives.heads import Heads
        from longca.parallel.primitives.local import Local

        split = HeadSplit.of(plan.case, comm.size)
        kernel = plan.local_kernel(comm, split.case(plan.case, comm.rank))
        everything = as_array([(0, plan.mask.seqlen_q)])
        heads = split.queries[comm.rank]
        inner = Local(kernel, plan.mask_of(heads), everything, heads)
        if comm.size == 1:
            return inner  # all heads are here: there is nothing to exchange, and nothing to copy
        return Heads(inner, kernel, comm, split, [count(shard) for shard in plan.shards])
