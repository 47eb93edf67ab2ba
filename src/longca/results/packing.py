"""Packed files of journals (.xz): readers take them as the plain ones, and no run adds to them."""

from __future__ import annotations

from pathlib import Path

from longca.errors import BadInput, Unavailable

try:
    import lzma
except ImportError:  # a Python that was built without liblzma; plain journals need none
    lzma = None  # type: ignore[assignment]


def packed_file(path: Path) -> Path:
    """The name that a file has when it is packed."""
    return path.with_name(f"{path.name}.xz")


def stored(path: Path) -> Path:
    """The plain file if it exists, else the packed one if that exists, else the plain name."""
    packed = packed_file(path)
    return packed if packed.exists() and not path.exists() else path


def read_bytes(path: Path) -> bytes:
    """The text of a file, packed or not; empty where there is none."""
    file = stored(path)
    if not file.exists():
        return b""
    try:
        return file.read_bytes() if file == path else _decompressed(file)
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}.") from error


def compressed(text: bytes) -> bytes:
    _need_lzma()
    return lzma.compress(text, preset=lzma.PRESET_DEFAULT | lzma.PRESET_EXTREME)


def _decompressed(file: Path) -> bytes:
    _need_lzma()
    try:
        return lzma.decompress(file.read_bytes())
    except lzma.LZMAError as error:
        raise BadInput(f"cannot read {file}: it is damaged or incomplete; copy it again.") from error


def _need_lzma() -> None:
    if lzma is None:
        raise Unavailable("packed journals (.xz) need Python's module lzma; use a Python that was built with liblzma.")
