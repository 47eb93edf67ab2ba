"""Reading journals: the records that count, with their environments and masks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from longca.errors import BadInput
from longca.results import files
from longca.results.doubts import without_doubtful
from longca.results.grouping import grouped
from longca.results.problem import Pass
from longca.results.record import Environment, Environments, MaskEntry, Record

Identity = tuple[object, ...]


@dataclass
class Results:
    """The records of one or several journals that count, and what they refer to."""

    records: list[Record]
    environments: dict[str, Environment] = field(default_factory=dict)
    masks: dict[tuple[str, str], MaskEntry] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)
    homes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # by key the numbers of the folders that hold the record

    def environment(self, record: Record) -> Environment:
        """The record's environment; an empty one where its journal does not say."""
        return self.environments.get(record.env) or Environment()


def read(folder: str | Path) -> Results:
    """One journal."""
    return read_all([folder])


def read_all(folders: Iterable[str | Path]) -> Results:
    """The journals in these folders together; of two records with one key the last counts."""
    results, records = Results([], folders=files.journals(folders)), dict[str, Record]()
    for number, folder in enumerate(results.folders):
        environments = files.read_environments(folder)
        masks = files.by_name(files.read_masks(folder).entries)
        for record in without_doubtful(latest(history(folder), environments), environments, masks):
            records.pop(record.key, None)  # a later record also stands later
            records[record.key] = record
            results.homes[record.key] = (*results.homes.get(record.key, ()), number)
        results.environments |= environments
        results.masks |= masks
    results.records = list(records.values())
    return results


def read_some(folders: Sequence[str | Path]) -> Results:
    """As `read_all`, and refuses journals without any record."""
    results = read_all(folders)
    if not results.records:
        raise BadInput(f"there is no record in {', '.join(map(str, folders))}; give a folder in which `longca run` measured something.")
    return results


def history(folder: str | Path) -> list[Record]:
    """All records of a journal in the order they were written."""
    if not files.results_file(Path(folder)).exists():
        raise BadInput(f"there is no journal in {folder} ({files.RESULTS}); give a folder that `longca run --out` wrote.")
    return files.read_results(folder).entries


def latest(written: Iterable[Record], environments: Environments) -> list[Record]:
    """The records that count: of those that measure the same on one device the last one, at the place of the first. A kernel that was
    edited has another key, and yet its new record replaces the old one."""
    records, devices = list(written), {name: environment.device for name, environment in environments.items()}
    newest = {record.key: record for record in records}
    by_work = grouped(records, lambda record: (devices.get(record.env), identity(as_planned(record))))
    return [last for *_, last in by_work.values() if last is newest[last.key]]


def replaced(written: Sequence[Record], environments: Environments, keys: Collection[str]) -> list[Record]:
    """The last records with these keys that do not count any more, because a later record with another key measures the same."""
    counting = {record.key for record in latest(written, environments)}
    return [record for key, record in {record.key: record for record in written}.items() if key in keys and key not in counting]


def as_planned(record: Record) -> Record:
    """The record with the `grad` that was planned: a forward measured alone because its backward failed counts as the planned forward."""
    if record.problem.pass_ is not Pass.FWD or record.grad == record.planned_grad:
        return record
    return replace(record, grad=record.planned_grad)


def identity(record: Record, kernel: str | None = None) -> Identity:
    """What was measured, on whatever device, without what it was measured with and what came out. `kernel` stands for the kernel as asked
    for, where a caller matches by the variant that ran."""
    name = kernel or record.asked
    return name, record.level, record.measured, record.built.digest, record.split, record.simulated, record.grad


def identity_fields(record: Record) -> dict[str, Any]:
    """What `identity` consists of, by name."""
    problem = asdict(record.measured)
    cell = {"asked": record.asked, "level": record.level, **problem, "pass": problem["pass_"], "params": record.built.params}
    del cell["pass_"]
    split = asdict(record.split) if record.split else {}
    return cell | split | {"mask_digest": record.built.digest, "grad": record.grad, "simulated": record.simulated}
