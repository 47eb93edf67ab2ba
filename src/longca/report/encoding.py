"""Columns of the page's data: each value once, and per record its number; numbers in four digits."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Hashable, Sequence
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
    """The different values, and the number of each record's value as little-endian 16 (or 32) bits in base64."""
    if any(type(value) is float for value in values):
        return _floats(values)
    numbers: dict[Hashable, int] = {}
    different: list[Any] = []
    indexes: list[int] = []
    for value in values:
        key = tuple(value) if isinstance(value, list) else value
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(different)
            different.append(value)
        indexes.append(number)
    return different, _packed(np.array(indexes), len(different))


def _floats(values: Sequence[float | None]) -> tuple[list[Any], str]:
    array = np.array(values, dtype=float)  # None becomes nan
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(np.abs(array))))
        short = np.where(np.isfinite(array) & (array != 0), np.round(array * scale) / scale, array)
    different, indexes = np.unique(short, return_inverse=True)
    return [rounded(value) for value in different.tolist()], _packed(indexes, len(different))


def _packed(indexes: Any, different: int) -> str:
    return b64encode(indexes.astype("<u2" if different <= 1 << 16 else "<u4").tobytes()).decode()
