"""From a plan and an outcome to a record: the figures of a timed pass, and no time where there should be none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from longca import masks
from longca.bench.clock.clock import Timing
from longca.bench.clock.telemetry import CallEnergy
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import Planned, plan
from longca.bench.run.outcomes import MEASURED, make_record, timed_outcome
from longca.kernels.base import Case
from longca.results import metrics
from longca.results.problem import Pass
from longca.results.record import Energy, Memory, Outcome, RankFigures, Status, Times
from made_cells import make_cell

CELL = make_cell(kernel="torch:plain", mask="causal", seqlen=96, pass_=Pass.FWD)
HONEST = Timing((3.5, 3.5, 3.5), host_bound=False, call_ms=0.1, stop="target")
TIMES = Times(median=1.0, p20=1.0, p80=1.0, samples=[1.0], tflops=1.0)


def planned(cell: Cell = CELL) -> Planned:
    versions = (
        {cell.kernel: {"torch": "2", "code": "abc"}, cell.title: {"method_code": "def"}} if cell.split else {cell.kernel: {"torch": "2"}}
    )
    (entry,) = plan([cell], "a CPU", versions)
    return entry


def test_faster_than_the_device_is_invalid_and_has_no_time() -> None:
    mask = masks.full(8192)
    case = Case(8192, 8192, 64, 8, 128, 128, "bf16", "cuda")
    impossible = replace(HONEST, samples=(1.1, 1.1, 1.1))  # 1,999 TFLOP/s, as somebody once published for one H200
    assert timed_outcome(HONEST, mask, case, Pass.FWD, "NVIDIA H200").status is Status.OK
    outcome = timed_outcome(impossible, mask, case, Pass.FWD, "NVIDIA H200", grad=False)
    assert (outcome.status, outcome.grad) == (Status.INVALID, False)
    assert "above the 989" in outcome.reason
    assert outcome.timed is None
    assert timed_outcome(impossible, mask, case, Pass.FWD, "an unknown device").status is Status.OK
    assert timed_outcome(impossible, mask, case, Pass.FWD, "NVIDIA H200", ranks=4).status is Status.OK  # of four that share the work


def test_figures_are_the_samples_own() -> None:
    mask, case = masks.causal(100), Case(100, 100, 4, 2, 16, 16)
    timing = Timing((3.0, 1.0, 2.0, 5.0, 4.0), host_bound=True, call_ms=0.5, stop="budget", clocks=(1400.0, 1600.0))
    outcome = timed_outcome(timing, mask, case, Pass.BWD, "NVIDIA H200", energy=CallEnergy(7.0, 300.0))
    timed = outcome.timed
    assert timed is not None
    assert (timed.median, timed.p20, timed.p80, timed.samples) == (3.0, 2.0, 4.0, [3.0, 1.0, 2.0, 5.0, 4.0])
    assert (timed.spread, timed.stop, timed.noisy, timed.host_bound, timed.call_ms) == (timing.spread, "budget", True, True, 0.5)
    assert (timed.clock_mhz, outcome.energy) == (1500.0, Energy(watts=300.0, joules=7.0))
    work = 5 * 2 * 5050 * 4 * 16  # five products of 5,050 pairs of 4 heads of 16
    assert timed.tflops == pytest.approx(work / 3e-3 / 1e12)
    assert timed.mfu == pytest.approx(timed.tflops / (989 * 1500 / 1830))  # of the peak at that clock


def test_a_share_of_the_peak_is_that_at_the_clock_of_the_times() -> None:
    mask, case = masks.causal(100), Case(100, 100, 4, 2, 16, 16)
    timing = Timing((3.0,) * 10, False, 0.5, clocks=(1500.0,) * 10, at_mhz=1410.0)
    timed = timed_outcome(timing, mask, case, Pass.FWD, "NVIDIA H200").timed
    assert timed is not None
    assert (timed.at_mhz, timed.clocks) == (1410.0, [1500] * 10)
    assert timed.mfu == pytest.approx(timed.tflops / (989 * 1410 / 1830))


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_time_exists_only_where_the_status_is_ok(status: Status) -> None:
    measured = Outcome(status=status, compile_ms=1.0, timed=TIMES, memory=Memory(1.0), energy=Energy(1.0), over_ranks=RankFigures())
    failed = make_record(planned(), measured, "env")
    assert all(getattr(failed, field) is None for field in MEASURED)
    measured.status = Status.OK
    ok = make_record(planned(), measured, "env")
    assert all(getattr(ok, field) == getattr(measured, field) for field in MEASURED)


def test_a_record_holds_what_was_asked_for_and_what_ran() -> None:
    cell = make_cell(kernel="sdpa", mask="sliding_window", seqlen=96, pass_=Pass.FWD, params=(("w", 9),), seed=7)
    record = make_record(planned(cell), Outcome(status=Status.OK, variant="math", timed=TIMES), "env")
    mask = cell.problem.build_mask()
    assert (record.kernel, record.asked, record.variant, record.label) == ("sdpa", "sdpa", "math", "sdpa:math")
    assert (record.problem, record.built.params, record.planned_grad) == (cell.problem, {"w": 9}, True)
    assert (record.built.digest, record.built.area, record.flops) == (
        mask.digest,
        mask.area,
        metrics.flops(mask, cell.case(mask), Pass.FWD),
    )
    assert (record.versions, record.split) == ({"torch": "2"}, None)
    asked = make_record(planned(), Outcome(status=Status.ERROR, reason="no"), "env")
    assert (asked.kernel, asked.asked, asked.variant) == ("torch", "torch:plain", "plain")  # what was asked for, where nothing ran


def test_a_mask_that_shows_nothing_has_a_record() -> None:
    """Its work is 0, and a record's work is 1 or more, so that a speed can be given."""
    entry = planned()
    empty = Planned(entry.cell, entry.key, type(entry.mask)(digest="d", mask="causal", seqlen_q=1, seqlen_k=1, area=0, bands=[]), {})
    assert make_record(empty, Outcome(status=Status.OK, timed=TIMES), "env").flops == 1


def outcome_at(tflops: float, monkeypatch: pytest.MonkeyPatch, cores: int = 2) -> Outcome:
    mask, case = masks.causal(1024), Case(1024, 1024, 8, 2, 64, 64, "fp32", "cpu")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    ms = metrics.flops(mask, case, Pass.FWD) / tflops / 1e9
    return timed_outcome(replace(HONEST, samples=(ms,) * 5), mask, case, Pass.FWD, "some CPU")


def test_seven_tflops_on_two_cores_are_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = outcome_at(7.0, monkeypatch)
    assert (outcome.status, outcome.timed) == (Status.INVALID, None)
    assert "7 TFLOP/s is above" in outcome.reason
    honest = outcome_at(0.1, monkeypatch)
    assert honest.status is Status.OK
    assert honest.timed is not None
    assert honest.timed.mfu is None
    assert outcome_at(7.0, monkeypatch, cores=128).status is Status.OK


def test_the_bound_is_above_what_cpus_have() -> None:
    """Datasheet peaks of one socket: a Xeon 8380 (40 cores) 5.9 in fp32, a Xeon 8480+ (56) with AMX 115 in bf16, an EPYC 9654 (96) 10.8."""
    assert metrics.cpu_bound(40, "fp32", {"avx512f"}) > 5.9
    assert metrics.cpu_bound(56, "bf16", {"avx512f", "amx_tile", "amx_bf16"}) > 115
    assert metrics.cpu_bound(96, "fp32", {"avx512f"}) > 10.8
    assert metrics.cpu_bound(4, "fp64", set()) == metrics.cpu_bound(2, "fp32", set()) == 2 * 5e9 * 64 / 1e12


def test_flags_are_read_and_unknown_ones_mean_the_fastest_kind(tmp_path: Path) -> None:
    (tmp_path / "x86").write_text("processor : 0\nflags\t\t: fpu avx2 amx_tile\n")
    (tmp_path / "arm").write_text("processor : 0\nFeatures : fp asimd sve\n")
    assert metrics.cpu_flags(tmp_path / "x86") == {"fpu", "avx2", "amx_tile"}
    assert metrics.cpu_flags(tmp_path / "arm") == metrics.cpu_flags(tmp_path / "none") == metrics.FASTEST_CPU
