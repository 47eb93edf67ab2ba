"""A user's own document lengths, from a file."""

from __future__ import annotations

import json
from pathlib import Path

from longca.errors import BadInput


def read_lengths(path: str | Path) -> list[int]:
    """Document lengths from a JSON list, or from text: numbers between commas, blanks or line ends."""
    path = Path(path)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not a text file"
        raise BadInput(f"cannot read document lengths from {path}: {why}.") from error
    try:
        entries = json.loads(text) if path.suffix == ".json" else text.replace(",", " ").split()
    except ValueError as error:
        raise BadInput(f"{path} is not JSON: {error}.") from error
    if not isinstance(entries, list) or not entries:
        raise BadInput(f"{path} holds no list of document lengths.")
    lengths = []
    for entry in entries:
        if isinstance(entry, (bool, float)) or not str(entry).strip().isdecimal() or not 1 <= len(str(entry)) <= 18 or int(entry) < 1:
            raise BadInput(f"{path} holds {entry!r} where a document length (a whole number of 1 or more) should be.")
        lengths.append(int(entry))
    return lengths
