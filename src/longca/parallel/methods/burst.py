"""burst: a double ring of keys forward; backward moves keys or queries, whichever has fewer bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.kernels.base import Case
from longca.masks import AnyMask
from longca.parallel.grid import Grid
from longca.parallel.method import IN_STEPS, Method, Plan
from longca.parallel.options import WINDOWS
from longca.parallel.ranges import Shards
from longca.parallel.sharding import zigzag

if TYPE_CHECKING:
    from longca.parallel.comm.base import Comm
    from longca.parallel.primitives.program import Program


class Burst(Method):
    name = "burst"
    about = "a double ring of keys; backward moves k, v, dk and dv, or q, dout, lse, delta and dq, whichever has fewer bytes"
    needs = "nothing of heads; a grid 1xRxW with R ranks and W a divisor of R"
    order = 80
    takes_sinks = True
    has_ring, has_windows, no_blocks = True, True, IN_STEPS
    options = (WINDOWS,)

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return zigzag(mask, grid.ring)

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.primitives.query_ring import QueryRing
        from longca.parallel.primitives.ring import DoubleRing

        kernel = plan.local_kernel(comm)
        keys, queries = backward_bytes(plan.case, kernel.dtype.itemsize, kernel.accumulate.itemsize)
        ring = QueryRing if plan.case.backward and queries < keys else DoubleRing
        return ring(kernel, comm, plan.mask, plan.shards, (0, plan.case.heads_q), plan.grid.windows)


def backward_bytes(case: Case, size: int, sum_size: int) -> tuple[int, int]:
    """What a token costs each time it moves on: k, v and their sums dk, dv; or q, dout, the sum dq, lse and delta."""
    keys = case.heads_kv * (case.head_dim + case.head_dim_v) * (size + sum_size)
    queries = case.heads_q * ((case.head_dim + case.head_dim_v) * size + (case.head_dim + 2) * sum_size)
    return keys, queries
