"""ring_p2p: keys travel round a ring of all ranks, one step at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.masks import AnyMask
from longca.parallel.grid import Grid
from longca.parallel.method import IN_STEPS, Method, Plan
from longca.parallel.ranges import Shards
from longca.parallel.sharding import zigzag

if TYPE_CHECKING:
    from longca.parallel.comm.base import Comm
    from longca.parallel.primitives.program import Program


class RingP2P(Method):
    name = "ring_p2p"
    about = "keys travel a ring, their transfer beside the attention of the step before; results are merged online"
    needs = "nothing of heads; any number of ranks"
    order = 20
    has_ring, takes_sinks, no_blocks = True, True, IN_STEPS

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return zigzag(mask, grid.ring)

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.primitives.ring import Ring

        return Ring(plan.local_kernel(comm), comm, plan.mask, plan.shards, (0, plan.case.heads_q))
