"""The journal: DIR/results.jsonl (one JSON object per cell), DIR/masks.jsonl (each mask once), DIR/env.json (where it was measured).

A record is on the disk before the next cell begins. A process killed while it writes leaves a torn last line, which is dropped and
said; a damaged line in the middle is never guessed at.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import zlib
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longca.bench.cell import SCHEMA
from longca.errors import BadInput, LongcaError
from longca.kernels.block_selection import Heads
from longca.masks import AnyMask, BlockMask
from longca.masks.selection import RULES

Record = dict[str, Any]
RESULTS, MASKS, ENVIRONMENTS, LOCK = "results.jsonl", "masks.jsonl", "env.json", ".lock"
NEEDED = (  # what readers rely on in every record
    *("kernel", "variant", "mask", "params", "mask_digest", "seed", "seqlen", "heads_q", "heads_kv", "head_dim", "head_dim_v", "dtype"),
    *("deterministic", "grad", "level", "pass", "status", "reason", "check", "ms", "tflops", "env"),
)


class CannotWrite(LongcaError):
    """The disk is full or may not be written; what was measured before is kept."""


@dataclass(frozen=True)
class Lines:
    """The entries of a JSONL file, how many bytes they take, and how many bytes of a torn last line follow."""

    entries: list[Record]
    whole: int
    torn: int


def read_lines(path: Path) -> Lines:
    """All whole lines; a torn tail is left out, anything else that is no JSON object is refused."""
    data = _bytes(path)
    whole = data.rfind(b"\n") + 1
    entries = []
    for number, line in enumerate(data[:whole].splitlines(), 1):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            raise BadInput(f"{path} is damaged in line {number}; repair or delete that line, every other line is kept.")
        entries.append(entry)
    return Lines(entries, whole, len(data) - whole)


def _bytes(path: Path) -> bytes:
    """What a file holds, packed or not; nothing where there is none."""
    packed = path.with_name(path.name + ".gz")
    try:
        return path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes()) if packed.exists() else b""
    except (OSError, EOFError, zlib.error) as error:
        file = path if path.exists() else packed
        raise BadInput(f"cannot read {file}: {getattr(error, 'strerror', None) or str(error).rstrip('.')}.") from error


def torn_lines(folder: str | Path) -> dict[Path, int]:
    """Files of a journal that end in a torn line, which readers leave out, and of how many bytes."""
    sizes = {path: len(_bytes(path).rpartition(b"\n")[2]) for path in (Path(folder) / RESULTS, Path(folder) / MASKS)}
    return {path: size for path, size in sizes.items() if size}


def load(folder: str | Path) -> list[Record]:
    """The records of a journal, the last one of each key, in the order of their first appearance."""
    return list({entry["key"]: entry for entry in history(folder)}.values())


def history(folder: str | Path) -> list[Record]:
    """All that was written to a journal, in that order."""
    path = Path(folder) / RESULTS
    if not path.exists() and not path.with_name(RESULTS + ".gz").exists():
        raise BadInput(f"there is no journal in {folder} ({RESULTS}); give a folder that `longca run --out` wrote.")
    return _sound(read_lines(path).entries, path)


def _sound(entries: list[Record], path: Path) -> list[Record]:
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry.get("key"), str) or not isinstance(entry.get("schema"), int):
            raise BadInput(f"{path} is damaged in line {number}: a record needs a key and a schema; repair or delete that line.")
        if entry["schema"] > SCHEMA:
            raise BadInput(f"{path} line {number} has schema {entry['schema']}, this longca knows up to {SCHEMA}; install a newer longca.")
        missing = [name for name in NEEDED if name not in entry]
        if missing:
            raise BadInput(f"{path} is damaged in line {number}: the record has no {', '.join(missing)}; repair or delete that line.")
    return entries


def load_environments(folder: str | Path) -> dict[str, Record]:
    path = Path(folder) / ENVIRONMENTS
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise BadInput(f"{path} is not JSON: {error}.") from error
    if not isinstance(found, dict) or not all(isinstance(facts, dict) for facts in found.values()):
        raise BadInput(f"{path} is damaged: it must hold an object with an object for each environment; repair or delete it.")
    return found


def load_masks(folder: str | Path) -> list[Record]:
    """Bands and document lengths of every mask, in the order they were met."""
    path = Path(folder) / MASKS
    return _sound_masks(read_lines(path).entries, path)


def _sound_masks(entries: list[Record], path: Path) -> list[Record]:
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry.get("digest"), str):
            raise BadInput(f"{path} is damaged in line {number}: a mask needs a digest; repair or delete that line.")
    return entries


def _identity(entry: Mapping[str, Any]) -> str:
    """Masks that show the same may have been made otherwise: by another name, of other documents."""
    return json.dumps([entry.get(name) for name in ("digest", "mask", "documents")])


class Appender:
    """Adds lines to a JSONL file, each on the disk when `add` returns; what a failed write left behind is taken back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = read_lines(path)
        self.entries, self.torn = lines.entries, lines.torn
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            if lines.torn:
                os.ftruncate(self._file, lines.whole)
        except OSError as error:
            raise CannotWrite(f"cannot write {path}: {error.strerror}; give another folder.") from error

    def add(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode() + b"\n"
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

    def close(self) -> None:
        os.close(self._file)


class Journal:
    """A journal opened for writing by one process; a second one is refused."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise CannotWrite(f"cannot write to {self.folder}: {error.strerror}; give another folder.") from error
        with ExitStack() as opened:  # closes all that was opened where the journal is refused
            opened.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise BadInput(f"another run is writing to {self.folder}; wait for it, or give another folder.") from error
            if (self.folder / (RESULTS + ".gz")).exists():
                raise BadInput(f"{self.folder} holds a packed journal ({RESULTS}.gz), which cannot grow; give another folder.")
            self._results = opened.enter_context(closing(Appender(self.folder / RESULTS)))
            self._masks = opened.enter_context(closing(Appender(self.folder / MASKS)))
            self.records = {entry["key"]: entry for entry in _sound(self._results.entries, self.folder / RESULTS)}
            self.history = tuple(self._results.entries)  # all that was there before, in the order it was written
            self.torn = self._results.torn
            self._known_masks = {_identity(entry) for entry in _sound_masks(self._masks.entries, self.folder / MASKS)}
            self._environments = load_environments(self.folder)
            self._opened = opened.pop_all()

    def add(self, record: Record) -> None:
        self._results.add(record)
        self.records[record["key"]] = record

    def written(self) -> dict[str, Record]:
        """The records that stand on the disk. A signal may come between writing one and knowing that it was written."""
        return {entry["key"]: entry for entry in read_lines(self._results.path).entries}

    def add_mask(self, entry: Mapping[str, Any]) -> None:
        """A mask as `describe_mask` tells it, unless it is there already."""
        if _identity(entry) not in self._known_masks:
            self._masks.add(entry)
            self._known_masks.add(_identity(entry))

    def add_environment(self, name: str, facts: Record) -> None:
        if name in self._environments:
            return
        self._environments[name] = facts
        path = self.folder / ENVIRONMENTS
        fresh = path.with_suffix(".new")
        try:
            with fresh.open("w") as file:
                json.dump(self._environments, file, indent=1, sort_keys=True)
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


def describe_mask(mask: AnyMask, token: Heads | None = None) -> Record:
    """An entry of masks.jsonl. `token` is the shape of q and k, where these selected the blocks."""
    bands = None if isinstance(mask, BlockMask) else mask.table
    documents = None if mask.documents is None else list(mask.documents)
    about = {"digest": mask.digest, "mask": mask.name, "seed": mask.seed, "params": mask.params, "documents": documents}
    if isinstance(mask, BlockMask):
        about["source"] = mask.source
        if token is not None and mask.source in RULES:
            about |= {"heads_q": token.q, "heads_kv": token.kv, "head_dim": token.size}
    return about | {"seqlen_q": mask.seqlen_q, "seqlen_k": mask.seqlen_k, "area": mask.area, "bands": bands}
