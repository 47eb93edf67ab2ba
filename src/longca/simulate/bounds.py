"""The least time that a plan can take: what its busiest rank computes, issues and sends, as if no transfer ever made it wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from longca.masks import AnyMask, Mask
from longca.parallel.comm.trace import Event
from longca.parallel.cuts import once_for_all_ranks
from longca.parallel.grid import Grid
from longca.parallel.method import Plan
from longca.parallel.ranges import Shards
from longca.parallel.recording import RankProgram, record
from longca.parallel.sharding import rings_of
from longca.results.problem import Pass
from longca.simulate.cluster import Algorithm, Cluster
from longca.simulate.costs import attention_s, memory_s


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


def quick_bound(plan: Plan, cluster: Cluster, passes: Iterable[Pass]) -> dict[Pass, float]:
    """Milliseconds that take no recording to know: in a ring, a rank waits for the keys of each rank that its rows see, attends to them and
    merges the result; its host issues all three, in a backward once more (for these keys, or the queries that see its own)."""
    if not plan.method.has_ring or not isinstance(plan.mask, Mask):
        return dict.fromkeys(passes, 0.0)
    once = 3e-3 * cluster.compute.host_us * _visits(plan.mask, plan.shards, plan.grid.heads, plan.grid.ring)
    return {pass_: once * (2 if pass_ is Pass.BOTH else 1) for pass_ in passes}


@once_for_all_ranks
def _visits(mask: Mask, shards: Shards, heads: int, ring: int) -> int:
    """From how many others the keys come that the rows of the busiest place of a ring see; or how many others see its keys, if less."""
    rows, keys = rings_of(shards, Grid(heads, ring))
    place = _busiest(mask, shards) // heads
    seen = mask.pair_areas([rows[place]], keys[0])  # type: ignore[arg-type, list-item]  # arrays are ranges too
    seeing = mask.pair_areas(rows, [keys[0][place]])  # type: ignore[arg-type, list-item]
    return max(0, int(min((seen > 0).sum(), (seeing > 0).sum())) - 1)


def bound_of(plan: Plan, cluster: Cluster) -> Bound:
    program = record(plan, _busiest(plan.mask, plan.shards))
    seconds = {Pass.FWD: least_s(program.forward, program.rank, cluster), Pass.BWD: least_s(program.backward, program.rank, cluster)}
    seconds[Pass.BOTH] = least_s(program.forward + program.backward, program.rank, cluster)
    return Bound(plan, program, {pass_: 1e3 * value for pass_, value in seconds.items()})


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
