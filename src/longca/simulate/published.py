"""Published figures of GPU clusters, the documents behind them, and the predictions for the same methods, masks and GPUs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from longca import masks
from longca.errors import BadInput
from longca.kernels.base import Case
from longca.parallel import registry
from longca.results.files import SHIPPED
from longca.results.problem import Pass
from longca.simulate.cluster import DENSE, DOCUMENTS, SHAPE, Cluster
from longca.simulate.forked import map_forked
from longca.simulate.predict import predict
from longca.simulate.programs import Programs

KERNEL, PER_NODE = "fa4", 8  # of all ranks; GPUs of a node
NAMES = {"magi_native": "magi"}  # other names of LongCA's methods in the files
PASSES = (Pass.FWD, Pass.BWD)

# How the documents were drawn is public (MagiAttention's repository, exps/dist_attn: benchmark_conf.py, benchmark/utils.py and the file of
# document lengths): all documents of a data set, each as long as the middle of its bin.
BINS = (  # shortest, longest, documents
    (0, 10, 30254), (11, 50, 391188), (51, 100, 699596), (101, 200, 1377757), (201, 500, 3794735), (501, 1024, 3316785),
    (1025, 2048, 2106566), (2049, 4096, 988525), (4097, 8192, 410002), (8193, 16384, 173574), (16385, 32768, 115007),
    (32769, 65536, 18428), (65537, 131072, 22513), (131073, 196608, 18284),
)  # fmt: skip
SEED, PACKS = 42, 20


class Figure(NamedTuple):
    """What was measured: a method, a mask, a pass, and the number of GPUs."""

    method: str
    mask: str
    pass_: Pass
    gpus: int


@dataclass(frozen=True)
class Published:
    """TFLOP/s per GPU of one cluster, of methods that LongCA has."""

    speeds: dict[Figure, float]
    tokens_per_gpu: int

    @property
    def gpus(self) -> list[int]:
        return sorted({figure.gpus for figure in self.speeds})

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(figure.method for figure in self.speeds))


class Point(NamedTuple):
    """One published figure, the prediction, and both on the fewest GPUs."""

    figure: Figure
    published: float
    predicted: float
    at_first: float
    predicted_at_first: float

    @property
    def error(self) -> float:
        """Of the predicted speed, relative to what was published."""
        return self.predicted / self.published - 1

    @property
    def flat_error(self) -> float:
        """Of the guess that nothing changes with more GPUs."""
        return self.at_first / self.published - 1

    @property
    def scaling_error(self) -> float:
        """Of the predicted ratio of this to the fewest GPUs."""
        return (self.predicted / self.predicted_at_first) / (self.published / self.at_first) - 1


def published(cluster: str) -> Published:
    """The figures that come with LongCA and that this cluster is compared with: `results/published/h100_cp.csv` for h100-ib."""
    name = f"{cluster.partition('-')[0]}_cp.csv"
    file = next((path for place in SHIPPED if (path := place / "published" / name).is_file()), None)
    if file is None:
        raise BadInput(f"no published figures come with LongCA for {cluster}; --validate takes h100-ib, b200-ib or cpu-gloo.")
    rows = [row | {"method": NAMES.get(row["method"], row["method"])} for row in csv.DictReader(file.read_text().splitlines())]
    known = [row for row in rows if row["method"] in registry.names()]
    speeds = {Figure(row["method"], row["mask"], Pass(row["pass"]), int(row["gpus"])): float(row["tflops_per_gpu"]) for row in known}
    return Published(speeds, int(rows[0]["tokens"]) // int(rows[0]["gpus"]))


@lru_cache(maxsize=8)
def packs(seqlen: int) -> list[list[int]]:
    """The lengths of the documents in each of the 20 packs whose mean speed was published. Documents longer than a quarter of the sequence
    are cut into quarters; everything is shuffled and laid end to end into packs, cut where a pack ends, and packs are shuffled."""
    generator = np.random.default_rng(SEED)
    length = np.array([(shortest + longest) // 2 for shortest, longest, _ in BINS])
    number, quarter = np.array([documents for _, _, documents in BINS]), seqlen // 4
    whole, rest = np.divmod(length, quarter)
    pieces = np.concatenate([np.full(int((whole * number).sum()), quarter), np.repeat(rest[rest > 0], number[rest > 0])]).astype(np.int32)
    generator.shuffle(pieces)
    edges = np.append(0, np.cumsum(pieces, dtype=np.int64))
    order = list(range(int(edges[-1]) // seqlen))
    generator.shuffle(order)
    drawn = []
    for place in order[:PACKS]:
        start, end = place * seqlen, (place + 1) * seqlen
        inside = edges[np.searchsorted(edges, start, "right") : np.searchsorted(edges, end)]
        drawn.append(np.diff([start, *inside, end]).tolist())
    return drawn


def programs_of(figures: Published, name: str, gpus: int, pack: list[int] | None = None) -> Iterator[tuple[str, Programs]]:
    """Each published method with its programs under a mask, with the documents of a pack."""
    tokens = gpus * figures.tokens_per_gpu
    settings: dict[str, Any] = {} if pack is None else {"documents": pack}
    mask, case = masks.build(name, tokens, **settings), Case(tokens, tokens, *SHAPE, "bf16", "cuda")
    for method in map(registry.get, figures.methods):
        options = method.default_options(case.group, gpus, PER_NODE)
        yield method.name, Programs.of(registry.plan(method.name, mask, case, gpus, kernel=KERNEL, options=options))


def speeds_of(cluster: Cluster, name: str, programs: Iterable[tuple[str, Programs]]) -> dict[Figure, float]:
    """The predicted TFLOP/s per GPU of a mask's recordings."""
    return {
        Figure(method, name, pass_, recorded.plan.ranks): predict(recorded, cluster, pass_).tflops
        for method, recorded in programs
        for pass_ in PASSES
    }


def compare(
    figures: Published, cluster: Cluster, number: int = PACKS, watch: Callable[[int, int], object] = lambda done, of: None
) -> list[Point]:
    """Predicts and compares everything that was published, on all cores; of documents the mean speed over packs, as it was published.
    `watch` is told how many packs are done, and of how many."""
    parts = [
        (mask, gpus, pack)
        for gpus, mask in product(reversed(figures.gpus), (*DENSE, *DOCUMENTS))  # long ones first
        for pack in (packs(gpus * figures.tokens_per_gpu)[:number] if mask in DOCUMENTS else [None])
    ]
    speeds: dict[Figure, list[float]] = {figure: [] for figure in figures.speeds}
    found = map_forked(lambda part: speeds_of(cluster, part[0], programs_of(figures, *part)), parts)
    for done, several in enumerate(found, 1):
        watch(done, len(parts))
        for figure, speed in several.items():
            speeds[figure].append(speed)
    return points_of(figures, {figure: fmean(values) for figure, values in speeds.items()})


def points_of(figures: Published, predicted: dict[Figure, float]) -> list[Point]:
    points = []
    for figure, speed in predicted.items():
        first = figure._replace(gpus=figures.gpus[0])
        points.append(Point(figure, figures.speeds[figure], speed, figures.speeds[first], predicted.get(first, speed)))
    return points
