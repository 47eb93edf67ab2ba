"""Columns of the page's data: each value once, and per record its number; numbers in five digits.

The page shows fewer digits, and must show what other commands do. A number that is rounded twice may end in another digit: 611.4996 is
611.50 in five digits and then 612, but 611 in three. So where rounding would leave it half way between two numbers of fewer digits, the
next digit on its own side is taken: 611.49 here, and 611.51 for 611.5004.
"""

from __future__ import annotations

from base64 import b64encode
from collections import defaultdict
from collections.abc import Sequence
from math import isfinite, nan
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from longca.text import printable

Floats = NDArray[np.float64]
Values = list[Any] | tuple[Any, ...] | Floats
DIGITS = 5
EQUAL = 1e-6  # of the last digit: no rounding
TABLE = 16  # times as many places as there are numbers: a larger table takes longer than sorting
POWERS = 10.0 ** np.concatenate([np.arange(309), np.arange(-330, 0)])  # POWERS[n] is 10 to the power of n, which may be negative
SMALLEST = 1e-300  # anything smaller is shown as 0: its power of ten may not be a float
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
    """The value in as many digits as a column has; None where it is not finite."""
    if value is None or not isfinite(value):
        return None
    numbers: list[float | None] = _floats(np.array([value]))[0]
    return numbers[0]


def in_array(values: Values) -> Values:
    """Fractions as an array, with nan for None; other values as they are."""
    if isinstance(values, np.ndarray) or not isinstance(_first(values), float):
        return values
    return np.array([nan if value is None else value for value in values])


def _first(values: list[Any] | tuple[Any, ...]) -> Any:
    """The first value that is not None: all values of a column have one type, or are None."""
    if values == values[:1] * len(values):
        return values[0] if values else None  # many columns are None throughout
    return next(value for value in values if value is not None)


def joined(parts: Sequence[Values]) -> Values:
    """A column from its parts, as `in_array` gave them."""
    if any(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate([part if isinstance(part, np.ndarray) else np.full(len(part), nan) for part in parts])
    return [value for part in parts for value in part]


def column(values: Values, exact: bool = False) -> tuple[list[Any], str]:
    """The different values, and the number of each record's value in base64: in 8 bits, or in as many as are needed (16 or 32, the lowest
    byte first); empty where there is but one value. Fractions are rounded unless they must be `exact`."""
    if not exact:
        values = in_array(values)
    if isinstance(values, np.ndarray):
        return _floats(values)
    if values == values[:1] * len(values):
        values = values[:1]  # many columns have one value for all records
    keys = [None if value is None else tuple(value) for value in values] if isinstance(_first(values), list) else values
    numbers: defaultdict[Any, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a value that is new gets the next number
    indexes = np.fromiter(map(numbers.__getitem__, keys), dtype=np.int64, count=len(keys))
    shown = [printable(str(value)) if isinstance(value, str) else value for value in numbers]
    return shown, _packed(indexes, len(numbers))


def _floats(array: Floats) -> tuple[list[Any], str]:
    """As `column`, for numbers: whole numbers of five digits with an exponent. Of many, a table finds equal ones without sorting."""
    size = np.abs(array)
    kept = np.isfinite(size) & (size > SMALLEST)
    exponent = np.zeros(len(array), dtype=np.int64)
    exponent[kept] = np.floor(np.log10(size[kept])).astype(np.int64)
    digits = np.zeros(len(array), dtype=np.int64)
    digits[kept] = _rounded(size[kept] / POWERS[exponent[kept] - (DIGITS - 1)])
    lowest, most = int(exponent.min(initial=0)), 10**DIGITS + 1
    code = ((exponent - lowest) * most + digits) * 3 + np.where(np.isnan(array), 2, array < 0)
    largest = int(code.max(initial=0))
    if largest > TABLE * len(code):
        different, indexes = np.unique(code, return_inverse=True)
    else:
        present = np.zeros(largest + 1, dtype=bool)
        present[code] = True
        different, indexes = np.flatnonzero(present), (np.cumsum(present) - 1)[code]
    return _numbers(different, lowest, most), _packed(indexes, len(different))


def _rounded(sizes: Floats) -> NDArray[np.int64]:
    """Whole numbers that round to the same number of fewer digits as the sizes do."""
    digits: NDArray[np.int64] = np.rint(sizes).astype(np.int64)
    beyond = np.where(np.abs(sizes - digits) > EQUAL, np.sign(sizes - digits), 0).astype(np.int64)
    half_way = (digits % 10 == 5) | (digits % 100 == 50) | (digits % 1000 == 500)
    return np.where(half_way, digits + beyond, digits)


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
