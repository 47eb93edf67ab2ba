"""Compares simulations with measured records of context parallelism: the same methods, masks, lengths and ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from longca.errors import BadInput, Refused
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


def measured_names(record: Record) -> dict[str, str | int]:
    """What a measured record is of: the method, its grid and ranks, mask, tokens and pass."""
    problem, split = record.problem, record.split
    names: dict[str, str | int] = {"method": split.method if split else "", "grid": split.grid if split else "", "ranks": problem.ranks}
    return names | {"mask": problem.mask, "seqlen": problem.seqlen, "pass": problem.pass_.value}


def recorded(results: Results, records: Sequence[Record]) -> Iterator[tuple[Record, Programs]]:
    """Each record with the programs of its ranks, where they can be recorded."""
    known = dict[tuple[object, ...], Programs]()
    for record in records:
        key = record.split, record.asked, record.grad, record.built.digest, record.problem.every_pass, record.problem.ranks
        if key not in known:
            plan = _plan(record, results)
            if plan is None:
                continue
            known.clear()  # passes of one plan follow one another
            known[key] = Programs.of(plan)
        yield record, known[key]


def _plan(record: Record, results: Results) -> Plan | None:
    entry = results.masks.get((record.built.digest, record.problem.mask))
    split = record.split
    if entry is None or entry.bands is None or split is None or split.method not in registry.names():
        return None
    mask = Mask.of(entry.seqlen_q, entry.seqlen_k, entry.bands, documents=entry.documents)
    case = record.problem.case(mask, "cpu" if results.environment(record).on_cpu else "cuda", record.grad)
    try:
        ranks = record.problem.ranks
        return registry.plan(split.method, mask, case, ranks, split.grid, record.asked, options=options.parse(split.options))
    except Refused:
        return None
