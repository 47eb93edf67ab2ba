"""Writing what a user asked for."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from tempfile import TemporaryFile

from longca.errors import BadInput


def write_text(target: str | Path, text: str) -> Path:
    """Writes a file; a folder that is not there, or a full disk, is one sentence."""
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _not_writable(target, error) from error
    return Path(target)


def refuse_unwritable(files: Iterable[str | Path], folder: str | Path | None = None) -> None:
    """Raises an error if one of these files, or a file in the folder, cannot be written. It changes no file and leaves none behind."""
    seen: set[str] = set()
    for target in files:
        try:
            is_kept = _try_to_write(Path(target))
        except OSError as error:
            raise _not_writable(target, error) from error
        path = os.path.realpath(target)
        if is_kept and path in seen:
            raise BadInput(f"{target} is named for two files; give each of them its own name.")
        seen.add(path)
    if folder is not None:
        _refuse_folder(folder, seen)


def _try_to_write(path: Path) -> bool:
    """Opens the file. Returns whether it keeps what is written; a pipe or a device is not opened, because that may wait or end a reader."""
    is_new = not path.exists()
    if not (is_new or path.is_file() or path.is_dir()):
        return False
    with path.open("ab"):
        pass
    if is_new:
        Path(os.path.realpath(path)).unlink()  # of a link the file, and not the link
    return True


def _refuse_folder(folder: str | Path, files: Collection[str]) -> None:
    """The folder need not exist; the nearest one above it must be writable then."""
    path = Path(os.path.realpath(folder))
    places = [path, *path.parents]
    if any(str(place) in files for place in places):
        raise BadInput(f"{folder} is named for a file, too; give another folder with --figures.")
    try:
        with TemporaryFile(dir=next(place for place in places if place.exists())):
            pass
    except OSError as error:
        raise BadInput(f"cannot write to {folder}: {error.strerror}; give another folder with --figures.") from error


def _not_writable(target: str | Path, error: OSError) -> BadInput:
    return BadInput(f"cannot write {target}: {error.strerror}; give another file.")
