"""The files of a journal: results.jsonl, masks.jsonl and env.json, packed or not, read line by line.

A process killed while it writes leaves a torn last line, which readers drop; any other damage is refused with file, line and field.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from longca.errors import BadInput
from longca.results.packing import DAMAGE, opened, packed_files, stored
from longca.results.record import Environment, MaskEntry, Record
from longca.results.schema import Damaged, LinesDecoder, MaskDecoder, RecordDecoder, decode_environments, lines_of

RESULTS, MASKS, ENVIRONMENTS, LOCK = "results.jsonl", "masks.jsonl", "env.json", ".lock"
TRANSFERS = "transfers.jsonl"  # beside a journal that cluster files are made from
TAIL = 1 << 16  # bytes of a file's end that are read at a time
BLOCK = 1 << 20  # bytes of lines that are decoded at a time

T = TypeVar("T")


@dataclass(frozen=True)
class Lines(Generic[T]):
    """The entries of a JSONL file, how many bytes they take, and how many bytes of a torn last line follow."""

    entries: list[T]
    whole: int
    torn: int


def read_results(folder: str | Path) -> Lines[Record]:
    return read_lines(Path(folder) / RESULTS, RecordDecoder())


def read_masks(folder: str | Path) -> Lines[MaskEntry]:
    return read_lines(Path(folder) / MASKS, MaskDecoder())


def read_environments(folder: str | Path) -> dict[str, Environment]:
    path = Path(folder) / ENVIRONMENTS
    if not path.exists():
        return {}
    try:
        return decode_environments(path.read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}.") from error
    except Damaged as damage:
        raise BadInput(f"{path} is damaged: {damage}; repair or delete it.") from damage


def read_lines(path: Path, decoder: LinesDecoder[T]) -> Lines[T]:
    """All whole lines; a torn tail is left out. The file is read in blocks of lines, so that its text never lies in memory beside its
    entries, and decoded block by block, which is faster than line by line; a block with damage is decoded again, to name the line."""
    entries: list[T] = []
    whole = torn = 0
    for block in read_blocks(path):
        end = block.rfind(b"\n") + 1
        lines, torn = block[:end], len(block) - end
        whole += end
        try:
            entries += decoder.block(lines)
        except Damaged:
            entries += _one_by_one(path, lines, len(entries), decoder)
    return Lines(entries, whole, torn)


def _one_by_one(path: Path, lines: bytes, before: int, decoder: LinesDecoder[T]) -> list[T]:
    """The entries of these lines, which come after so many others; raises BadInput with the number of a damaged one."""
    entries: list[T] = []
    for line in lines_of(lines):
        try:
            entries.append(decoder.line(line))
        except Damaged as damage:
            number = before + len(entries) + 1
            if not line.strip():
                raise BadInput(f"{path} line {number} is empty; delete that line, every other line is kept.") from damage
            raise BadInput(f"{path} line {number} is damaged: {damage}; repair or delete that line, every other line is kept.") from damage
    return entries


def read_blocks(path: Path) -> Iterator[bytes]:
    """The lines of a file, packed or not, many at a time; none where there is no file. The last one may lack its end."""
    file = stored(path)
    if not file.exists():
        return
    try:
        with opened(file) as lines:
            while block := lines.read(BLOCK):
                yield block + lines.readline()
    except (OSError, *DAMAGE) as error:
        told = getattr(error, "strerror", None)  # by the system; a library that unpacks tells what it expected
        raise BadInput(f"cannot read {file}: {told or 'it is damaged or incomplete; copy it again'}.") from error


def results_file(folder: Path) -> Path:
    """The file that holds a journal's records."""
    return stored(folder / RESULTS)


def torn_files(folders: Iterable[str | Path]) -> dict[Path, int]:
    """Files of journals that end in a torn line, with its size in bytes."""
    paths = [Path(folder) / name for folder in journals(folders) for name in (RESULTS, MASKS)]
    sizes = {path: _torn_bytes(path) for path in paths}
    return {path: size for path, size in sizes.items() if size}


def without_environments(folders: Iterable[str | Path]) -> list[Path]:
    """The paths of env.json that are missing beside the records of these journals."""
    return [folder / ENVIRONMENTS for folder in journals(folders) if results_file(folder).exists() and not (folder / ENVIRONMENTS).exists()]


def _torn_bytes(path: Path) -> int:
    """The size of a last line without its end. Of a packed file, which is written whole, 0."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            tail = b""
            while (start := file.tell()) and b"\n" not in tail:
                step = min(start, TAIL)
                file.seek(start - step)
                tail = file.read(step) + tail
                file.seek(start - step)
            return len(tail.rpartition(b"\n")[2])
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}.") from error


def journals_below(folder: Path) -> list[Path]:
    """Every folder at or below this one that holds a journal."""
    names = {RESULTS, *(path.name for path in packed_files(folder / RESULTS))}
    return sorted({path.parent for path in folder.rglob(f"{RESULTS}*") if path.name in names})


def journals(folders: Iterable[str | Path]) -> list[Path]:
    """The journals at or below each of these folders. A folder without any stays in the list, for its reader to refuse."""
    paths: dict[Path, None] = {}
    for folder in map(Path, folders):
        if folder.is_file():
            where = f", {folder.parent}/" if folder.name.startswith(RESULTS) else ""
            raise BadInput(f"{folder} is a file; give the folder of a journal{where}.")
        below = journals_below(folder)
        paths |= dict.fromkeys([folder] if folder in below else below or [folder])
    return list(paths)
