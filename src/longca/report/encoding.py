"""Columns of the page's data: each value once, and per record its number; numbers in four digits."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from math import isfinite
from typing import Any

import msgspec
import numpy as np

DIGITS = 4
# what could end a script element, or a line of JavaScript, must not stand in the data as it is
ESCAPES = {character.encode(): f"\\u{ord(character):04x}".encode() for character in "<>&\u2028\u2029"}


def embed(data: Any) -> str:
    """JSON that can stand inside a script element, whatever the strings in it say."""
    text = msgspec.json.encode(data)
    for character, escape in ESCAPES.items():
        text = text.replace(character, escape)
    return text.decode()


def rounded(value: float | None) -> float | None:
    """The value in as many digits as the page shows; None where it is not finite."""
    return None if value is None or not isfinite(value) else float(f"{value:.{DIGITS}g}")


def column(values: Sequence[Any]) -> tuple[list[Any], str]:
    """The different values, and the number of each record's value in base64: in 8 bits, or in as many as are needed (16 or 32, the lowest
    byte first); empty where there is but one value."""
    if float in set(map(type, values)):
        return _floats(values)
    keys = [tuple(value) if isinstance(value, list) else value for value in values] if list in set(map(type, values)) else values
    numbers = {value: number for number, value in enumerate(dict.fromkeys(keys))}
    return list(numbers), _packed(np.fromiter(map(numbers.__getitem__, keys), dtype=np.int64, count=len(keys)), len(numbers))


def _floats(values: Sequence[float | None]) -> tuple[list[Any], str]:
    array = np.array(values, dtype=float)  # None becomes nan
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.abs(array))))
        short = np.where(np.isfinite(array) & (array != 0), np.round(array * scale) / scale, array)
    different, indexes = np.unique(short, return_inverse=True)
    return [rounded(value) for value in different.tolist()], _packed(indexes, len(different))


def _packed(indexes: Any, different: int) -> str:
    if different == 1:
        return ""
    return b64encode(indexes.astype("u1" if different <= 1 << 8 else "<u2" if different <= 1 << 16 else "<u4").tobytes()).decode()
