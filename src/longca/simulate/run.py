"""Simulates all cells of a request and makes records of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import convert
from msgspec.structs import replace

import longca
from longca.bench.plan.cell import Cell, fingerprint
from longca.bench.plan.cells import Planned, plan
from longca.bench.plan.versions import kernel_versions, method_versions
from longca.bench.run.outcomes import make_record, to_message
from longca.errors import BadInput, Refused
from longca.parallel.grid import Grid
from longca.parallel.method import Plan
from longca.results.journal import Journal
from longca.results.metrics import GIB, peak
from longca.results.record import Environment, Memory, Outcome, RankFigures, Record, Status, Times
from longca.simulate.cluster import Cluster
from longca.simulate.forked import MANY_RANKS, cores, map_forked, map_longest_first
from longca.simulate.predict import Prediction, predict
from longca.simulate.programs import record_job
from longca.simulate.request import Request, jobs_of, plan_job
from longca.simulate.table import names, plain

VERSION = "simulator"  # the name under which a record's versions have the model
MODEL = "3"  # raise it when predictions change
FIGURES = ("ms", "mean_ms", "tflops", "compute_share", "exposed_share", "late_share", "host_share", "hidden_share", "imbalance")
Job = tuple[list[Cell], Cluster, tuple[int, ...]]


@dataclass(frozen=True)
class Simulated:
    """A cell and what the simulation says about it; no prediction where it is refused or does not fit."""

    cell: Cell
    outcome: Outcome
    prediction: Prediction | None
    least_ms: float | None = None  # that it takes at least, where it was not simulated because others take less

    def as_dict(self, name: str) -> dict[str, Any]:
        """As plain values; `name` is that of the cluster."""
        found, outcome = self.prediction, self.outcome
        row = {"cluster": name, **plain(names(self.cell)), "status": outcome.status.value}
        if found is None:
            return row | {"reason": outcome.reason} | ({} if self.least_ms is None else {"least_ms": self.least_ms})
        row |= {figure: getattr(found, figure) for figure in FIGURES}
        return row | {"peak_bytes": max(found.peaks), "sent_bytes": max(found.sent_bytes)}


def simulate(request: Request, cluster: Cluster, watched: Sequence[int] = ()) -> Iterator[Simulated]:
    """Every cell of the request, cells of one plan one after the other. Large requests run on all cores: plan by plan, or where there are
    few plans, ranks and passes of each."""
    jobs: list[Job] = [(cells, cluster, tuple(watched)) for cells in jobs_of(request.cells())]
    ranks = sum(cells[0].problem.ranks for cells, _, _ in jobs if cells[0].split is not None)
    on_cores = ranks >= MANY_RANKS and len(jobs) >= cores()
    for results in map_longest_first(simulate_job, jobs, _length) if on_cores else map(simulate_job, jobs):
        yield from results


def refuse_dtypes(request: Request, cluster: Cluster) -> None:
    """Raises BadInput for a dtype with which the device cannot reach the cluster's speed: that speed was measured with another."""
    speed = cluster.compute.forward_tflops
    for dtype in request.suite.dtypes:
        limit = peak(cluster.device, dtype)
        if limit is not None and speed > limit:
            raise BadInput(
                f"this cluster computes attention at {speed:.0f} TFLOP/s, which {cluster.device} does not reach with {dtype}; "
                "give --dtype bf16 or fp16, or a cluster file with your own speeds (`longca calibrate`)."
            )


def _length(job: Job) -> int:
    """About how long a job takes beside others: a rank has an event or two for each rank of its ring."""
    cell = job[0][0]
    return 0 if cell.split is None else cell.problem.ranks * Grid.parse(cell.split.grid).ring


def simulate_job(job: Job) -> list[Simulated]:
    """The passes of one job."""
    cells, cluster, watched = job
    try:
        return simulate_plan(plan_job(cells), cells, cluster, watched)
    except Refused as refusal:
        return unsupported(cells, refusal)


def simulate_plan(plan: Plan, cells: Sequence[Cell], cluster: Cluster, watched: Sequence[int] = ()) -> list[Simulated]:
    """The passes of one plan."""
    programs = record_job(cells, plan)
    if isinstance(programs, Refused):
        return unsupported(cells, programs)

    def simulated(cell: Cell) -> Simulated:
        most = max(programs.peaks(cell.problem.pass_))
        if most > cluster.memory_gib * GIB:
            return too_large(cell, most, cluster)
        prediction = predict(programs, cluster, cell.problem.pass_, watched)
        return Simulated(cell, _outcome(prediction, cluster, cell), prediction)

    return list(map(simulated, cells) if programs.plan.ranks < MANY_RANKS else map_forked(simulated, cells))


def unsupported(cells: Sequence[Cell], refusal: Refused) -> list[Simulated]:
    return [Simulated(cell, Outcome(status=Status.UNSUPPORTED, reason=str(refusal)), None) for cell in cells]


def too_large(cell: Cell, size: int, cluster: Cluster) -> Simulated:
    reason = f"a rank holds {size / GIB:.1f} GiB, and a GPU has {cluster.memory_gib:g}"
    return Simulated(cell, Outcome(status=Status.OOM, reason=reason), None)


def _outcome(prediction: Prediction, cluster: Cluster, cell: Cell) -> Outcome:
    ms = prediction.ms
    limit = peak(cluster.device, cell.problem.dtype)
    peaks = [size / GIB for size in prediction.peaks]
    return Outcome(
        status=Status.OK,
        timed=Times(
            median=ms,
            p20=ms,
            p80=ms,
            samples=[ms],
            tflops=prediction.tflops,
            stop="simulated",
            mfu=None if limit is None else prediction.tflops / limit,
        ),
        memory=Memory(max(peaks), peaks),
        over_ranks=RankFigures(
            imbalance=prediction.imbalance,
            mean_ms=prediction.mean_ms,
            imbalance_ms=ms / prediction.mean_ms if prediction.mean_ms else 1.0,
            bytes_sent=prediction.sent_bytes,
            wait_share=min(1.0, prediction.exposed_share + prediction.late_share),
            exposed_share=prediction.exposed_share,
            hidden_share=prediction.hidden_share,
        ),
    )


def environment(cluster: Cluster, request: Request) -> Environment:
    return Environment(
        device=cluster.device,
        device_kind=request.device,
        gpus=max(request.gpus),
        gpu_memory_mib=round(cluster.memory_gib * 1024),
        longca=longca.__version__,
        date=datetime.now(UTC).date().isoformat(),
    )


def planned(request: Request, name: str, cluster: Cluster) -> dict[Cell, Planned]:
    """The cells with their keys: another model, other constants or other code are another key."""
    versions = {request.kernel: kernel_versions(request.kernel) | {VERSION: f"{MODEL}-{fingerprint(cluster)[:8]}"}}
    versions |= {method.name: method_versions(method.name) for method in request.methods}
    return {entry.cell: entry for entry in plan(request.cells(), f"simulated {name}", versions)}


def write(request: Request, name: str, cluster: Cluster, results: Sequence[Simulated], out: Path) -> list[Record]:
    """Adds the records to a journal and returns them; what another model of this cluster wrote there before stays beside them."""
    entries, setting = planned(request, name, cluster), environment(cluster, request)
    label = fingerprint(replace(setting, date=None))[:10]
    records = []
    with Journal(out) as journal:
        journal.add_environment(label, setting)
        for result in results:
            if entry := entries.get(result.cell):
                journal.add_mask(entry.mask)
                outcome = convert(to_message(result.outcome), Outcome)  # in as many digits as measured records have
                records.append(replace(make_record(entry, outcome, label), simulated=name))
                journal.add(records[-1])
    return records
