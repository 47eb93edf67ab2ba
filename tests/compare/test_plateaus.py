"""Plateaus over many runs: steps are found where they were made, and noise makes none."""

from typing import Any

import numpy as np
import pytest

from longca.compare.plateaus import Change, find_steps
from longca.compare.verdicts import Verdict
from longca.results.record import Record
from longca.results.schema import decode_record
from report.made import line, make_record

THRESHOLD = 0.03


def runs(levels: Any, seed: int, between: float = 0.0, clocks: Any = None, within: float = 0.005) -> list[Record]:
    """Records of runs at these levels, each off by a factor that all its samples share."""
    rng = np.random.default_rng(seed)
    records = []
    for number, level in enumerate(levels):
        samples = level * np.exp(between * rng.standard_normal() + within * rng.standard_normal(20))
        records.append(decode_record(line(make_record(samples, clock_mhz=None if clocks is None else clocks[number])).encode()))
    return records


def found(levels: Any, seed: int = 0, threshold: float = THRESHOLD, **noise: Any) -> dict[int, Change]:
    return find_steps(dict(enumerate(runs(levels, seed, **noise))), threshold)


@pytest.mark.parametrize("between", [0.0, 0.003, 0.01])
def test_noise_makes_no_step(between: float) -> None:
    """Of 60 histories of runs that differ by chance, up to 2 have one."""
    made = [found([1.0] * 12, seed, between=between) for seed in range(60)]
    assert sum(map(bool, made)) <= 2


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("between", [0.0, 0.005])
def test_steps_are_where_they_were_made(seed: int, between: float) -> None:
    bump = found([1.0] * 5 + [1.2] * 4 + [1.0] * 5, seed, between=between)
    assert {place: change.verdict for place, change in bump.items()} == {5: Verdict.SLOWER, 9: Verdict.FASTER}
    assert bump[5].ratio.value == pytest.approx(1.2, abs=0.03)
    assert list(found([1.0] * 6 + [1.1], seed, between=between)) == [6], "the newest run alone, too"
    assert list(found([1.0, 1.1, 1.1], seed, between=between)) == [1]


def test_a_change_below_the_threshold_is_no_step() -> None:
    assert found([1.0] * 5 + [1.04] * 5, threshold=0.05) == {}
    assert list(found([1.0] * 5 + [1.08] * 5, threshold=0.05)) == [5]


def test_what_the_clock_explains_is_no_step() -> None:
    levels = [1.0] * 4 + [1.1] * 4
    assert found(levels, clocks=[1980] * 4 + [1800] * 4) == {}
    assert list(found(levels, clocks=[1980] * 8)) == [4]
