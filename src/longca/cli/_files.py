"""Writes files that the user asked for."""

from __future__ import annotations


def write_text(target: str, text: str, remark: str = "") -> None:
    """Writes a file and prints its name."""
    from longca.api.files import write_text as write

    write(target, text)
    print(f"wrote {target}{remark}")
