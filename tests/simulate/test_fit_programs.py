"""Compute constants come back from times without transfers that were made with them."""

from dataclasses import replace as with_fields
from pathlib import Path

import pytest
from msgspec.structs import replace

from longca.results.reading import Results, read
from longca.results.record import RankFigures
from longca.simulate.against import measured, recorded
from longca.simulate.cluster import Compute, find
from longca.simulate.fit_programs import SPEEDS, _seconds, fit_programs

MADE = Compute(forward_tflops=80.0, backward_tflops=60.0, memory_gb_s=300.0, launch_us=25.0, host_us=30.0)
START = find("h200-ib")[1].compute
WAIT = 0.25


def made_with(constants: Compute) -> Results:
    """Records of three methods on documents, whose times without transfers follow from the constants."""
    shared = read(Path(__file__).parents[2] / "results" / "h200-shared" / "ranks")
    some = [record for record in measured(shared) if record.method in ("ulysses", "magi", "usp") and record.problem.mask != "causal"]
    made = []
    for record, programs in recorded(shared, some):
        ms = 1e3 * max(_seconds(events, constants) for events in programs.events(record.problem.pass_)) / (1 - WAIT)
        made.append(replace(record, timed=replace(record.times, median=ms), over_ranks=RankFigures(wait_share=WAIT)))
    return with_fields(shared, records=made)


@pytest.fixture(scope="module")
def results() -> Results:
    return made_with(MADE)


def test_constants_come_back(results: Results) -> None:
    compute, fits = fit_programs(results, START, 4)
    assert {fit.name for fit in fits} == {f"compute.{name}" for name in (*SPEEDS, "launch_us")}
    assert all(fit.measurements == len(results.records) and fit.error < 1e-3 for fit in fits)
    assert compute.host_us == START.host_us
    for name in (*SPEEDS, "launch_us"):
        assert getattr(compute, name) == pytest.approx(getattr(MADE, name), rel=0.01)


def test_few_records_fit_nothing(results: Results) -> None:
    assert fit_programs(results, START, len(results.records) + 1) == (START, [])


def test_a_constant_that_would_be_negative_keeps_its_value() -> None:
    compute, fits = fit_programs(made_with(replace(MADE, launch_us=-5.0)), START, 4)
    assert {fit.name for fit in fits} == {f"compute.{name}" for name in SPEEDS}
    assert compute.launch_us == START.launch_us
    assert compute.forward_tflops == pytest.approx(MADE.forward_tflops, rel=0.1)
