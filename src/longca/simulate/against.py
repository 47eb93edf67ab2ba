"""Compares simulations with measured records of context parallelism: the same methods, masks, lengths and ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from longca.errors import BadInput, Refused
from longca.kernels.base import Case
from longca.masks import Mask
from longca.parallel import options, registry
from longca.parallel.method import Plan
from longca.results.files import journals_below
from longca.results.reading import Results, read_all
from longca.results.record import Record
from longca.simulate.cluster import Cluster
from longca.simulate.predict import predict
from longca.simulate.programs import Programs


class Pair(NamedTuple):
    """A measured record and the time that the simulation gives."""

    record: Record
    ms: float

    @property
    def error(self) -> float:
        return self.ms / self.record.times.median - 1


def against(place: Path, cluster: Cluster) -> list[Pair]:
    """The measured records below a folder, each with its simulated time. Block patterns and methods that are not known are left out."""
    folders = journals_below(place)
    if not folders:
        raise BadInput(f"{place} holds no journal; give a folder that `longca run --level cp` wrote.")
    results = read_all(tuple(folders))
    pairs = [Pair(record, predict(programs, cluster, record.problem.pass_).ms) for record, programs in recorded(results, measured(results))]
    if not pairs:
        raise BadInput(f"no record in {place} is of a method and mask that can be simulated; give measured records of the level cp.")
    return pairs


def measured(results: Results) -> list[Record]:
    """The records of context parallelism that were measured."""
    return [record for record in results.records if record.ok and record.method and not record.simulated]


def recorded(results: Results, records: Sequence[Record]) -> Iterator[tuple[Record, Programs]]:
    """Each record with the programs of its ranks, where they can be recorded."""
    known = dict[tuple[object, ...], Programs]()
    for record in records:
        split = (record.method, record.grid, record.problem.ranks, record.options, record.asked, record.grad)
        key = (*split, record.built.digest, record.problem.heads_q, record.problem.heads_kv, record.problem.head_dim, record.problem.head_dim_v, record.problem.dtype)
        if key not in known:
            plan = _plan(record, results)
            if plan is None:
                continue
            known.clear()  # passes of one plan follow one another
            known[key] = Programs.of(plan)
        yield record, known[key]


def _plan(record: Record, results: Results) -> Plan | None:
    entry = results.masks.get((record.built.digest, record.problem.mask))
    if entry is None or entry.bands is None or record.method not in registry.names():
        return None
    mask = Mask.of(entry.seqlen_q, entry.seqlen_k, entry.bands, documents=entry.documents)
    shape = (record.problem.heads_q, record.problem.heads_kv, record.problem.head_dim, record.problem.head_dim_v, record.problem.dtype)
    environment = results.environment(record)
    case = Case(mask.seqlen_q, mask.seqlen_k, *shape, "cpu" if environment.on_cpu else "cuda", backward=record.grad)
    try:
        split = (record.problem.ranks or 1, record.grid or "", record.asked)
        return registry.plan(record.method, mask, case, *split, options=options.parse(record.options or ""))
    except Refused:
        return None


def errors(pairs: Iterable[Pair]) -> tuple[float, float]:
    """The median of the errors' sizes, and the size that nine in ten do not exceed."""
    sizes = sorted(abs(pair.error) for pair in pairs)
    return median(sizes), sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]
