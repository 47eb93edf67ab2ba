"""The time left of a run weighs cells by their estimated work."""

from types import SimpleNamespace
from typing import Any

import pytest

from longca.bench.run.time_left import TRUST_S, TimeLeft
from longca.results.record import Status


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(key: str, status: Status = Status.OK, asked: str = "mine") -> Any:
    return SimpleNamespace(key=key, status=status, asked=asked)


def test_a_long_cell_counts_as_long() -> None:
    clock = Clock()
    left = TimeLeft({"small": 1.0, "large": 600.0}, now=clock)
    assert left.seconds == 601
    clock.now = 1.0
    left.finished(record("small"))
    assert left.seconds == pytest.approx(600)
    clock.now = 101.0
    assert left.seconds == pytest.approx(500)  # the large one is under way
    left.finished(record("large"))
    assert left.seconds == 0


def test_what_cells_took_corrects_the_estimate() -> None:
    clock = Clock()
    left = TimeLeft({f"{n}": 10.0 for n in range(10)}, now=clock)
    for n in range(5):
        clock.now += 30.0
        left.finished(record(f"{n}"))
    assert left.seconds == pytest.approx(50 * (150 + TRUST_S) / (50 + TRUST_S))


def test_cells_that_did_not_run_say_nothing_about_those_that_will() -> None:
    """A kernel that is not available answers at once, in all of its cells."""
    clock = Clock()
    estimates = {f"{kernel}{n}": 20.0 for kernel in ("fa4", "mine") for n in range(3)}
    left = TimeLeft(estimates, {key: key[:-1] for key in estimates}, now=clock)
    left.finished(record("fa40", Status.UNAVAILABLE, "fa4"))
    assert left.seconds == pytest.approx(60)
    left.finished(record("mine0", Status.UNSUPPORTED))
    assert left.seconds == pytest.approx(40)
