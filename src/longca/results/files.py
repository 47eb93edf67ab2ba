"""The files of a journal: results.jsonl, masks.jsonl and env.json, packed or not, read line by line.

A process killed while it writes leaves a torn last line, which readers drop; any other damage is refused with file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from longca.errors import BadInput
from longca.results.packing import packed_file, read_bytes, stored
from longca.results.record import Environment, MaskEntry, Record
from longca.results.schema import Damaged, Newer, decode_environments, decode_mask, decode_record

RESULTS, MASKS, ENVIRONMENTS, LOCK = "results.jsonl", "masks.jsonl", "env.json", ".lock"
TRANSFERS = "transfers.jsonl"  # beside a journal that cluster files are made from
PACKAGE = Path(__file__).parents[1]
SHIPPED = (PACKAGE / "shipped", PACKAGE.parents[1] / "results")  # results that come with LongCA: installed; in a source checkout

T = TypeVar("T")


@dataclass(frozen=True)
class Lines(Generic[T]):
    """The entries of a JSONL file, how many bytes they take, and how many bytes of a torn last line follow."""

    entries: list[T]
    whole: int
    torn: int


def read_results(folder: str | Path) -> Lines[Record]:
    return _read_lines(Path(folder) / RESULTS, decode_record)


def read_masks(folder: str | Path) -> Lines[MaskEntry]:
    return _read_lines(Path(folder) / MASKS, decode_mask)


def by_name(entries: Iterable[MaskEntry]) -> dict[tuple[str, str], MaskEntry]:
    """Masks by digest and name."""
    return {(entry.digest, entry.mask): entry for entry in entries}


def read_environments(folder: str | Path) -> dict[str, Environment]:
    path = Path(folder) / ENVIRONMENTS
    if not path.exists():
        return {}
    try:
        return decode_environments(read_bytes(path))
    except Damaged as damage:
        raise BadInput(f"{path} is damaged: {damage}; repair or delete it.") from damage


def _read_lines(path: Path, decode: Callable[[bytes], T]) -> Lines[T]:
    """All whole lines; a torn last line, which has no end, is left out."""
    text = read_bytes(path)
    entries: list[T] = []
    start, number = 0, 0
    while (end := text.find(b"\n", start)) >= 0:
        line, start, number = text[start:end], end + 1, number + 1
        try:
            entries.append(decode(line))
        except Newer as newer:
            raise BadInput(f"{path} line {number} {newer}") from newer
        except Damaged as damage:
            raise BadInput(f"{path} line {number} is damaged: {damage}; repair or delete that line, every other line is kept.") from damage
    return Lines(entries, start, len(text) - start)


def results_file(folder: Path) -> Path:
    """The file that holds a journal's records."""
    return stored(folder / RESULTS)


def torn_files(folder: Path) -> dict[Path, int]:
    """The files of a journal that end in a torn line, with its size in bytes; a packed file is written whole."""
    sizes = {path: len(read_bytes(path).rpartition(b"\n")[2]) for name in (RESULTS, MASKS) if (path := folder / name).exists()}
    return {path: size for path, size in sizes.items() if size}


def journals_below(folder: Path) -> list[Path]:
    """Every folder at or below this one that holds a journal."""
    names = {RESULTS, packed_file(Path(RESULTS)).name}
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
