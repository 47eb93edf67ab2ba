"""The programs of all ranks of a plan, recorded and made ready for replay: what each event costs is decided later, by the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from longca.bench.plan.cell import Cell
from longca.errors import Refused
from longca.parallel.comm.trace import Event
from longca.parallel.kernel_requirements import refuse_calls
from longca.parallel.method import Plan
from longca.parallel.recording import RankProgram, distinct_calls, mirrored, record, twin_of
from longca.results.problem import Pass
from longca.simulate.forked import MANY_RANKS, map_forked
from longca.simulate.request import plan_job

PART = 16  # ranks that a process records at once
RANKS_HERE = 8  # of many ranks, those that this process records itself, so that it has the masks of their calls


_last: dict[Cell, Programs] = {}


@dataclass(frozen=True)
class Programs:
    """What all ranks of one plan do. Nothing in it depends on a cluster."""

    plan: Plan
    ranks: list[RankProgram]

    @classmethod
    def of(cls, plan: Plan) -> Programs:
        """Returns the programs of a plan. Ranks that do the same on other heads are recorded once."""
        twins = [twin_of(plan, rank) for rank in range(plan.ranks)]
        recorded = {program.rank: program for program in _record(plan, list(dict.fromkeys(twins)))}
        return cls(plan, [mirrored(recorded[twin], plan.grid, rank) for rank, twin in enumerate(twins)])

    def events(self, pass_: Pass) -> list[list[Event]]:
        """The events of each rank in a pass."""
        if pass_ is Pass.FWD:
            return [rank.forward for rank in self.ranks]
        if pass_ is Pass.BWD:
            return [rank.backward for rank in self.ranks]
        return [rank.forward + rank.backward for rank in self.ranks]

    def peaks(self, pass_: Pass) -> list[int]:
        """Bytes that each rank holds at most, inputs included."""
        return [rank.forward_peak if pass_ is Pass.FWD else rank.peak for rank in self.ranks]


def record_job(cells: Sequence[Cell], plan: Plan | None = None) -> Programs | Refused:
    """Returns the programs of a job, or why there are none: no kernel is simulated that a run would refuse. Those of the last one are
    kept: the sensitivity replays the best one again."""
    job = cells[0].job
    try:
        plan = plan or plan_job(cells)
        known = _last.get(job)
        if known is None or type(known.plan.method) is not type(plan.method) or known.plan.mask.digest != plan.mask.digest:
            _last.clear()
            known = _last[job] = Programs.of(plan)
        refuse_calls(plan, distinct_calls(known.ranks))
    except Refused as refusal:
        return refusal
    return known


def _record(plan: Plan, ranks: Sequence[int]) -> list[RankProgram]:
    """Returns the programs of these ranks; many are recorded on all cores."""
    if plan.ranks < MANY_RANKS:
        return [record(plan, rank) for rank in ranks]
    spread = {*ranks[:: -(-len(ranks) // RANKS_HERE)], ranks[-1]}
    here = [record(plan, rank) for rank in sorted(spread)]  # what all ranks share is made with the first, once
    others = [rank for rank in ranks if rank not in spread]
    parts = [others[start : start + PART] for start in range(0, len(others), PART)]
    recorded = map_forked(lambda part: [record(plan, rank) for rank in part], parts)
    return [*here, *(program for part in recorded for program in part)]


def sent(events: Iterable[Event]) -> int:
    return sum(event.bytes for event in events if event.kind == "post")


def messages(events: Iterable[Event]) -> int:
    return sum(len(event.sends) for event in events if event.kind == "post")


def pairs(events: Iterable[Event]) -> int:
    """Visible pairs of all query heads that attention calls compute."""
    return sum(event.call.area * event.call.heads_q for event in events if event.call is not None)


def sent_by_link(events: Iterable[Event], node: int, per_node: int) -> tuple[int, int]:
    """Bytes that a rank of a node sends inside its node, and to other nodes."""
    inside = between = 0
    for event in events:
        for peer, size in event.sends:
            if peer // per_node == node:
                inside += size
            else:
                between += size
    return inside, between
