"""Writing what a user asked for."""

from __future__ import annotations

from pathlib import Path

from longca.errors import BadInput


def write_text(target: str, text: str, remark: str = "") -> None:
    """Writes a file and says so; a folder that is not there, or a full disk, is one sentence."""
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {target}: {error.strerror}; give another file.") from error
    print(f"wrote {target}{remark}")
