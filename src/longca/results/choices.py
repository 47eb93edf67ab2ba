"""The table that the kernel `best` chooses by: by device and class of calls, how much slower than the fastest each kernel is.

The kernels' own room reads no journals, so the table is made here and kept beside it: `tools/choices.py` writes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import geometric_mean

from msgspec.structs import asdict

from longca.kernels import registry
from longca.kernels.choice.classes import length_class, mask_class
from longca.kernels.choice.records import ClassRecords, KernelRatio, versions_hash
from longca.results.grouping import grouped
from longca.results.problem import Pass
from longca.results.ranking import records_of_one_clock
from longca.results.reading import Results
from longca.results.record import MaskEntry, Record
from longca.text import format_dims, format_heads

Group = tuple[str, str, int, str, str, str, str, bool, bool]  # device, class of mask, length, heads, head size, dtype, pass, softcap, sinks


def table(results: Results, with_failed: bool = False) -> list[ClassRecords]:
    """The entries of all classes that have records of at least two kernels, sorted. `with_failed` also has the kernels that failed."""
    classes = {key: _class(entry) for key, entry in results.masks.items()}
    able = [record for record in results.records if _counts(record) and (record.ok or with_failed)]
    kinds = {record.key: classes.get((record.built.digest, record.problem.mask)) for record in able}
    counted = [record for record in able if kinds[record.key]]
    groups = grouped(counted, lambda record: _group(record, results.environment(record).name, kinds[record.key] or ""))
    entries = [_entry(group, groups[group], results) for group in sorted(groups)]
    return [entry for entry in entries if len(entry.kernels) > 1 and any(kernel.slower for kernel in entry.kernels.values())]


def _counts(record: Record) -> bool:
    """Whether it is of a kernel of LongCA on one device, as the kernel usually runs."""
    problem = record.problem
    special = problem.deterministic or problem.cudagraph or record.split or record.simulated or record.chose
    return not special and problem.pass_ is not Pass.BOTH and record.kernel in registry.compared_names()


def _class(entry: MaskEntry) -> str:
    """The class of a mask; empty where it cannot be made again."""
    mask = entry.rebuilt()
    return mask_class(mask) if mask is not None and mask.digest == entry.digest else ""


def _group(record: Record, device: str, kind: str) -> Group:
    problem, shape = record.problem, asdict(record.problem)
    where = device, kind, length_class(problem.seqlen), format_heads(shape), format_dims(shape)
    return *where, problem.dtype, problem.pass_.value, bool(problem.softcap), bool(problem.sinks)


def _entry(group: Group, records: Iterable[Record], results: Results) -> ClassRecords:
    measured = grouped(records, lambda record: (record.built.digest, record.problem.seqlen))
    points = {place: own for place, own in measured.items() if len({record.label for record in own}) > 1}  # alone, each is the fastest
    slower: defaultdict[str, list[float]] = defaultdict(list)
    versions: defaultdict[str, set[str]] = defaultdict(set)
    journals = set[str]()
    for several in points.values():
        by_label = {record.label: record for record in records_of_one_clock(several)}
        least = min((record.times.median for record in by_label.values() if record.ok), default=0.0)
        for label, record in by_label.items():
            slower[label] += [record.times.median / least] if record.ok else []
            versions[label].add(versions_hash(record.versions) if record.versions else "")
            journals |= {results.folders[home].name for home in results.homes.get(record.key, ())}
    ratios = {label: round(geometric_mean(of_points), 4) if of_points else None for label, of_points in sorted(slower.items())}
    kernels = {label: KernelRatio(ratio, sorted(versions[label])) for label, ratio in ratios.items()}
    return ClassRecords(*group, points=len(points), journals=sorted(journals), kernels=kernels)
