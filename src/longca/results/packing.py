"""Packed files of journals (.xz): readers take them as the plain ones, and no run adds to them."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import IO

from longca.errors import BadInput

CHUNK, LONGEST_LINE = 1 << 22, 1 << 26  # bytes; the bands of a mask with 100,000 documents take a tenth of such a line


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
    if not file.is_file():  # a named pipe would hang
        raise BadInput(f"cannot read {file}: it is no plain file; give a folder that `longca run --out` wrote.")
    try:
        with file.open("rb") if file == path else lzma.open(file) as opened:
            return _bounded(opened, file)
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}.") from error
    except (EOFError, lzma.LZMAError) as error:
        raise BadInput(f"cannot read {file}: it is damaged or incomplete; copy it again.") from error


def _bounded(opened: IO[bytes], file: Path) -> bytes:
    """The text; refuses a line that no run writes before all of it is in memory: a small packed file may hold a very long one."""
    parts, line = [], 0
    while part := opened.read(CHUNK):
        first, last = part.find(b"\n"), part.rfind(b"\n")
        line = line + len(part) if first < 0 else len(part) - last - 1
        if line > LONGEST_LINE:
            raise BadInput(f"{file} has a line of more than {LONGEST_LINE >> 20} MiB, which is no record; restore the file.")
        parts.append(part)
    return b"".join(parts)


def compressed(text: bytes) -> bytes:
    return lzma.compress(text, preset=lzma.PRESET_DEFAULT | lzma.PRESET_EXTREME)
