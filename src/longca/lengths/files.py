"""Files that users write: document lengths here, and what reading a length distribution shares with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec

from longca.errors import BadInput

Length = Annotated[int, msgspec.Meta(ge=1, le=1 << 61)]


def read_lengths(path: str | Path) -> list[int]:
    """Document lengths from a JSON list, or from text: numbers between commas, blanks or line ends."""
    path = Path(path)
    text = read_text(path, "document lengths")
    is_json = path.suffix == ".json" or text.lstrip().startswith("[")
    given: Any = None if is_json else text.replace(",", " ").split()
    try:
        lengths: list[int] = msgspec.json.decode(text, type=list[Length]) if given is None else converted(given, list[Length])
    except msgspec.DecodeError as error:
        raise BadInput(f"{path}: document lengths are whole numbers of 1 or more, but {problem(error, given)}.") from error
    if not lengths:
        raise BadInput(f"{path} holds no document lengths; give at least one.")
    return lengths


def read_text(path: Path, what: str) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise BadInput(f"cannot read {what} from {path}: {reason}.") from error


def converted(texts: Any, kind: Any) -> Any:
    """Texts as numbers of this kind."""
    return msgspec.convert(texts, type=kind, strict=False)


def problem(error: msgspec.DecodeError, given: Any) -> str:
    """What is wrong and where, from an error of msgspec: 'entry 2 is wrong (...)'. Texts that were `given` are quoted."""
    reason, at, place = str(error).partition(" - at ")
    indices = [int(index) for index in re.findall(r"\[(\d+)\]", place)]
    if not at:
        return f"the file is wrong ({reason})"
    if not indices:
        return f"an entry is wrong ({reason})"
    entry = f"entry {indices[0] + 1}"
    if given is not None:
        value = given[indices[0]] if len(indices) == 1 else given[indices[0]][indices[1]]
        entry += f" holds {value if len(str(value)) <= 40 else str(value)[:37] + '...'!r}"
        return f"{entry} ({reason})"
    return f"{entry} is wrong ({reason})"
