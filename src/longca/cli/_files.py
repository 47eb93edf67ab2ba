"""Writing what a user asked for."""

from __future__ import annotations


def write_text(target: str, text: str, remark: str = "") -> None:
    """Writes a file and says so."""
    from longca.api.files import write_text as write

    write(target, text)
    print(f"wrote {target}{remark}")
