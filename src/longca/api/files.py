"""Writing what a user asked for."""

from __future__ import annotations

from pathlib import Path

from longca.errors import BadInput


def write_text(target: str | Path, text: str) -> Path:
    """Writes a file; a folder that is not there, or a full disk, is one sentence."""
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {target}: {error.strerror}; give another file.") from error
    return Path(target)
