"""A speed that no CPU reaches is invalid when it is measured, and doubtful when it is read."""

from pathlib import Path

import pytest

from longca import masks
from longca.bench.clock.clock import Timing
from longca.bench.run import outcomes as figures
from longca.kernels.base import Case
from longca.results import metrics
from longca.results.problem import Pass
from longca.results.record import Outcome, Status

CASE = Case(1024, 1024, 8, 2, 64, 64, "fp32", "cpu")
MASK = masks.causal(1024)


def outcome_at(tflops: float, monkeypatch: pytest.MonkeyPatch, cores: int = 2) -> Outcome:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    ms = metrics.flops(MASK, CASE, Pass.FWD) / tflops / 1e9
    return figures.timed_outcome(Timing(samples=(ms,) * 5, host_bound=False, call_ms=ms, stop="target"), MASK, CASE, Pass.FWD, "some CPU")


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
