"""The journal opened for writing: each record is on the disk before the next cell begins; a run on an existing journal resumes it."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from longca.errors import BadInput, LongcaError
from longca.results.files import ENVIRONMENTS, LOCK, MASKS, RESULTS, Lines, by_name, read_environments, read_masks, read_results
from longca.results.packing import packed_file
from longca.results.record import Environment, MaskEntry, Record
from longca.results.schema import encode

T = TypeVar("T", bound=msgspec.Struct)


class CannotWrite(LongcaError):
    """The disk is full or may not be written; what was measured before is kept."""


class Appender(Generic[T]):
    """Adds lines to a JSONL file, each on the disk when `add` returns; what a failed write left behind is taken back."""

    def __init__(self, path: Path, lines: Lines[T]) -> None:
        """Opens the file, which holds these lines, and drops a torn last one."""
        self.path = path
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            if lines.torn:
                os.ftruncate(self._file, lines.whole)
        except OSError as error:
            raise CannotWrite(f"cannot write {path}: {error.strerror}; give another folder.") from error

    def add(self, entry: T) -> None:
        self.refuse_removed()
        line = encode(entry) + b"\n"
        before = os.fstat(self._file).st_size
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file, line[written:])
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, before)
            advice = "what was measured before is kept: make room and run again to go on"
            raise CannotWrite(f"cannot write {self.path}: {error.strerror}; {advice}.") from error

    def refuse_removed(self) -> None:
        if os.fstat(self._file).st_nlink == 0:
            raise CannotWrite(f"{self.path} was removed during the run, and what was measured with it; run again.")

    def close(self) -> None:
        os.close(self._file)


def mask_identity(entry: MaskEntry) -> tuple[str, str, tuple[int, ...] | None]:
    """Masks that show the same may have been made otherwise: by another name, of other documents."""
    return entry.digest, entry.mask, None if entry.documents is None else tuple(entry.documents)


class Journal:
    """A journal opened for writing by one process; a second one is refused. `records` holds the last record of each key."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite(f"cannot write to {self.folder}: {error.strerror}; give another folder.") from error
        for packed in (packed_file(self.folder / name) for name in (RESULTS, MASKS)):
            if packed.exists():
                advice = f"give another folder, such as one that `longca merge FOLDER {self.folder}` made"
                raise BadInput(f"{self.folder} holds a packed journal ({packed.name}), which no run can add to; {advice}.")
        with ExitStack() as opened:  # closes everything where the journal is refused
            opened.callback(os.close, self._locked())
            results, known_masks = read_results(self.folder), read_masks(self.folder)
            self._results = opened.enter_context(closing(Appender(self.folder / RESULTS, results)))
            self._masks = opened.enter_context(closing(Appender(self.folder / MASKS, known_masks)))
            self.history = tuple(results.entries)  # everything that was there before, in the order it was written
            self.records = {record.key: record for record in self.history}
            self.torn = results.torn
            self._known_masks = set(map(mask_identity, known_masks.entries))
            self.masks = by_name(known_masks.entries)
            self.environments = read_environments(self.folder)
            self._opened = opened.pop_all()

    def _locked(self) -> int:
        """The lock's open file; raises BadInput where another process holds it."""
        try:
            lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise CannotWrite(f"cannot write to {self.folder}: {error.strerror}; give another folder.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise BadInput(f"another run is writing to {self.folder}; wait for it, or give another folder.") from error
        return lock

    def add(self, record: Record) -> None:
        self._results.add(record)
        self.records[record.key] = record

    def written(self) -> dict[str, Record]:
        """The records on the disk by key. A signal may come between writing one and counting it."""
        self._results.refuse_removed()
        return {record.key: record for record in read_results(self.folder).entries}

    def add_mask(self, entry: MaskEntry) -> None:
        """Writes a mask unless it is there already."""
        if mask_identity(entry) not in self._known_masks:
            self._masks.add(entry)
            self._known_masks.add(mask_identity(entry))
            self.masks[entry.digest, entry.mask] = entry

    def add_environment(self, name: str, environment: Environment) -> None:
        if name in self.environments:
            return
        self.environments[name] = environment
        path = self.folder / ENVIRONMENTS
        fresh = path.with_suffix(".new")
        try:
            with fresh.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(self.environments, order="sorted"), indent=1))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except OSError as error:
            raise CannotWrite(f"cannot write {path}: {error.strerror}; make room, or give another folder.") from error

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
