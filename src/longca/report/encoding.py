"""Columns of the page's data: each value once, and per record its number; numbers in four digits."""

from __future__ import annotations

from base64 import b64encode
from collections import defaultdict
from collections.abc import Sequence
from math import isfinite, nan
from typing import Any

import msgspec
import numpy as np

from longca.text import printable

DIGITS = 4
FORMAT = f"%.{DIGITS}g"
POWERS = 10.0 ** np.concatenate([np.arange(309), np.arange(-330, 0)])  # POWERS[n] is 10 to the power of n, which may be negative
EXACT = 22  # the largest power of ten that is exact as a float
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
    return None if value is None or not isfinite(value) else float(FORMAT % value)


def column(values: list[Any] | tuple[Any, ...], exact: bool = False) -> tuple[list[Any], str]:
    """The different values, and the number of each record's value in base64: in 8 bits, or in as many as are needed (16 or 32, the lowest
    byte first); empty where there is but one value. Fractions are rounded unless they must be `exact`."""
    if values == values[:1] * len(values):
        values = values[:1]  # many columns have one value for all records
    first = next((value for value in values if value is not None), None)  # all values of a column have one type, or are None
    if isinstance(first, float) and not exact:
        return _floats(values)
    keys = [None if value is None else tuple(value) for value in values] if isinstance(first, list) else values
    numbers: defaultdict[Any, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a value that is new gets the next number
    indexes = np.fromiter(map(numbers.__getitem__, keys), dtype=np.int64, count=len(keys))
    shown = [printable(str(value)) if isinstance(value, str) else value for value in numbers]
    return shown, _packed(indexes, len(numbers))


def _floats(values: Sequence[float | None]) -> tuple[list[Any], str]:
    """As `column`, for numbers. Each is a whole number of four digits and an exponent, so that a table finds equal ones without sorting."""
    array = np.array([nan if value is None else value for value in values], dtype=float)  # slower if numpy meets None
    size = np.abs(array)
    kept = np.isfinite(size) & (size > 0)
    exponent = np.zeros(len(array), dtype=np.int64)
    exponent[kept] = np.floor(np.log10(size[kept])).astype(np.int64)
    digits = np.zeros(len(array), dtype=np.int64)
    digits[kept] = np.rint(size[kept] / POWERS[exponent[kept] - (DIGITS - 1)]).astype(np.int64)
    lowest, most = int(exponent.min(initial=0)), 10**DIGITS + 1
    code = ((exponent - lowest) * most + digits) * 3 + np.where(np.isnan(array), 2, array < 0)
    present = np.zeros(int(code.max(initial=0)) + 1, dtype=bool)
    present[code] = True
    different = np.flatnonzero(present)
    return _numbers(different, lowest, most), _packed((np.cumsum(present) - 1)[code], len(different))


def _numbers(codes: Any, lowest: int, most: int) -> list[float | None]:
    """The numbers that codes stand for, None for nan. Multiplying or dividing by an exact power of ten rounds once, as reading does."""
    place, kind = np.divmod(codes, 3)
    exponent, digits = np.divmod(place, most)
    power = exponent + lowest - (DIGITS - 1)
    near = np.clip(power, -EXACT, EXACT)
    sizes = np.where(near < 0, digits / POWERS[np.maximum(-near, 0)], digits * POWERS[np.maximum(near, 0)])
    for far in np.flatnonzero(near != power):
        sizes[far] = float(f"{digits[far]}e{power[far]}")
    numbers: list[float | None] = np.where(kind == 1, -sizes, sizes).tolist()
    for place in np.flatnonzero(kind == 2):
        numbers[place] = None
    return numbers


def packed_numbers(numbers: Sequence[int]) -> str:
    """Whole numbers of 32 bits in base64, the lowest byte first."""
    return b64encode(np.array(numbers, dtype="<i4").tobytes()).decode()


def _packed(indexes: Any, different: int) -> str:
    if different == 1:
        return ""
    return b64encode(indexes.astype("u1" if different <= 1 << 8 else "<u2" if different <= 1 << 16 else "<u4").tobytes()).decode()
