"""How well simulations agree with published figures: predicted and published speed of every method, mask, pass and number of GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from longca import masks
from longca.bench.plan.suite import read_toml
from longca.kernels.base import Case
from longca.parallel import registry
from longca.results.problem import Pass
from longca.simulate.cluster import DENSE, SHAPE, Cluster
from longca.simulate.forked import map_forked
from longca.simulate.predict import predict
from longca.simulate.programs import Programs

DOCUMENTS = ("full_document", "causal_document")
KERNEL, PER_NODE = "fa4", 8  # of all ranks; GPUs of a node
LARGE = 0.2  # deviations beyond it are explained
CONSTANTS = (
    *("compute.forward_tflops", "compute.backward_tflops", "compute.memory_gb_s", "compute.host_us"),
    *("inside.efficiency", "inside.latency_us", "between.efficiency", "between.latency_us"),
)


Speeds = dict[tuple[str, str, Pass, int], list[float]]  # by method, mask, pass and GPUs: one speed for each pack


class Published(Struct, frozen=True, forbid_unknown_fields=True):
    """TFLOP/s per GPU by method, then by mask and pass, one for each number of GPUs."""

    about: str
    source: str
    gpus: list[int]
    tokens_per_gpu: int
    methods: dict[str, dict[str, list[float]]]
    explanations: dict[str, str]  # of large deviations, by method
    documents: dict[str, list[list[int]]]  # lengths in each pack, by number of GPUs; speeds are means over packs


class Point(NamedTuple):
    """One published figure, the prediction, and the published figure of the same line on the fewest GPUs."""

    method: str
    mask: str
    pass_: Pass
    gpus: int
    published: float
    predicted: float
    at_first: float
    predicted_at_first: float

    @property
    def error(self) -> float:
        """Of the prediction, relative to what was published."""
        return self.predicted / self.published - 1

    @property
    def flat_error(self) -> float:
        """Of the guess that nothing changes with more GPUs."""
        return self.at_first / self.published - 1

    @property
    def scaling_error(self) -> float:
        """Of the predicted ratio of this to the fewest GPUs."""
        return (self.predicted / self.predicted_at_first) / (self.published / self.at_first) - 1


def published() -> Published:
    return read_toml(Path(__file__).parent / "published_h100.toml", Published)


def recordings(figures: Published, names: Sequence[str] = (*DENSE, *DOCUMENTS)) -> Iterator[tuple[str, str, int, Programs]]:
    """(method, mask, GPUs, programs) of everything that was published and that LongCA has a method for; of documents once for each pack."""
    known = [registry.get(name) for name in figures.methods if name in registry.names()]
    for name, gpus in product(names, figures.gpus):
        tokens = gpus * figures.tokens_per_gpu
        packs: list[dict[str, Any]] = [{"documents": pack} for pack in figures.documents[str(gpus)]] if name in DOCUMENTS else [{}]
        case = Case(tokens, tokens, *SHAPE, "bf16", "cuda")
        for mask, method in product((masks.build(name, tokens, **pack) for pack in packs), known):
            options = method.default_options(case.group, gpus, PER_NODE)
            yield method.name, name, gpus, Programs.of(registry.plan(method.name, mask, case, gpus, kernel=KERNEL, options=options))


def speeds_of(cluster: Cluster, programs: Iterable[tuple[str, str, int, Programs]]) -> Speeds:
    """The predicted TFLOP/s per GPU of every recording."""
    speeds: Speeds = {}
    for method, mask, gpus, recorded in programs:
        for pass_ in (Pass.FWD, Pass.BWD):
            speeds.setdefault((method, mask, pass_, gpus), []).append(predict(recorded, cluster, pass_).tflops)
    return speeds


def points_of(figures: Published, speeds: Speeds) -> list[Point]:
    """Every published figure with the prediction; where there are several packs, the mean of their speeds, as it was published."""
    predicted = {key: fmean(values) for key, values in speeds.items()}
    points = []
    for (method, mask, pass_, gpus), speed in predicted.items():
        line = figures.methods[method][f"{mask} {pass_.value}"]
        first = predicted.get((method, mask, pass_, figures.gpus[0]), speed)
        points.append(Point(method, mask, pass_, gpus, line[figures.gpus.index(gpus)], speed, line[0], first))
    return points


def compare(figures: Published, cluster: Cluster) -> list[Point]:
    """Records, predicts and compares everything that was published, on all cores."""
    parts = [
        (mask, replace(figures, gpus=[gpus], documents={str(gpus): [pack]}))
        for gpus, mask in product(reversed(figures.gpus), (*DENSE, *DOCUMENTS))  # long ones first
        for pack in (figures.documents[str(gpus)] if mask in DOCUMENTS else [[]])
    ]
    speeds: Speeds = {}
    for several in map_forked(lambda part: speeds_of(cluster, recordings(part[1], [part[0]])), parts):
        for key, values in several.items():
            speeds.setdefault(key, []).extend(values)
    order = {name: place for place, name in enumerate((*DENSE, *DOCUMENTS, *figures.methods))}
    keys = sorted(speeds, key=lambda key: (order[key[1]], order[key[0]], key[2] is Pass.BWD, key[3]))
    return points_of(figures, {key: speeds[key] for key in keys})


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's: the correlation of places in the order, equal values in the middle of their places."""
    places = [_places(values) for values in (left, right)]
    middle = (len(left) - 1) / 2
    first, second = ([place - middle for place in side] for side in places)
    scale = (sum(x * x for x in first) * sum(y * y for y in second)) ** 0.5
    return sum(x * y for x, y in zip(first, second, strict=True)) / scale if scale else 1.0


def _places(values: Sequence[float]) -> list[float]:
    """Values that differ by less than a thousandth, such as two grids that are the same, count as equal."""
    ordered = sorted(values)
    places = []
    for value in values:
        same = [place for place, other in enumerate(ordered) if abs(other - value) <= 1e-3 * abs(value)]
        places.append(sum(same) / len(same))
    return places


def summary(points: Sequence[Point], figures: Published) -> dict[str, Any]:
    """The figures that are held against the targets."""
    plain = [point for point in points if point.mask in DENSE]
    documents = [point for point in points if point.mask in DOCUMENTS]
    later = [point for point in points if point.gpus != figures.gpus[0]]
    last = [point for point in documents if point.gpus == figures.gpus[-1]]

    def typical(errors: Iterable[float]) -> float | None:
        sizes = [abs(error) for error in errors]
        return median(sizes) if sizes else None

    return {
        "plain": {
            "error": typical(point.error for point in plain),
            "worst": max((abs(point.error) for point in plain), default=None),
            "later_error": typical(point.error for point in later if point.mask in DENSE),  # beside the next, of the same figures
            "same_as_first": typical(point.flat_error for point in later if point.mask in DENSE),
        },
        "documents": {
            "error": typical(point.error for point in documents),
            "later_error": typical(point.error for point in later if point.mask in DOCUMENTS),
            "same_as_first": typical(point.flat_error for point in later if point.mask in DOCUMENTS),
            "scaling_error": typical(point.scaling_error for point in later if point.mask in DOCUMENTS),
            "scaling_within_25": sum(abs(point.scaling_error) <= 0.25 for point in last),
            "scaling_rows": len(last),
            "rank_correlation": {
                f"{mask} {pass_.value} {gpus}": rank_correlation(
                    [point.published for point in documents if (point.mask, point.pass_, point.gpus) == (mask, pass_, gpus)],
                    [point.predicted for point in documents if (point.mask, point.pass_, point.gpus) == (mask, pass_, gpus)],
                )
                for mask in DOCUMENTS
                for pass_ in (Pass.FWD, Pass.BWD)
                for gpus in figures.gpus
                if documents
            },
        },
    }


def explanations(points: Sequence[Point], figures: Published) -> dict[str, str]:
    """Why methods deviate by more than LARGE, with how many of their figures do and the worst of them; by method."""
    reasons = {}
    for method in dict.fromkeys(point.method for point in points):
        own = [point for point in points if point.method == method]
        large = [point for point in own if abs(point.error) > LARGE]
        if large:
            worst = max(large, key=lambda point: abs(point.error))
            where = f"{worst.mask} {worst.pass_.value} on {worst.gpus} GPUs {worst.error:+.0%}"
            reasons[method] = f"{len(large)} of {len(own)} figures, worst {where}: {figures.explanations.get(method, 'not explained.')}"
    return reasons


def constant(cluster: Cluster, name: str) -> float:
    value: Any = cluster
    for part in name.split("."):
        value = getattr(value, part)
    return float(value)
