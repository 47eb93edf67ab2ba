"""Times taken in turns: the interval holds the ratio as often as it says, though processes differ, and small changes are found."""

import math

import numpy as np
import pytest

from longca.compare.paired import EACH, LOOKS, Round, ratio_of_rounds, student
from longca.compare.verdicts import Verdict, decide


@pytest.mark.parametrize(("freedom", "confidence", "known"), [(1, 0.9, 6.314), (3, 0.99, 5.841), (7, 0.95, 2.365), (15, 0.99, 2.947)])
def test_quantiles_are_those_of_tables(freedom: int, confidence: float, known: float) -> None:
    assert student(freedom, confidence) == pytest.approx(known, rel=2e-4)


def rounds(rng: np.random.Generator, count: int, change: float = 0.0, processes: float = 0.01, modes: float = 0.0) -> list[Round]:
    """Rounds in which each process has its own factor, or one of two, on a machine that drifts."""
    made = []
    for number in range(count):
        a, b = np.exp(processes * rng.standard_normal(2) + modes * (rng.random(2) < 0.4))
        drift = 1 + 0.1 * math.sin(number)
        turns = drift * np.exp(0.003 * rng.standard_normal((5, 2))) * [a, b * (1 + change)]
        made.append([(float(one), float(other)) for one, other in turns])
    return made


@pytest.mark.slow
@pytest.mark.parametrize("noise", [{"processes": 0.001}, {"processes": 0.03}, {"modes": 0.4}])
def test_equal_kernels_are_rarely_called_different(noise: dict[str, float]) -> None:
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(400):
        taken = rounds(rng, LOOKS[-1], **noise)
        verdicts = [decide(ratio_of_rounds(taken[:look]), 0.01) for look in LOOKS]
        wrong += next((verdict for verdict in verdicts if verdict is not Verdict.UNCLEAR), Verdict.SAME) is not Verdict.SAME
    assert wrong <= 400 * 0.02, "1 % are allowed; chance may double it"


def test_a_change_of_two_percent_is_found_where_processes_are_alike() -> None:
    rng = np.random.default_rng(1)
    found = [decide(ratio_of_rounds(rounds(rng, LOOKS[1], change, 0.001)), 0.01) for change in (0.02, -0.02) for _ in range(50)]
    assert found == [Verdict.SLOWER] * 50 + [Verdict.FASTER] * 50


def test_few_rounds_say_nothing() -> None:
    found = ratio_of_rounds(rounds(np.random.default_rng(2), LOOKS[0] - 1, 1.0))
    assert found.few
    assert found.value == pytest.approx(2.0, rel=0.1)
    assert EACH > 0.99
