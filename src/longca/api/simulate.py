"""`longca.simulate`: how long context-parallel methods take on a cluster; `longca.validate_simulation`: how near that comes to others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from longca.api.journals import folder_of
from longca.api.plan import SplitRequest, per_node_of, splits_of
from longca.api.takes import takes
from longca.bench.plan.request import Number, Texts, axes, texts
from longca.errors import BadInput
from longca.recommend.shipped import for_calibrating
from longca.simulate import cluster as clusters
from longca.simulate import run as simulator
from longca.simulate import timeline, words
from longca.simulate.against import against as pairs_of
from longca.simulate.answers import Simulation, Validation
from longca.simulate.cluster import Cluster
from longca.simulate.published import compare, published
from longca.simulate.request import Request as Splits
from longca.simulate.run import Simulated, refuse_dtypes
from longca.simulate.search import search
from longca.simulate.sensitivity import sensitivity
from longca.text import write_over

PACKS = 8  # of documents, with seeds from 0 on, that every answer for many GPUs is for by default


@dataclass(frozen=True)
class SimulateRequest(SplitRequest):
    _: KW_ONLY
    cluster: str | Path = "h100-ib"  # of LongCA, or a TOML file
    constants: Mapping[str, Number] | None = None  # of the cluster, to change
    best: bool = False  # all grids, windows and stages
    out: str | Path | None = None  # a journal to add the records to
    trace: str | Path | None = None  # a file for Perfetto
    ranks: Texts | None = None  # of this file
    progress: bool = True


@takes(SimulateRequest)
def simulate(request: SimulateRequest) -> Simulation:
    """Returns how long methods take on 8 to a thousand GPUs, from their recorded programs and a model of the cluster.

    `best` tries all grids, windows and stages. `out` is a journal to which simulated records are added, `trace` is a file for the
    timelines of `ranks` of one method and pass.

    >>> longca.simulate("ulysses,magi", "causal", gpus=[8, 64]).rows[0]["ms"]
    """
    return run_simulation(request, lambda shown: None)


def run_simulation(request: SimulateRequest, show: Callable[[dict[str, Any]], None]) -> Simulation:
    """Simulates a request; `show` gets each row as it comes."""
    name, cluster = find_cluster(request.cluster, request.constants)
    cluster = msgspec.structs.replace(cluster, per_node=per_node_of(request, cluster.per_node))
    if request.best and request.passes is None:
        request = replace(request, passes="fwd+bwd")
    splits = splits_of(
        request,
        cluster.per_node,
        "cpu" if cluster.cores else "cuda",
        request.best,
        request.best,
        packs=PACKS if request.trace is None else 1,
    )
    watched, total = _watched(request, splits), len(splits.cells())

    def progress(number: int) -> None:
        if request.progress:
            write_over(f"{number} of {total} cells are simulated or ruled out" if number < total else "")

    refuse_dtypes(splits, cluster)
    results = list[Simulated]()
    for result in search(splits, cluster, progress) if request.best else simulator.simulate(splits, cluster, watched):
        results.append(result)
        progress(len(results))
        show(result.as_dict(name))
    if request.trace is not None:
        _write_trace(results[0], watched, request.cluster, Path(request.trace))
    written = 0 if request.out is None else len(simulator.write(splits, name, cluster, results, Path(request.out)))
    workload = Path(request.workload or "").name
    found = Simulation(name, cluster, splits, results, request.best, request.kernels is not None, written, workload)
    hanging = {place: sensitivity(contest, cluster) for place, contest in enumerate(found.contests)} if request.best else {}
    return replace(found, sensitivities=hanging)


def find_cluster(name: str | Path, constants: Mapping[str, Number] | None) -> tuple[str, Cluster]:
    """A cluster with changed constants."""
    known, cluster = clusters.find(str(name))
    numbers = axes("constants", constants)
    if several := next((constant for constant, values in numbers.items() if len(values) > 1), None):
        raise BadInput(f"constants[{several!r}] must be one number.")
    return known, clusters.changed(cluster, {constant: value for constant, (value,) in numbers.items()})


def _watched(request: SimulateRequest, splits: Splits) -> list[int]:
    """The ranks whose timelines are wanted. Refuses requests for more than one timeline before anything is simulated."""
    if request.trace is None:
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


def _write_trace(result: Simulated, watched: Sequence[int], cluster: str | Path, file: Path) -> None:
    if result.prediction is None:
        raise BadInput(f"there is no timeline: {result.outcome.reason}")
    times = {rank: result.prediction.ranks[rank] for rank in watched}
    title = f"{words.method_name(result.cell)} on {cluster} (simulated): {words.title(result.cell)}"
    timeline.write_trace(times, title, file)


def _told(done: int, total: int) -> None:
    write_over(f"{done} of {total} packs and masks are simulated" if done < total else "")


def validate_simulation(
    cluster: str | Path = "h100-ib", *, constants: Mapping[str, Number] | None = None, against: str | Path | None = None
) -> Validation:
    """Compares predictions with published results of H100 or B200 clusters, or for cpu-gloo with the gloo records that come with LongCA;
    or, if `against` is a folder with your own measured records of context parallelism, with these."""
    name, found = find_cluster(cluster, constants)
    if against is not None:
        return Validation(name, found, pairs_of(Path(folder_of(against)), found))
    if not found.cores:
        figures = published(name)
        return Validation(name, found, [], (figures, compare(figures, found, watch=_told)))
    records = next(iter(for_calibrating()), None)
    if records is None:
        raise BadInput("the measured gloo records are missing from this installation; --against takes your own records.")
    return Validation(name, found, pairs_of(records, found))
