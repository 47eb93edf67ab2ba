"""Packed files of journals: .xz, which is written, and .gz of older versions."""

from __future__ import annotations

import gzip
import zlib
from io import BufferedIOBase
from pathlib import Path

from longca.errors import Unavailable

try:
    import lzma
except ImportError:  # a Python that was built without liblzma; plain journals need none
    lzma = None  # type: ignore[assignment]

ENDS = (".xz", ".gz")
DAMAGE = (EOFError, zlib.error, *([lzma.LZMAError] if lzma else []))  # what reading a damaged file raises, besides OSError


def packed_files(path: Path) -> list[Path]:
    """The names that a file may have when it is packed; the first is the one that is written."""
    return [path.with_name(path.name + end) for end in ENDS]


def stored(path: Path) -> Path:
    """The plain file if it exists, else the packed one, else the plain name."""
    return next((packed for packed in packed_files(path) if packed.exists() and not path.exists()), path)


def opened(path: Path) -> BufferedIOBase:
    """A file for reading, packed or not."""
    if path.suffix == ".gz":
        return gzip.open(path)
    if path.suffix != ".xz":
        return path.open("rb")
    _need_lzma()
    return lzma.LZMAFile(path)


def compressed(text: bytes) -> bytes:
    _need_lzma()
    return lzma.compress(text, preset=lzma.PRESET_DEFAULT | lzma.PRESET_EXTREME)


def _need_lzma() -> None:
    if lzma is None:
        raise Unavailable("packed journals (.xz) need Python's module lzma; use a Python that was built with liblzma.")
