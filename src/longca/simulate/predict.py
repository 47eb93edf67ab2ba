"""The predicted time and speed of one plan and pass, and the shares of that time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longca.results.metrics import flops, imbalance, tflops
from longca.results.problem import Pass
from longca.simulate import programs as recorded
from longca.simulate.cluster import Cluster
from longca.simulate.programs import Programs, pairs
from longca.simulate.replay import RankTimes, replay


@dataclass(frozen=True)
class Prediction:
    """Times are of the slowest rank; shares are means over ranks, of that time."""

    pass_: Pass
    ms: float
    mean_ms: float
    tflops: float  # of each rank
    compute_share: float
    exposed_share: float  # the stream waits for bytes under way
    late_share: float  # the stream waits for a rank that is behind, or at the end for the slowest
    host_share: float
    hidden_share: float  # of the time of transfers, that runs beside compute
    imbalance: float  # of the work
    sent_bytes: list[int]
    peaks: list[int]
    ranks: list[RankTimes]


def predict(programs: Programs, cluster: Cluster, pass_: Pass, watched: Sequence[int] = ()) -> Prediction:
    events = programs.events(pass_)
    times = replay(events, cluster, watched)
    end, count = max(rank.end for rank in times), len(times)
    whole = end * count

    def share(seconds: float) -> float:
        return seconds / whole if whole else 0.0

    transfers = sum(rank.transfers for rank in times)
    exposed = sum(rank.exposed for rank in times)
    plan = programs.plan
    return Prediction(
        pass_,
        end * 1e3,
        sum(rank.end for rank in times) / count * 1e3,
        tflops(flops(plan.mask, plan.case, pass_), end * 1e3) / count,
        share(sum(rank.attention + rank.memory for rank in times)),
        share(exposed),
        share(sum(rank.late + end - rank.end for rank in times)),
        share(sum(rank.host for rank in times)),
        max(0.0, 1 - exposed / transfers) if transfers else 1.0,
        imbalance([pairs(rank) for rank in events]),
        [recorded.sent(rank) for rank in events],
        programs.peaks(pass_),
        times,
    )
