"""The errors against published figures, which docs/simulate.md names: they may get better, not worse."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

import longca
from longca.api import simulate as api
from longca.cli import main
from longca.simulate.answers import Validation
from longca.simulate.calibrate import calibrate
from longca.simulate.cluster import DENSE, find
from longca.simulate.errors import constants_of, kind_of, ledgers, spread_of
from longca.simulate.published import Figure, Point, Published, compare, packs, points_of, programs_of, published, speeds_of

ROOT = Path(__file__).parents[2]
GLOO, H200 = ROOT / "results" / "cpu" / "gloo", ROOT / "results" / "h200" / "paper-kernel"


def few_of(name: str, gpus: int) -> Published:
    """The published figures up to so many GPUs."""
    figures = published(name)
    return replace(figures, speeds={figure: speed for figure, speed in figures.speeds.items() if figure.gpus <= gpus})


def assert_shipped(name: str, points: list[Point]) -> None:
    """These errors are those that answers state, which benchmarks/simulate_errors.py writes anew where a method's program changes."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for point in points:
        figure = point.figure
        found.setdefault((figure.method, kind_of(figure.mask), figure.gpus), []).append(round(point.error, 3))
    stated = {(row.method, row.kind, row.gpus): sorted(row.errors) for row in ledgers()[name].rows}
    assert found
    for key, errors in found.items():
        assert sorted(errors) == pytest.approx(stated[key], abs=0.002), key


def test_full_and_causal_on_few_gpus() -> None:
    few, speeds = few_of("h100-ib", 16), dict[Figure, float]()
    for mask, gpus in product(DENSE, few.gpus):
        speeds |= speeds_of(find("h100-ib")[1], mask, programs_of(few, mask, gpus))
    points = points_of(few, speeds)
    assert len(points) >= 6 * 2 * 2 * 2
    assert_shipped("h100-ib", points)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h100-ib", "b200-ib"])
def test_documents_on_few_gpus(name: str) -> None:
    assert_shipped(name, compare(few_of(name, 8), find(name)[1]))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number", "dense", "packed"), [("h100-ib", 2, 0.05, 0.17), ("b200-ib", 2, 0.12, 0.25)])
def test_the_whole_validation(name: str, number: int, dense: float, packed: float) -> None:
    """With so many of 20 packs, for time."""
    points = compare(published(name), find(name)[1], number=number)
    on = {kind: [point for point in points if kind_of(point.figure.mask) == kind] for kind in ("full and causal", "documents")}
    assert spread_of(point.error for point in on["full and causal"]).median < dense
    beyond = [point for point in on["documents"] if point.figure.gpus > 8]
    assert spread_of(point.error for point in beyond).median < packed
    assert spread_of(point.error for point in beyond).median < 0.9 * spread_of(point.flat_error for point in beyond).median


@pytest.mark.slow
def test_documents_are_those_of_the_published_figures() -> None:
    """As long as the sequence, none longer than a quarter of it; as dense as independent runs of the published sampler."""
    densities = []
    for gpus in (8, 16, 32, 64):
        tokens = gpus * published("h100-ib").tokens_per_gpu
        drawn = packs(tokens)
        assert [sum(pack) for pack in drawn] == [tokens] * 20
        assert max(map(max, drawn)) <= tokens // 4
        densities.append(sum(sum(n * n for n in pack) / tokens for pack in drawn) / 20)
    assert [round(density / 1000) for density in densities] == [7, 13, 18, 23]


def test_the_shipped_errors_are_of_the_shipped_clusters() -> None:
    """benchmarks/simulate_errors.py writes them anew where a constant changes."""
    for name, ledger in ledgers().items():
        assert (ledger.constants, ledger.per_node) == (constants_of(find(name)[1]), find(name)[1].per_node), name
        assert {row.kind for row in ledger.rows} >= {"full and causal", "documents"}


@pytest.fixture(scope="module")
def gloo() -> Validation:
    """A cluster whose ranks share cores is compared with gloo records alone."""
    return longca.validate_simulation("cpu-gloo")


def test_gloo_ranks_on_shared_cores(gloo: Validation) -> None:
    """Constants come from the kernel alone, from transfers, and from two ranks; three and four ranks had no part in them."""
    pairs = gloo.pairs
    assert {pair.record.problem.ranks for pair in pairs} == {2, 3, 4}
    assert len({pair.record.method for pair in pairs}) >= 10
    assert len(pairs) > 400
    for compared in (pairs, [pair for pair in pairs if pair.record.problem.ranks != 2]):
        spread = spread_of(pair.error for pair in compared)
        assert spread.median < 0.15
        assert spread.most < 0.30


def test_validation_as_one_json_object(gloo: Validation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "validate_simulation", lambda cluster, **settings: gloo)
    assert main(["simulate", "--validate", "--json", "--cluster", "cpu-gloo"]) == 0
    result = json.loads(capsys.readouterr().out)
    points = result["points"]
    assert (result["cluster"], result["compared"]) == ("cpu-gloo", len(points))
    assert abs(sum(abs(point["error"]) <= result["error"] for point in points) - len(points) / 2) <= 1


def test_the_gloo_cluster_is_what_calibrate_makes_of_the_records() -> None:
    shipped = find("cpu-gloo")[1]
    made, _ = calibrate(GLOO, changed(shipped, cores=2.0))
    assert changed(made, device=shipped.device) == shipped


def test_the_h200_cluster_is_what_calibrate_makes_of_the_records() -> None:
    shipped = find("h200-ib")[1]
    made, fits = calibrate(H200, shipped)
    assert made.compute == shipped.compute
    forward, backward = (next(fit for fit in fits if fit.name == f"compute.{pass_}_tflops") for pass_ in ("forward", "backward"))
    said = f"a median error of {100 * forward.error:.0f} % forward and {100 * backward.error:.0f} % backward ({forward.measurements} cells"
    assert said in " ".join((ROOT / "docs" / "simulate.md").read_text().split())


def test_the_shared_gpu_is_what_calibrate_makes_of_the_records() -> None:
    """A method's program may change: its compute is fitted to the program that it has now. Six masks are left to judge it."""
    shipped = find("h200-shared-8")[1]
    masks = ("causal", "causal_document", "full", "sliding_window", "sliding_window_causal")
    made, _ = calibrate(ROOT / "results" / "h200-shared", find("h200-ib")[1], masks=masks)
    assert (made.compute, made.inside) == (shipped.compute, shipped.inside)
