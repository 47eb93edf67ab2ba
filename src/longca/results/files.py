"""The files of a journal: results.jsonl, masks.jsonl and env.json, packed or not, read line by line.

A process killed while it writes leaves a torn last line, which readers drop; any other damage is refused with file, line and field.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from longca.errors import BadInput
from longca.results.record import Environment, MaskEntry, Record
from longca.results.schema import Damaged, decode_environments, decode_mask, decode_record

RESULTS, MASKS, ENVIRONMENTS, LOCK = "results.jsonl", "masks.jsonl", "env.json", ".lock"
PACKED = ".gz"

T = TypeVar("T")


@dataclass(frozen=True)
class Lines(Generic[T]):
    """The entries of a JSONL file, how many bytes they take, and how many bytes of a torn last line follow."""

    entries: list[T]
    whole: int
    torn: int


def read_results(folder: str | Path) -> Lines[Record]:
    return read_lines(Path(folder) / RESULTS, decode_record)


def read_masks(folder: str | Path) -> Lines[MaskEntry]:
    return read_lines(Path(folder) / MASKS, decode_mask)


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


def read_lines(path: Path, decode: Callable[[bytes], T]) -> Lines[T]:
    """All whole lines; a torn tail is left out."""
    data = read_bytes(path)
    whole = data.rfind(b"\n") + 1
    entries: list[T] = []
    for number, line in enumerate(data[:whole].split(b"\n")[:-1], 1):
        try:
            entries.append(decode(line))
        except Damaged as damage:
            raise BadInput(f"{path} line {number} is damaged: {damage}; repair or delete that line, every other line is kept.") from damage
    return Lines(entries, whole, len(data) - whole)


def read_bytes(path: Path) -> bytes:
    """The content of a file, packed or not; empty where there is none."""
    packed = path.with_name(path.name + PACKED)
    try:
        return path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes()) if packed.exists() else b""
    except (OSError, EOFError, zlib.error) as error:
        file = path if path.exists() else packed
        raise BadInput(f"cannot read {file}: {getattr(error, 'strerror', None) or str(error).rstrip('.')}.") from error


def results_file(folder: Path) -> Path:
    """The file that holds a journal's records."""
    plain = folder / RESULTS
    return plain if plain.exists() else plain.with_name(RESULTS + PACKED)


def torn_files(folders: Iterable[str | Path]) -> dict[Path, int]:
    """Files of journals that end in a torn line, with its size in bytes."""
    paths = [Path(folder) / name for folder in journals(folders) for name in (RESULTS, MASKS)]
    sizes = {path: len(read_bytes(path).rpartition(b"\n")[2]) for path in paths}
    return {path: size for path, size in sizes.items() if size}


def journals_below(folder: Path) -> list[Path]:
    """Every folder at or below this one that holds a journal."""
    return sorted({path.parent for path in folder.rglob(f"{RESULTS}*") if path.name in (RESULTS, RESULTS + PACKED)})


def journals(folders: Iterable[str | Path]) -> list[Path]:
    """The journals at or below each of these folders. A folder without any stays in the list, for its reader to refuse."""
    paths: dict[Path, None] = {}
    for folder in map(Path, folders):
        below = journals_below(folder)
        paths |= dict.fromkeys([folder] if folder in below else below or [folder])
    return list(paths)
