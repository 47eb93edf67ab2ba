"""Joining journals of several machines or shards, and packing a finished one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from longca.results.doubts import doubt, without_doubtful
from longca.results.files import LOCK, MASKS, RESULTS, by_name, read_environments, read_masks
from longca.results.journal import CannotWrite, Journal
from longca.results.packing import compressed, packed_file, read_bytes, stored
from longca.results.reading import history
from longca.results.record import Environment, MaskEntry, Record


class Merged(NamedTuple):
    added: int
    replaced: int
    kept: int  # records that OUT had already, or had better


def merge(out: str | Path, folders: Sequence[str | Path], packed: bool = False) -> Merged:
    """Adds the records of `folders` to `out`. Of two with one key the later counts, but a failure or a doubtful record never replaces a
    measurement. With `packed` the result is packed, and `out` may be a packed journal already."""
    best: dict[str, tuple[Record, bool]] = {}  # by key, with whether it is believed
    environments, masks = dict[str, Environment](), list[MaskEntry]()
    for folder in folders:  # all are read before anything is written
        own, entries = read_environments(folder), read_masks(folder).entries
        named = by_name(entries)
        for record in history(folder):
            known, believed = best.get(record.key), record.ok and not doubt(record, own, named)
            if known is None or known[0] == record or believed or not known[1]:
                best.pop(record.key, None)  # a later record also stands later: of those that measure the same, the last counts
                best[record.key] = record, believed
        environments |= own
        masks += entries
    if packed:
        unpack(out)
    with Journal(out) as journal:
        for name, environment in environments.items():
            journal.add_environment(name, environment)
        for entry in masks:
            journal.add_mask(entry)
        old = dict(journal.records)
        counting = {one.key for one in without_doubtful(old.values(), journal.environments, journal.masks) if one.ok}
        new = [
            record
            for key, (record, believed) in best.items()
            if key not in old or (record != old[key] and (believed or key not in counting))
        ]
        for record in new:
            journal.add(record)
    if packed:
        pack(out)
    replaced = sum(record.key in old for record in new)
    return Merged(len(new) - replaced, replaced, len(best) - len(new))


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
