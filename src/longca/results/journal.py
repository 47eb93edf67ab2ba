"""The journal opened for writing: each record is on the disk before the next cell begins; a run on an existing journal resumes it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from longca.errors import BadInput, LongcaError
from longca.results.files import ENVIRONMENTS, LOCK, MASKS, RESULTS, Lines, read_environments, read_masks, read_results
from longca.results.packing import packed_file
from longca.results.record import Environment, MaskEntry, Record
from longca.results.schema import encode

T = TypeVar("T", bound=msgspec.Struct)


class CannotWrite(LongcaError):
    """The disk is full or may not be written; what was measured before is kept."""


class Appender(Generic[T]):
    """Adds lines to a JSONL file, each on the disk when `add` returns; what a failed write left behind is taken back.

    It knows all lines. A file that was deleted, replaced or cut while it was open gets back the lines that it lacks.
    """

    def __init__(self, path: Path, read: Callable[[], Lines[T]]) -> None:
        self.path, self._read, self._file = path, read, -1
        known = self._open()
        self.known: list[T] = list(known.entries)  # in the order they were written
        self.torn = known.torn

    def _open(self) -> Lines[T]:
        """Opens the file, drops a torn last line, and returns what it holds."""
        lines = self._read()
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            if lines.torn:
                os.ftruncate(self._file, lines.whole)
        except OSError as error:
            raise CannotWrite(f"cannot write {self.path}: {error.strerror}; give another folder.") from error
        self._size = lines.whole
        return lines

    def restore(self) -> bool:
        """Writes again what is missing in the file; returns whether something was."""
        if self._intact():
            return False
        self.close()
        present = {encode(entry) for entry in self._open().entries}
        for entry in self.known:
            if encode(entry) not in present:
                self._write(entry)
        return True

    def _intact(self) -> bool:
        return _same_file(self._file, self.path) and os.fstat(self._file).st_size >= self._size

    def add(self, entry: T) -> None:
        self._write(entry)
        self.known.append(entry)

    def _write(self, entry: T) -> None:
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
        self._size = before + len(line)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def mask_identity(entry: MaskEntry) -> tuple[str, str, tuple[int, ...] | None]:
    """Masks that show the same may have been made otherwise: by another name, of other documents."""
    return entry.digest, entry.mask, None if entry.documents is None else tuple(entry.documents)


class Journal:
    """A journal opened for writing by one process; a second one is refused. `records` holds the last record of each key.

    Files that somebody deletes during the run are written again, and `say` tells it; a folder that is gone ends the run.
    """

    def __init__(self, folder: str | Path, say: Callable[[str], None] = lambda text: None) -> None:
        self.folder, self.say = Path(folder), say
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite(f"cannot write to {self.folder}: {error.strerror}; give another folder.") from error
        for packed in (packed_file(self.folder / name) for name in (RESULTS, MASKS)):
            if packed.exists():
                advice = f"give another folder, such as one that `longca merge FOLDER {self.folder}` made"
                raise BadInput(f"{self.folder} holds a packed journal ({packed.name}), which no run can add to; {advice}.")
        with ExitStack() as opened:  # closes everything where the journal is refused
            self._lock = -1
            opened.callback(lambda: os.close(self._lock) if self._lock >= 0 else None)
            self._take_lock()
            self._results = opened.enter_context(closing(Appender(self.folder / RESULTS, lambda: read_results(self.folder))))
            self._masks = opened.enter_context(closing(Appender(self.folder / MASKS, lambda: read_masks(self.folder))))
            self.history = tuple(self._results.known)  # everything that was there before, in the order it was written
            self.records = {record.key: record for record in self.history}
            self.torn = self._results.torn
            self._known_masks = {mask_identity(entry) for entry in self._masks.known}
            self.environments = read_environments(self.folder)
            self._opened = opened.pop_all()

    def _take_lock(self) -> None:
        try:
            lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise CannotWrite(f"cannot write to {self.folder}: {error.strerror}; give another folder.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise BadInput(f"another run is writing to {self.folder}; wait for it, or give another folder.") from error
        self._lock = lock

    def restore(self) -> None:
        """Writes again what was deleted from the folder since it was opened; raises CannotWrite where the folder itself is gone."""
        if not self.folder.is_dir():
            raise CannotWrite(f"the folder {self.folder} was removed during the run, and what was measured with it; run again.")
        if not _same_file(self._lock, self.folder / LOCK):
            os.close(self._lock)
            self._lock = -1
            self._take_lock()
        restored = [appender.path.name for appender in (self._results, self._masks) if appender.restore()]
        if self.environments and not (self.folder / ENVIRONMENTS).exists():
            self._write_environments()
            restored.append(ENVIRONMENTS)
        if restored:
            self.say(f"{' and '.join(restored)} in {self.folder} changed or vanished during the run; what was missing is written again.")

    def add(self, record: Record) -> None:
        self.restore()
        self._results.add(record)
        self.records[record.key] = record

    def written(self) -> dict[str, Record]:
        """The records on the disk by key. A signal may come between writing one and counting it."""
        self.restore()
        return {record.key: record for record in read_results(self.folder).entries}

    def add_mask(self, entry: MaskEntry) -> None:
        """Writes a mask unless it is there already."""
        if mask_identity(entry) not in self._known_masks:
            self._masks.add(entry)
            self._known_masks.add(mask_identity(entry))

    def add_environment(self, name: str, environment: Environment) -> None:
        if name not in self.environments:
            self.environments[name] = environment
            self._write_environments()

    def _write_environments(self) -> None:
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


def _same_file(opened: int, path: Path) -> bool:
    """Whether an open file still is the one at this path."""
    own = os.fstat(opened)
    try:
        there = path.stat()
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)
