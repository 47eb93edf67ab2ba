"""The errors against published figures, which docs/simulate.md names: they may get better, not worse."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from longca.simulate import validate
from longca.simulate.against import against, errors
from longca.simulate.calibrate import calibrate
from longca.simulate.cluster import find

ROOT = Path(__file__).parents[2]
GLOO, H200 = ROOT / "results" / "cpu" / "gloo", ROOT / "results" / "h200" / "paper-kernel"


def test_full_and_causal_on_few_gpus() -> None:
    figures = validate.published()
    few = replace(figures, gpus=figures.gpus[:2])
    points = validate.points_of(few, validate.speeds_of(find("h100-ib")[1], validate.recordings(few, validate.DENSE)))
    summary = validate.summary(points, few)
    assert len(points) >= 6 * 2 * 2 * 2
    assert summary["plain"]["error"] < 0.06
    assert summary["plain"]["worst"] < 0.25


@pytest.mark.slow
def test_the_whole_validation() -> None:
    figures = validate.published()
    figures = replace(figures, documents={gpus: packs[:4] for gpus, packs in figures.documents.items()})  # a fifth of them, for time
    points = validate.compare(figures, find("h100-ib")[1])
    summary = validate.summary(points, figures)
    assert summary["plain"]["error"] < 0.05  # the target is .12
    assert summary["documents"]["error"] < 0.16
    assert summary["documents"]["error"] < 0.7 * summary["documents"]["same_as_first"]
    assert min(summary["documents"]["rank_correlation"].values()) > 0.6
    assert set(validate.explanations(points, figures)) <= set(figures.explanations)


def test_documents_are_those_of_the_published_figures() -> None:
    """As long as the sequence, none longer than a quarter of it; as dense as independent runs of the published sampler."""
    figures = validate.published()
    for gpus, packs in figures.documents.items():
        tokens = int(gpus) * figures.tokens_per_gpu
        assert [sum(pack) for pack in packs] == [tokens] * 20
        assert max(map(max, packs)) <= tokens // 4
    densities = [sum(sum(n * n for n in pack) / sum(pack) for pack in packs) / 20 for packs in figures.documents.values()]
    assert [round(density / 1000) for density in densities] == [7, 13, 18, 23]


def test_rank_correlation() -> None:
    assert validate.rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert validate.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert validate.rank_correlation([1, 2, 3], [5, 5, 9]) == pytest.approx(0.866, abs=1e-3)  # equal values share their places


def test_eight_constants_and_no_more() -> None:
    assert len(validate.CONSTANTS) == 8
    assert all(validate.constant(find("h100-ib")[1], name) > 0 for name in validate.CONSTANTS)


def test_gloo_ranks_on_shared_cores() -> None:
    """Constants come from the kernel alone, from transfers, and from two ranks; three and four ranks had no part in them."""
    pairs = against(GLOO, find("cpu-gloo")[1])
    assert {pair.record.problem.ranks for pair in pairs} == {2, 3, 4}
    assert len({pair.record.method for pair in pairs}) >= 10
    assert len(pairs) > 400
    typical, most = errors(pairs)
    assert typical < 0.15
    assert most < 0.30
    typical, most = errors(pair for pair in pairs if pair.record.problem.ranks != 2)
    assert typical < 0.15
    assert most < 0.30


def test_the_gloo_cluster_is_what_calibrate_makes_of_the_records() -> None:
    shipped = find("cpu-gloo")[1]
    made, _ = calibrate(GLOO, replace(shipped, cores=2.0))
    assert made == shipped


def test_the_h200_cluster_is_what_calibrate_makes_of_the_records() -> None:
    shipped = find("h200-ib")[1]
    made, fits = calibrate(H200, shipped)
    assert made.compute == shipped.compute
    forward, backward = (next(fit for fit in fits if fit.name == f"compute.{pass_}_tflops") for pass_ in ("forward", "backward"))
    said = f"a median error of {100 * forward.error:.0f} % forward and {100 * backward.error:.0f} % backward ({forward.measurements} cells"
    assert said in " ".join((ROOT / "docs" / "simulate.md").read_text().split())
