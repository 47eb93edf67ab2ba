"""`longca.simulate`: how long context-parallel methods take on a cluster; `longca.validate_simulation`: how near that comes to others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from longca.api.files import write_text
from longca.api.gloo import measure_gloo
from longca.api.plan import SplitRequest, splits_of
from longca.api.takes import takes
from longca.bench.plan.request import Number, Texts, texts
from longca.errors import BadInput
from longca.recommend.shipped import for_calibrating
from longca.results.shown import Part, Shown
from longca.simulate import best, timeline, validate, words
from longca.simulate import calibrate as calibrating
from longca.simulate import cluster as clusters
from longca.simulate import run as simulator
from longca.simulate.against import Pair, errors, measured_names
from longca.simulate.against import against as pairs_of
from longca.simulate.cluster import Cluster
from longca.simulate.request import Request as Splits
from longca.simulate.run import Simulated
from longca.simulate.validate import Point, Published
from longca.text import write_over

FIGURES = ("ms", "mean_ms", "tflops", "compute_share", "exposed_share", "late_share", "host_share", "hidden_share", "imbalance")
GLOO = "cpu-gloo"  # the cluster that models ranks on the cores of one machine


@dataclass(frozen=True)
class SimulateRequest(SplitRequest):
    _: KW_ONLY
    cluster: str | Path = "h100-ib"  # of LongCA, or a TOML file
    constants: Mapping[str, Number] | None = None  # of the cluster, to change
    best: bool = False  # all grids, windows and stages
    out: str | Path | None = None  # a journal to add the records to
    trace: str | Path | None = None  # a file for Perfetto
    timeline: str | Path | None = None  # a picture
    ranks: Texts | None = None  # of the two
    progress: bool = True


@dataclass(frozen=True, repr=False)
class Simulation(Shown):
    """Predicted times of methods on a cluster, one per method, grid, mask, length and pass."""

    name: str
    cluster: Cluster
    results: list[Simulated]
    with_best: bool = False
    kernel_named: bool = False
    written: int = 0  # records, into a journal

    @property
    def ok(self) -> bool:
        """Whether some method can do this."""
        return any(result.prediction is not None for result in self.results)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row(result, self.name, self.cluster) for result in self.results]

    @property
    def best(self) -> list[Simulated]:
        """The fastest for each number of GPUs, mask, length, shape and pass."""
        return [group[0] for group in best.contests(self.results)]

    def parts(self) -> list[Part]:
        parts = words.simulation(self.results, self.name, self.cluster)
        if self.kernel_named and self.ok:
            parts.append("Attention has the cluster's speed with every kernel; --kernels changes memory, copies and what is refused.")
        if self.with_best:
            parts += ["", *map(words.contest, best.contests(self.results))]
        return parts


def row(result: Simulated, name: str, cluster: Cluster) -> dict[str, Any]:
    """A result as plain values."""
    cell, found = result.cell, result.prediction
    assert cell.split is not None
    split = {"method": cell.split.method, "grid": cell.split.grid, "options": cell.split.options, "gpus": cell.problem.ranks}
    case = {
        "mask": cell.problem.mask_title,
        "seqlen": cell.problem.seqlen,
        "pass": cell.problem.pass_.value,
        "status": result.outcome.status.value,
    }
    if found is None:
        return {"cluster": name, **split, **case, "reason": result.outcome.reason}
    sizes = {"peak_bytes": max(found.peaks), "sent_bytes": max(found.sent_bytes)}
    figures = {field: getattr(found, field) for field in FIGURES}
    return {"cluster": name, **split, **case, **figures, "error": cluster.error_of(cell.problem.mask) or None, **sizes}


@takes(SimulateRequest)
def simulate(request: SimulateRequest) -> Simulation:
    """Returns how long methods take on 8 to a thousand GPUs, from their recorded programs and a model of the cluster.

    `best` tries all grids, windows and stages. `out` is a journal to which simulated records are added, `trace` and `timeline` are files
    for the timelines of `ranks` of one method and pass.

    >>> longca.simulate("ulysses,magi", "causal", gpus=[8, 64]).rows[0]["ms"]
    """
    return run_simulation(request, lambda shown: None)


def run_simulation(request: SimulateRequest, show: Callable[[dict[str, Any]], None]) -> Simulation:
    """Simulates a request; `show` gets each row as it comes."""
    name, cluster = find_cluster(request.cluster, request.constants)
    splits = splits_of(request, cluster.per_node, "cpu" if cluster.cores else "cuda", all_grids=request.best, all_options=request.best)
    watched = _watched(request, splits)
    results = list[Simulated]()
    for result in _counted(simulator.simulate(splits, cluster, watched), len(splits.cells()), request.progress):
        results.append(result)
        show(row(result, name, cluster))
    simulated = Simulation(name, cluster, results, request.best, request.kernels is not None)
    if watched:
        _write_timelines(request, simulated, watched)
    if request.out is not None:
        records = simulator.write(splits, name, cluster, results, Path(request.out))
        simulated = replace(simulated, written=len(records))
    return simulated


def find_cluster(name: str | Path, constants: Mapping[str, Number] | None) -> tuple[str, Cluster]:
    """A cluster with changed constants."""
    known, cluster = clusters.find(str(name))
    return known, clusters.changed(cluster, {constant: float(value) for constant, value in (constants or {}).items()})


def _counted(results: Iterator[Simulated], total: int, shown: bool) -> Iterator[Simulated]:
    for number, result in enumerate(results, 1):
        if shown:
            write_over(f"{number} of {total} cells are simulated" if number < total else "")
        yield result


def _watched(request: SimulateRequest, splits: Splits) -> list[int]:
    """The ranks whose timelines are wanted. Refuses requests for more than one timeline before anything is simulated."""
    if request.trace is None and request.timeline is None:
        return []
    cells = splits.cells()
    if len(cells) != 1:
        tried = "of which --best makes several; " if request.best else ""
        raise BadInput(
            f"a timeline is of one method, grid, mask, length and pass, {tried}and there are {len(cells)}: "
            "name one with --gpus, --methods, --masks and --passes."
        )
    most = splits.gpus[0]
    entries = texts("ranks", range(min(8, most)) if request.ranks is None else request.ranks)
    if not all(entry.isdecimal() and int(entry) < most for entry in entries):
        raise BadInput(f"--ranks must be numbers of ranks from 0 to {most - 1}, such as 0,1, not {request.ranks}.")
    return list(map(int, entries))


def _write_timelines(request: SimulateRequest, simulated: Simulation, watched: Sequence[int]) -> None:
    (result,) = simulated.results
    if result.prediction is None:
        raise BadInput(f"there is no timeline: {result.outcome.reason}")
    times = timeline.of_ranks(result.prediction.ranks, watched)
    title = f"{words.method_name(result.cell)} on {request.cluster} (simulated): {words.title(result.cell)}"
    if request.trace is not None:
        timeline.write_trace(times, title, Path(request.trace))
    if request.timeline is not None:
        timeline.draw(times, title, Path(request.timeline))


@dataclass(frozen=True, repr=False)
class Validation(Shown):
    """Predictions beside published figures of GPU clusters, measured records of ranks, or both."""

    name: str
    cluster: Cluster
    published: tuple[Published, list[Point]] | None
    measured: tuple[str, list[Pair]]  # and the cluster that they are predicted with
    own: bool = False  # measured by the user, who sees each of them
    ok = True

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per measured record."""
        return [_measured_row(pair) for pair in self.measured[1]]

    def to_json(self) -> dict[str, Any]:
        """Errors in short, and every published figure and measured record."""
        name, pairs = self.measured
        ranks = {count: _summary([pair for pair in pairs if pair.record.problem.ranks == count]) for count in sorted(_counts(pairs))}
        gloo = {"cluster": name, **_summary(pairs), "ranks": ranks, "points": self.rows}
        if self.published is None:
            return {"gloo": gloo}
        figures, points = self.published
        plain = [{**point._asdict(), "pass_": point.pass_.value, "error": point.error} for point in points]
        return {"published": {"cluster": self.name, **validate.summary(points, figures), "points": plain}, "gloo": gloo}

    def parts(self) -> list[Part]:
        name, pairs = self.measured
        if self.own:
            return words.against(pairs, name)
        published = words.published(self.name, self.cluster, *self.published) if self.published else []
        origin = f"\nMeasured on two cores with gloo, and predicted with {name}:"
        return [*published, origin, *words.against(pairs, name, rows=False)]


def _counts(pairs: Sequence[Pair]) -> set[int]:
    return {pair.record.problem.ranks or 1 for pair in pairs}


def _summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    typical, most = errors(pairs)
    return {"records": len(pairs), "error": typical, "nine_in_ten": most}


def _measured_row(pair: Pair) -> dict[str, Any]:
    return {**measured_names(pair.record), "measured_ms": pair.record.times.median, "simulated_ms": pair.ms, "error": pair.error}


def validate_simulation(
    cluster: str | Path = "h100-ib",
    *,
    constants: Mapping[str, Number] | None = None,
    against: str | Path | None = None,
    measure: str | Path | None = None,
) -> Validation:
    """Compares predictions with published results of H100 clusters and with gloo records that come with LongCA.

    `against` is a folder with your own measured records of context parallelism instead. `measure` is a folder into which gloo ranks of
    this machine are measured first; they are predicted with a cluster file that is made from them.
    """
    name, found = find_cluster(cluster, constants)
    if measure is not None:
        folder = Path(measure)
        measure_gloo(folder)
        found, _ = calibrating.calibrate(folder, clusters.find(GLOO)[1])
        file = write_text(folder / "cluster.toml", clusters.to_toml(found))
        return Validation(str(file), found, None, (str(file), pairs_of(folder, found)), own=True)
    if against is not None:
        return Validation(name, found, None, (name, pairs_of(Path(against), found)), own=True)
    records = next(iter(for_calibrating()), None)
    if records is None:
        raise BadInput("the measured gloo records are missing from this installation; `longca simulate --validate --measure` makes others.")
    shared = (name, found) if found.cores else clusters.find(GLOO)
    figures = validate.published()
    published = None if found.cores else (figures, validate.compare(figures, found))
    return Validation(name, found, published, (shared[0], pairs_of(records, shared[1])))
