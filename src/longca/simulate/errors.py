"""How far measured times were from predictions, by cluster, method, kind of mask, GPUs and tokens per GPU. `errors.json` holds what
`benchmarks/simulate_errors.py` compared: published figures of clusters, NCCL ranks that share a GPU, and gloo ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from longca.bench.plan.cell import fingerprint
from longca.parallel import registry
from longca.results.problem import Problem, Split
from longca.simulate.cluster import DENSE, DOCUMENTS, SHAPE, Cluster
from longca.text import format_size, plural

FILE = Path(__file__).parent / "errors.json"


class Compared(Struct, frozen=True):
    """Errors of one method on one kind of mask: measured over predicted time, less 1, one for each mask and pass."""

    method: str
    kind: str
    gpus: int
    tokens_per_gpu: int
    errors: list[float]


class Ledger(Struct, frozen=True):
    """What a cluster was compared with."""

    constants: str  # a fingerprint: with other constants predictions are others
    source: str
    rows: list[Compared]


class Spread(Struct, frozen=True):
    """The sizes of errors: half of them are within `median`, nine in ten within `most`."""

    median: float
    most: float
    count: int

    def __str__(self) -> str:
        return f"{self.median:.0%} (median) and {self.most:.0%} (nine in ten)"


@dataclass(frozen=True)
class Trust:
    """How far predictions of a method on a kind of mask were off, and in what the question differs from what was compared."""

    method: str
    kind: str
    spread: Spread | None  # None: never compared
    gpus: int = 0
    differences: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.spread is None:
            return f"{self.method} was never compared on {self.kind}"
        other = f" (never compared: {', '.join(self.differences)})" if self.differences else ""
        return f"{self.method} on {self.gpus} GPUs was within {self.spread}{other}"


def kind_of(mask: str) -> str:
    return "full and causal" if mask in DENSE else "documents" if mask in DOCUMENTS else "other masks"


def constants_of(cluster: Cluster) -> str:
    return fingerprint(
        cluster.compute, cluster.inside, cluster.between, cluster.operations, cluster.efficiency, cluster.slow, cluster.cores
    )[:10]


@cache
def ledgers() -> dict[str, Ledger]:
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, Ledger])


def ledger_of(name: str, cluster: Cluster) -> Ledger | None:
    """What these constants were compared with."""
    ledger = ledgers().get(name)
    return ledger if ledger and ledger.constants == constants_of(cluster) else None


def spread_of(errors: Iterable[float]) -> Spread:
    sizes = sorted(map(abs, errors))
    return Spread(median(sizes), sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))], len(sizes))


def trust_in(name: str, cluster: Cluster, problem: Problem, split: Split) -> Trust:
    """How far the prediction of a cell may be off: by the errors on the nearest number of GPUs."""
    ledger, kind = ledger_of(name, cluster), kind_of(problem.mask)
    rows = [row for row in ledger.rows if (row.method, row.kind) == (split.method, kind)] if ledger else []
    if not rows:
        return Trust(split.method, kind, None)
    nearest = min((row.gpus for row in rows), key=lambda gpus: abs(log(gpus / problem.ranks)))
    near, own = [row for row in rows if row.gpus == nearest], problem.seqlen // problem.ranks
    differences = [plural(problem.ranks, "GPU")] if nearest != problem.ranks else []
    differences += [f"{format_size(own)} tokens per GPU"] if own not in {row.tokens_per_gpu for row in near} else []
    shape = (problem.heads_q, problem.heads_kv, problem.head_dim, problem.head_dim_v)
    differences += ["these heads"] if not cluster.cores and shape != SHAPE else []
    differences += [f"the setting {split.shape}"] if not _is_default(split, problem, cluster) else []
    return Trust(split.method, kind, spread_of(error for row in near for error in row.errors), nearest, tuple(differences))


def _is_default(split: Split, problem: Problem, cluster: Cluster) -> bool:
    method = registry.get(split.method)
    case = problem.case(problem.build_mask(), "cuda", True) if method.has_ring and method.has_columns else None
    grid = str(method.default_grid(case, problem.ranks, cluster.per_node)) if case else split.grid
    chosen = [entry for entry in split.options.split(",") if entry and not entry.startswith("node=")]
    return grid == split.grid and not chosen


def usual(name: str, cluster: Cluster, kind: str) -> Spread:
    """The spread over all methods of this cluster, or where it was never compared, of all clusters of whole GPUs."""
    ledger = ledger_of(name, cluster)
    rows = ledger.rows if ledger else [row for own, other in ledgers().items() if own.endswith("-ib") for row in other.rows]
    same = [row for row in rows if row.kind == kind] or rows
    return spread_of(error for row in same for error in row.errors)


def margin(trusts: Sequence[Trust], expected: Spread) -> float:
    """By how much times of these methods must differ to be told apart: the largest of their median errors; of a method or setting that was
    never compared, that of all methods."""
    return max(trust.spread.median if trust.spread and not trust.differences else expected.median for trust in trusts)
