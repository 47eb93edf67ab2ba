"""The time left of a run weighs cells by their estimated work."""

from types import SimpleNamespace
from typing import Any

import pytest

from longca.bench.run.progress import TRUST, TimeLeft
from longca.results.record import Status


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(key: str, status: Status = Status.OK) -> Any:
    return SimpleNamespace(key=key, status=status)


def test_a_long_cell_counts_as_long() -> None:
    clock = Clock()
    left = TimeLeft({"small": 1.0, "large": 600.0}, clock)
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
    left = TimeLeft({f"{n}": 10.0 for n in range(10)}, clock)
    for n in range(5):
        clock.now += 30.0
        left.finished(record(f"{n}"))
    trust = TRUST * 100
    assert left.seconds == pytest.approx(50 * (150 + trust) / (50 + trust))


def test_a_cell_that_did_not_run_says_nothing_about_the_speed_of_others() -> None:
    left = TimeLeft({"refused": 20.0, "other": 20.0}, Clock())
    left.finished(record("refused", Status.UNSUPPORTED))
    assert left.seconds == pytest.approx(20)
