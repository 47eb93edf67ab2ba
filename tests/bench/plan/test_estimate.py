"""Estimates, refusals of what would never end, and outlines that stand for block patterns in a dry run."""

from itertools import count
from random import Random

import pytest

from bench.clock.test_clock import FakeTimer, constant
from longca.bench.clock.clock import measure
from longca.bench.plan import estimate
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import Planned, make_cells, mask_outline, plan
from longca.bench.plan.suite import Suite
from longca.errors import Refused
from longca.results.problem import Pass
from longca.results.settings import ClockSettings, Limits

SPARSE = Suite(
    kernels=("torch",),
    masks=("uniform_block", "variable_block", "causal", "causal_document"),
    seqlens=("1K", "2K"),
    heads=("4:2", "4:4"),
    head_dims=("16",),
    seeds=3,
    params={"uniform_block": {"b": [64, 128], "ratio": [0.2, 0.5, 1.0]}, "variable_block": {"avg": 128, "ratio": [0.3, 1.0]}},
)


def planned(suite: Suite, outline: bool = False, device: str = "cpu") -> list[Planned]:
    cells = make_cells(suite, suite.kernels, device)
    versions = {kernel: {"torch": "1"} for kernel in suite.kernels}
    return plan(cells, "a CPU", versions, mask_outline) if outline else plan(cells, "a CPU", versions)


@pytest.mark.parametrize("source", ["random", "moba"])
def test_a_plan_of_outlines_has_the_cells_of_the_plan(source: str) -> None:
    few = {"uniform_block": {"b": 64, "ratio": [0.4, 1.0]}}  # of one kept block moba draws nothing either, which an outline does not know
    suite = (
        SPARSE.changed(source=source, seqlens=("1K",), heads=("4:2",), masks=("uniform_block",), params=few) if source == "moba" else SPARSE
    )
    real, dry = planned(suite), planned(suite, outline=True)
    assert [entry.cell for entry in dry] == [entry.cell for entry in real]
    assert len({entry.cell.problem.seed for entry in real if entry.cell.problem.mask == "uniform_block"}) == 3
    for there, here in zip(real, dry, strict=True):
        assert here.mask.params == there.mask.params
        assert here.mask.area == pytest.approx(there.mask.area, rel=0.25)


@pytest.mark.parametrize("call_ms", [0.1, 3.0, 12.0, 30.0, 70.0, 200.0, 400.0, 3000.0])
@pytest.mark.parametrize("clock", [ClockSettings(), ClockSettings(warmup_s=0.08, budget_s=0.16, target=0.01), ClockSettings(least=12)])
def test_the_clock_is_estimated_as_it_stops_for_quiet_and_for_noisy_calls(call_ms: float, clock: ClockSettings) -> None:
    random = Random(0)
    quiet, loud = FakeTimer(constant(call_ms)), FakeTimer(call_ms * random.uniform(0.5, 1.5) for _ in count())
    for timer in (quiet, loud):
        measure(lambda: None, timer, clock)
    expected = (1 - estimate.NOISY) * quiet.now() + estimate.NOISY * loud.now()
    steps = call_ms / 1e3 + 0.05 * min(clock.warmup_s, clock.budget_s)  # a call, and the least time between two samples
    assert estimate.clock_s(call_ms / 1e3, clock) == pytest.approx(expected, abs=2 * steps)


def test_what_a_kernel_refuses_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "_is_available", lambda label, device: True)

    def idle(*kernels: str, masks: tuple[str, ...]) -> set[tuple[str, str, Pass]]:
        suite = Suite(kernels=kernels, masks=masks, seqlens=("1K", "8K"), dense=())
        entries = planned(suite, device="cuda")
        seconds = estimate.estimates_s(entries, suite)
        return {(entry.cell.kernel, entry.cell.problem.mask, entry.cell.problem.pass_) for entry in entries if seconds[entry.key] == 0}

    refused = {("fa3", "share_question", pass_) for pass_ in (Pass.FWD, Pass.BWD)}
    assert idle("fa3", "fa4", "flex", masks=("causal", "share_question")) == refused
    without_backward = {("flashinfer", "uniform_block", Pass.BWD)}  # its forward is run alone
    assert idle("flashinfer", "flex", masks=("uniform_block",)) == without_backward


def test_what_is_not_available_or_needs_too_much_memory_takes_no_time() -> None:
    suite = Suite(kernels=("fa3", "torch:plain", "torch:chunked"), masks=("causal",), seqlens=("1K", "64K"), passes=(Pass.FWD,))
    entries = planned(suite)

    def idle(full: bool) -> list[tuple[str, int]]:
        seconds = estimate.estimates_s(entries, suite, full)
        return [(entry.cell.kernel, entry.cell.problem.seqlen >> 10) for entry in entries if seconds[entry.key] == 0]

    assert set(idle(full=True)) == {("fa3", 1), ("fa3", 64)}
    assert set(idle(full=False)) == {("fa3", 1), ("fa3", 64), ("torch:plain", 64)}


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two usual cores."""
    monkeypatch.setattr(estimate, "flops_per_second", lambda device: 4e10)


def readme(seqlens: tuple[str, ...]) -> list[Cell]:
    suite = Suite(masks=("all",), seqlens=seqlens, heads=("64:8",), head_dims=("128",))
    return make_cells(suite, ("torch", "flex"), "cpu")


@pytest.mark.usefixtures("slow")
def test_what_would_take_hours_on_a_cpu_is_refused() -> None:
    with pytest.raises(
        Refused,
        match=r"full with 32K tokens and 64 heads takes about 37 minutes a call .* shorter --seqlens, fewer --heads, or",
    ):
        estimate.refuse_hopeless(readme(("8K", "32K")), Limits())
    estimate.refuse_hopeless(readme(("2K",)), Limits())
    with pytest.raises(Refused, match="4K tokens"):
        estimate.refuse_hopeless(readme(("4K",)), Limits())
    estimate.refuse_hopeless(readme(("4K",)), Limits().with_deadline(3600))
    estimate.refuse_hopeless(make_cells(Suite(seqlens=("32K",)), ("torch",), "cuda"), Limits())
