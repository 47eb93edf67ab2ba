"""The page's columns hold what they were given: each value once, numbers in four digits."""

from base64 import b64decode
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca.report.encoding import column, rounded


def decoded(values: list[Any], count: int, packed: str) -> list[Any]:
    """As the page does it."""
    kind = "u1" if len(values) <= 256 else "<u2" if len(values) <= 65536 else "<u4"
    indexes = np.frombuffer(b64decode(packed), dtype=kind) if len(values) > 1 else [0] * count
    return [values[index] for index in indexes]


@given(st.lists(st.none() | st.floats(-1e300, 1e300) | st.floats(1e-9, 1e9), min_size=1, max_size=40))
def test_numbers_keep_four_digits(numbers: list[float | None]) -> None:
    numbers = [number if number is None or abs(number) > 1e-290 else 0.0 for number in numbers]
    for number, shown in zip(numbers, decoded(*column_of([*numbers, 0.5])), strict=False):
        assert (number is None) == (shown is None)
        assert number is None or shown == pytest.approx(number, rel=1.0001e-3)
        assert shown is None or float(f"{shown:.4g}") == shown


@given(st.floats(1e-9, 1e9))
def test_fewer_digits_of_what_is_kept_are_those_of_the_number(number: float) -> None:
    shown = rounded(number)
    assert shown is not None
    assert [f"{shown:.{digits}g}" for digits in (2, 3)] == [f"{number:.{digits}g}" for digits in (2, 3)]


def test_a_number_is_not_rounded_twice() -> None:
    assert list(map(rounded, (611.468, 611.53, 39.5535, 0.57496, 0.5, 12.0003, -611.468))) == [
        611.4,
        611.6,
        39.56,
        0.5749,
        0.5,
        12.0,
        -611.4,
    ]


def column_of(values: list[Any]) -> tuple[list[Any], int, str]:
    different, packed = column(values)
    return different, len(values), packed


@pytest.mark.parametrize("count", [1, 2, 256, 257, 70_000])
def test_as_many_bits_as_are_needed(count: int) -> None:
    names = [f"name {number}" for number in range(count)]
    assert decoded(*column_of([*names, *names])) == names * 2


@pytest.mark.filterwarnings("error")
def test_what_is_too_small_for_four_digits_is_zero() -> None:
    assert sorted(column([1e-320, 0.0, 5e-324, 0.5])[0]) == [0.0, 0.5]


def test_a_column_may_begin_with_none() -> None:
    assert column([None, [1], []])[0] == [None, (1,), ()]
    assert column([None, 0.25])[0] == [0.25, None]
    assert column([None, None]) == ([None], "")


def test_equal_values_are_there_once() -> None:
    assert sorted(column([1.00001, 1.0, -1.0, 0.0, 10.0])[0]) == [-1.0, 0.0, 1.0, 10.0]
    assert column([[1, 2], None, [1, 2]])[0] == [(1, 2), None]
    assert column(["x", "x"]) == (["x"], "")
