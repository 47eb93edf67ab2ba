"""The errors against published figures, which docs/simulate.md names: they may get better, not worse."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from longca.simulate import validate
from longca.simulate.cluster import find


def test_full_and_causal_on_few_gpus() -> None:
    figures = validate.published()
    few = replace(figures, gpus=figures.gpus[:2])
    points = validate.compare(few, find("h100-ib")[1], validate.recordings(few, validate.PLAIN))
    summary = validate.summary(points, few)
    assert len(points) >= 6 * 2 * 2 * 2
    assert summary["plain"]["error"] < 0.06
    assert summary["plain"]["worst"] < 0.25


@pytest.mark.slow
def test_the_whole_validation() -> None:
    figures = validate.published()
    points = validate.compare(figures, find("h100-ib")[1], validate.recordings(figures))
    summary = validate.summary(points, figures)
    assert summary["plain"]["error"] < 0.05  # the target is .12
    assert summary["documents"]["error"] < 0.16
    assert summary["documents"]["error"] < 0.7 * summary["documents"]["same_as_first"]
    assert set(validate.explanations(points, figures)) <= set(figures.explanations)


def test_rank_correlation() -> None:
    assert validate.rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert validate.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert validate.rank_correlation([1, 2, 3], [5, 5, 9]) == pytest.approx(0.866, abs=1e-3)  # equal values share their places


def test_eight_constants_and_no_more() -> None:
    assert len(validate.CONSTANTS) == 8
    assert all(validate.constant(find("h100-ib")[1], name) > 0 for name in validate.CONSTANTS)
