"""mesh: N = a·b ranks; a ranks gather their queries, a ring of b ranks passes keys round, and results are merged over a."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.kernels.base import BYTES, Case
from longca.masks import AnyMask
from longca.parallel.grid import Grid, divisors
from longca.parallel.method import IN_STEPS, RANKS_PER_NODE, Method, Plan
from longca.parallel.options import NODE_OF_SUMS
from longca.parallel.ranges import Shards
from longca.parallel.sharding import rings_of, zigzag

if TYPE_CHECKING:
    from longca.parallel.comm.base import Comm
    from longca.parallel.primitives.program import Program


class Mesh(Method):
    name = "mesh"
    about = "a grid of ranks: queries are gathered along one side, keys travel a ring along the other, results are merged by lse"
    needs = "nothing of heads; a grid AxB with A·B ranks, by default the one that sends the fewest bytes"
    order = 90
    takes_sinks = True
    options = (NODE_OF_SUMS,)
    gathers_queries, has_ring, no_blocks = True, True, IN_STEPS

    def default_grid(self, case: Case, ranks: int, ranks_per_node: int = RANKS_PER_NODE) -> Grid:
        grids = [Grid(a, ranks // a) for a in divisors(ranks)]
        return min(grids, key=lambda grid: sum(sent_bytes(case, grid, ranks_per_node)[: 1 + case.backward]))

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return zigzag(mask, grid.ranks)

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.primitives.queries import Queries
        from longca.parallel.primitives.ring import DoubleRing, Ring

        kernel, grid, heads = plan.local_kernel(comm), plan.grid, (0, plan.case.heads_q)
        side, around = grid.head_group(comm.rank), grid.ring_group(comm.rank)
        if grid.heads == 1:
            return Ring(kernel, comm, plan.mask, plan.shards, heads)
        rows, keys = rings_of(plan.shards, grid)
        own_keys = keys[grid.head_position(comm.rank)]
        queries = comm.subgroup(side)
        ring = DoubleRing(kernel, comm.sub(around), plan.mask, own_keys, heads, rows=rows)
        gathered = tuple(plan.shards[rank] for rank in side)
        return Queries(ring, kernel, queries, gathered, plan.crosses_nodes(side))


def sent_bytes(case: Case, grid: Grid, ranks_per_node: int) -> tuple[int, int]:
    """Returns the bytes that a rank sends for each of its tokens under a full mask, forward and backward. lse, delta, sums over steps and,
    on GPUs, sums over nodes are fp32."""
    size, both = BYTES[case.dtype], case.head_dim + case.head_dim_v
    sums = max(size, 4)
    out = sums if grid.ring > 1 else size
    across = case.device == "cuda" and 1 < ranks_per_node < grid.heads  # gloo adds nothing on the way
    dq = sums if across else out  # with a ring it is a sum already
    queries, keys = (grid.heads - 1) * case.heads_q, (grid.ring - 1) * case.heads_kv
    forward = queries * (case.head_dim * size + case.head_dim_v * out + sums) + keys * both * size  # q, out, lse; k, v
    backward = queries * (both * size + case.head_dim * dq + 2 * sums) + keys * both * (size + sums)  # q, dout, dq, lse, delta; k .. dv
    return forward, backward
