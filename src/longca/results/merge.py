"""Joining journals of several machines or shards, and packing a finished one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from longca.results.doubts import doubt
from longca.results.files import LOCK, MASKS, RESULTS, read_environments, read_masks
from longca.results.journal import CannotWrite, Journal
from longca.results.packing import compressed, packed_file, read_bytes, stored
from longca.results.reading import history
from longca.results.record import Environments, Record


class Merged(NamedTuple):
    added: int
    replaced: int
    kept: int  # records that OUT had already, or had better


def merge(out: str | Path, folders: Sequence[str | Path], packed: bool = False) -> Merged:
    """Adds the records of `folders` to `out`. Of two with one key the later counts, but a failure or a doubtful record never replaces a
    measurement. With `packed` the result is packed, and `out` may be a packed journal already."""
    best: dict[str, Record] = {}
    environments = {name: environment for folder in folders for name, environment in read_environments(folder).items()}
    for folder in folders:  # all are read before anything is written
        for record in history(folder):
            known = best.get(record.key)
            if known is None or known == record or _better(record, known, environments):
                best.pop(record.key, None)  # a later record also stands later: of those that measure the same, the last counts
                best[record.key] = record
    if packed:
        unpack(out)
    with Journal(out) as journal:
        for name, environment in environments.items():
            journal.add_environment(name, environment)
        for folder in folders:
            for entry in read_masks(folder).entries:
                journal.add_mask(entry)
        old = dict(journal.records)
        new = {key: record for key, record in best.items() if key not in old or _better(record, old[key], journal.environments)}
        for record in new.values():
            journal.add(record)
    if packed:
        pack(out)
    replaced = sum(key in old for key in new)
    return Merged(len(new) - replaced, replaced, len(best) - len(new))


def _better(new: Record, old: Record, environments: Environments) -> bool:
    return new != old and (_believed(new, environments) or not _believed(old, environments))


def _believed(record: Record, environments: Environments) -> bool:
    return record.ok and not doubt(record, environments.get(record.env))


def unpack(folder: str | Path) -> None:
    """Makes a packed journal one that can grow. Where a file is there both ways, as after a kill, the plain one counts, as for readers.
    The records come last: while they are packed, no run adds to the journal."""
    texts = {path: read_bytes(path) for name in (MASKS, RESULTS) if (path := Path(folder) / name)}
    for path, text in texts.items():  # damage was refused before anything changes
        try:
            if stored(path) != path:
                complete = path.with_name(f".{path.name}")
                complete.write_bytes(text)
                complete.rename(path)
            packed_file(path).unlink(missing_ok=True)
        except OSError as error:
            raise CannotWrite(f"cannot unpack {path}: {error.strerror}.") from error


def pack(folder: str | Path) -> None:
    """Compresses a finished journal in place: it can be read as before, but no run can add to it."""
    for name in (RESULTS, MASKS):
        path = Path(folder) / name
        try:
            packed_file(path).write_bytes(compressed(path.read_bytes()))
            path.unlink()
            (Path(folder) / LOCK).unlink(missing_ok=True)
        except OSError as error:
            raise CannotWrite(f"cannot pack {path}: {error.strerror}.") from error
