"""The least time that a plan can take: what its busiest rank computes, issues and sends, as if no transfer ever made it wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from longca.kernels.base import BYTES
from longca.masks import AnyMask, Mask
from longca.parallel import methods
from longca.parallel.comm.base import AttentionCall
from longca.parallel.comm.trace import Event
from longca.parallel.cuts import Cut, Cuts, once_for_all_ranks
from longca.parallel.grid import Grid
from longca.parallel.method import Plan
from longca.parallel.methods import burst
from longca.parallel.ranges import Shards
from longca.parallel.recording import RankProgram, record
from longca.parallel.sharding import rings_of
from longca.results.problem import Pass
from longca.simulate.cluster import Algorithm, Cluster
from longca.simulate.costs import FP32, attention_s, memory_s


@dataclass(frozen=True)
class Bound:
    """A plan, the recorded program of its rank with the most work, and the least milliseconds by pass."""

    plan: Plan
    program: RankProgram
    ms: dict[Pass, float]

    def is_same_program(self, other: Bound) -> bool:
        """Whether two plans do the same. The busiest rank, the first and the last are compared, and the tokens of all."""
        pairs = zip(self.plan.shards, other.plan.shards, strict=True)
        if not _alike(self.program, other.program) or not all(len(a) == len(b) and (a == b).all() for a, b in pairs):
            return False
        return all(_alike(record(self.plan, rank), record(other.plan, rank)) for rank in (0, self.plan.ranks - 1))


def _alike(left: RankProgram, right: RankProgram) -> bool:
    return left.rank == right.rank and left.forward == right.forward and left.backward == right.backward


def looks(plan: Plan) -> tuple[object, ...]:
    """What `quick_bound` depends on beside the case and the mask: plans that differ in other things have the same."""
    method, grid = plan.method, plan.grid
    own = type(method).__module__.startswith(methods.__name__)
    return own and method.has_ring, method.gathers_queries, method.name == burst.Burst.name, id(plan.shards), grid.heads, grid.ring


def quick_bound(plan: Plan, cluster: Cluster, passes: Iterable[Pass]) -> dict[Pass, float]:
    """Milliseconds that take no recording to know: in a ring, the busiest rank waits for the keys of each rank that its rows see, attends
    to them and adds the results up: out, and in a backward dq. Its host issues all three. Of methods of plugins nothing is known."""
    method, grid, case, compute = plan.method, plan.grid, plan.case, cluster.compute
    if not looks(plan)[0] or not isinstance(plan.mask, Mask):
        return dict.fromkeys(passes, 0.0)
    cuts = _seen(plan.mask, plan.shards, grid.heads, grid.ring, int(method.gathers_queries))
    split, slow = 1 if method.gathers_queries else grid.heads, cluster.slowness(_busiest(plan.mask, plan.shards))
    heads, size = case.heads_q // split, BYTES[case.dtype]
    shape = (heads, max(1, case.heads_kv // split), case.head_dim, case.head_dim_v, case.dtype)
    added = [heads * (cut.rows.stop - cut.rows.start) for cut in cuts]
    rows = sum(added) - max(added, default=0)  # of all parts but one
    host = 3e-3 * compute.host_us * max(0, len(cuts) - 1)

    def stream(backward: bool) -> float:
        seconds = memory_s(rows * (case.head_dim * (2 * FP32 + size) if backward else case.head_dim_v * (4 * FP32 + size)), 0, compute)
        for cut in cuts:
            length, keys = cut.rows.stop - cut.rows.start, cut.keys.stop - cut.keys.start
            seconds += attention_s(AttentionCall(backward, cut.area, length, keys, *shape, cut.tiles, "", True, cut.make), compute)
        return 1e3 * slow * seconds

    both = [(stream(False), host)]
    keys, queries = burst.backward_bytes(case, size, FP32) if method.name == burst.Burst.name else (0, 0)
    both.append((0.0, 0.0) if queries < keys else (stream(True), host))  # where queries travel, the calls are others
    parts = {Pass.FWD: both[:1], Pass.BWD: both[1:], Pass.BOTH: both}
    return {pass_: max(sum(part[0] for part in parts[pass_]), sum(part[1] for part in parts[pass_])) for pass_ in passes}


@once_for_all_ranks
def _seen(mask: Mask, shards: Shards, heads: int, ring: int, gathers_queries: int) -> list[Cut]:
    """What the rows of the busiest place of a ring see of the keys of each place: those of one rank, or of all that share its heads."""
    rows, keys = rings_of(shards, Grid(heads, ring))
    table = Cuts(mask, (rows[_busiest(mask, shards) // heads],), keys[0] if gathers_queries else rows)
    return [cut for place in range(ring) if not (cut := table.cut(0, place)).is_empty]


def bound_of(plan: Plan, cluster: Cluster) -> Bound:
    program = record(plan, _busiest(plan.mask, plan.shards))
    return Bound(plan, program, least_ms(program, cluster))


def least_ms(program: RankProgram, cluster: Cluster) -> dict[Pass, float]:
    events = {Pass.FWD: program.forward, Pass.BWD: program.backward, Pass.BOTH: program.forward + program.backward}
    return {pass_: 1e3 * least_s(own, program.rank, cluster) for pass_, own in events.items()}


@once_for_all_ranks
def _busiest(mask: AnyMask, shards: Shards) -> int:
    """The rank whose tokens see the most keys."""
    return int(mask.pair_areas(shards, [[(0, mask.seqlen_k)]])[:, 0].argmax()) if isinstance(mask, Mask) else 0  # type: ignore[arg-type]


def least_s(events: Sequence[Event], rank: int, cluster: Cluster) -> float:
    """The seconds of one rank's stream and host without waiting; or of what it sends over its own links, if that takes longer."""
    compute, slow, host_s = cluster.compute, cluster.slowness(rank), cluster.compute.host_us * 1e-6
    host = stream = inside = between = 0.0
    for event in events:
        issued = host_s * (event.calls if event.kind == "memory" else 1)
        first, host = host + issued / max(1, event.calls), host + issued
        if event.kind == "post":
            if cluster.operations.of(event.what) is not Algorithm.RING or event.what == "exchange":
                far = sum(size for peer, size in event.sends if cluster.node(peer) != cluster.node(rank))
                between, inside = between + far, inside + event.bytes - far
        elif event.kind != "wait" and not event.beside:
            seconds = attention_s(event.call, compute) if event.call else memory_s(event.bytes, event.calls, compute)
            stream = max(max(stream, first) + seconds * slow, host)
    return max(stream, host, inside / cluster.inside.bytes_s, between / cluster.between.bytes_s)
