"""Shares and points of figures come from the rows that a ranking counts."""

import pytest
from longca.results.answers import answers, shares_of_best

from longca.results import naming, points
from longca.results.ranking import rank_rows
from longca.results.shares import compared
from report.made import kernel, results_of


def rows_of(speeds: dict[str, dict[int, float]], grad: bool = True) -> list[naming.Row]:
    """A forward of each kernel and seed."""
    place = {"mask": "causal_document", "grad": grad}
    made = [
        kernel(name, [100 / speed] * 5, "fwd", seed=seed, mask_digest=str(seed), tflops=speed, **place)
        for name, own in speeds.items()
        for seed, speed in own.items()
    ]
    return naming.rows(results_of(made))


def test_of_two_kinds_of_forward_the_one_that_the_ranking_takes_counts() -> None:
    """The forward of inference stands beside that of training; a speed over all of them would be another."""
    training = {"fa3": {0: 300.0, 1: 320.0, 2: 340.0}, "flex": {0: 200.0, 1: 210.0, 2: 220.0}}
    inference = {"fa3": {0: 400.0, 1: 420.0, 2: 440.0}}
    both = [*rows_of(training), *rows_of(inference, grad=False)]
    ranking = rank_rows(both)
    for line in ("fa3", "flex"):
        standing = ranking.of(line)
        assert standing is not None
        point = points.point([row for row in compared(both) if row.line == line], points.SPEED)
        assert point is not None
        assert point.value == pytest.approx(standing.tflops)


def test_a_faster_kernel_is_not_left_out_for_masks_that_it_lacks() -> None:
    speeds = {"a": {1: 100.0, 2: 100.0}, "b": {1: 50.0, 2: 50.0}, "c": {1: 200.0, 3: 200.0}, "d": {3: 50.0}}
    (answer,) = answers(rows_of(speeds))
    assert [(out.line, out.share) for out in answer.ranking.out] == [("d", None)]
    assert shares_of_best(answer.ranking) == {"a": 0.5, "b": 0.25, "c": 1.0}
