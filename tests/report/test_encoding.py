"""The page's columns hold what they were given: each value once, numbers in five digits."""

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
def test_numbers_keep_five_digits(numbers: list[float | None]) -> None:
    numbers = [number if number is None or abs(number) > 1e-290 else 0.0 for number in numbers]
    for number, shown in zip(numbers, decoded(*column_of([*numbers, 0.5])), strict=False):
        assert (number is None) == (shown is None)
        assert number is None or shown == pytest.approx(number, rel=1.0001e-4)
        assert shown is None or float(f"{shown:.5g}") == shown


@given(st.floats(1e-9, 1e9))
def test_fewer_digits_of_what_is_kept_are_those_of_the_number(number: float) -> None:
    shown = rounded(number)
    assert shown is not None
    assert [f"{shown:.{digits}g}" for digits in (2, 3, 4)] == [f"{number:.{digits}g}" for digits in (2, 3, 4)]


def test_a_number_is_not_rounded_twice() -> None:
    numbers = (611.4996, 611.5004, 295.507, 15.5044, 0.574996, 0.5, 12.00003, -611.4996)
    assert list(map(rounded, numbers)) == [611.49, 611.51, 295.51, 15.504, 0.57499, 0.5, 12.0, -611.49]


def test_many_numbers_are_kept_as_few_are() -> None:
    """A table finds equal ones of many; few are sorted."""
    many = [1 + place / 1000 for place in range(70_000)] * 2
    assert decoded(*column_of(many)) == [rounded(number) for number in many[:70_000]] * 2


def column_of(values: list[Any]) -> tuple[list[Any], int, str]:
    different, packed = column(values)
    return different, len(values), packed


@pytest.mark.parametrize("count", [1, 2, 256, 257, 70_000])
def test_as_many_bits_as_are_needed(count: int) -> None:
    names = [f"name {number}" for number in range(count)]
    assert decoded(*column_of([*names, *names])) == names * 2


@pytest.mark.filterwarnings("error")
def test_what_is_too_small_is_zero() -> None:
    assert sorted(column([1e-320, 0.0, 5e-324, 0.5])[0]) == [0.0, 0.5]


def test_a_column_may_begin_with_none() -> None:
    assert column([None, [1], []])[0] == [None, (1,), ()]
    assert column([None, 0.25])[0] == [0.25, None]
    assert column([None, None]) == ([None], "")


def test_equal_values_are_there_once() -> None:
    assert sorted(column([1.000001, 1.0, -1.0, 0.0, 10.0])[0]) == [-1.0, 0.0, 1.0, 10.0]
    assert column([[1, 2], None, [1, 2]])[0] == [(1, 2), None]
    assert column(["x", "x"]) == (["x"], "")
