"""ring_allgather: all keys are gathered, backward reduce-scatters their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.masks import AnyMask
from longca.parallel.grid import Grid
from longca.parallel.method import Method, Plan
from longca.parallel.options import NODE_OF_SUMS
from longca.parallel.ranges import Shards
from longca.parallel.sharding import zigzag

if TYPE_CHECKING:
    from longca.parallel.comm.base import Comm
    from longca.parallel.primitives.program import Program


class RingAllgather(Method):
    name = "ring_allgather"
    about = "all-gather K and V, one attention; backward gathers again and reduce-scatters dK and dV"
    needs = "nothing of heads; memory for the keys of all ranks"
    order = 30
    merges, takes_sinks, no_blocks = False, True, ""
    options = (NODE_OF_SUMS,)

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return zigzag(mask, grid.ring)

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.primitives.gather import Gather, GatherScatter, all_keys
        from longca.parallel.primitives.local import Local

        kernel, heads = plan.local_kernel(comm), (0, plan.case.heads_q)
        if comm.size == 1:
            return Local(kernel, plan.mask, plan.rows(0), heads)  # all keys are here: there is nothing to gather, and nothing to copy
        (piece,) = kernel.over_shards(plan.mask, plan.shards, comm.rank, all_keys(plan.mask), [0])
        collective = GatherScatter(kernel, comm, plan.shards, plan.crosses_nodes(range(comm.size)))
        return Gather(kernel, plan.rows(comm.rank), heads, piece, collective)
