"""Writing what a user asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from longca.errors import BadInput


def refuse_no_png(path: str | Path | None) -> None:
    if path is not None and Path(path).suffix.lower() != ".png":
        raise BadInput(f"--png writes a PNG file, so its name must end in .png, not {Path(path).name!r}.")


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write to {folder}: {error.strerror}; give another folder.") from error


def write_text(target: str | Path, text: str) -> Path:
    return write_file(target, lambda path: path.write_text(text, encoding="utf-8"))


def write_file(target: str | Path, write: Callable[[Path], object]) -> Path:
    """Writes a file, beside the old one until it is complete; a folder that is not there, or a full disk, is one sentence."""
    plain = Path(target).is_file() or not Path(target).exists()  # a pipe or a device is written as it is
    path = Path(target).resolve() if plain else Path(target)
    fresh = path.with_name(f".longca-{os.getpid()}.new") if plain else path
    try:
        write(fresh)
        if plain:
            fresh.replace(path)
    except OSError as error:
        if plain:
            with suppress(OSError):
                fresh.unlink()
        raise BadInput(f"cannot write {target}: {error.strerror}; give another file.") from error
    return Path(target)
