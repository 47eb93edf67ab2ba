"""Kernels that were three times slower at two lengths are skipped at longer ones, with the reason; --full runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.run.test_runner import SUITE, Answered
from longca.bench.run.campaign import measure, plan_level
from longca.results.problem import Pass
from longca.results.record import Record, Status

LENGTHS = (64, 128, 256, 512)


def run(out: Path, fwd: float, bwd: float, lengths: tuple[int, ...] = LENGTHS, **settings: bool) -> dict[int, list[Record]]:
    """The records of the slow kernel by length."""
    ms = {("fast", Pass.FWD): 1.0, ("fast", Pass.BWD): 1.0, ("slow", Pass.FWD): fwd, ("slow", Pass.BWD): bwd}
    level = Answered(suite=replace(SUITE, seqlens=lengths), ms=ms)
    records = measure(level, plan_level(level), out, **settings).results.records  # type: ignore[arg-type]
    assert all(record.ok for record in records if record.kernel == "fast")
    return {n: [record for record in records if (record.kernel, record.problem.seqlen) == ("slow", n)] for n in lengths}


@pytest.mark.parametrize(("fwd", "bwd", "skipped"), [(3.0, 3.1, True), (2.9, 9.0, False), (9.0, 2.9, False)])
def test_a_kernel_that_was_slow_in_every_pass_is_skipped(tmp_path: Path, fwd: float, bwd: float, skipped: bool) -> None:
    records = run(tmp_path, fwd, bwd)
    assert all(record.ok for n in LENGTHS[:2] for record in records[n])
    for n in LENGTHS[2:]:
        assert [record.status for record in records[n]] == [Status.SKIPPED if skipped else Status.OK] * 2
    if skipped:
        reason = "at least 3.0 times slower than the fastest kernel at 64 and 128 tokens: skipped beyond; --full runs it"
        assert {record.reason for n in LENGTHS[2:] for record in records[n]} == {reason}


def test_lengths_of_an_earlier_run_count(tmp_path: Path) -> None:
    run(tmp_path, 4.0, 4.0, LENGTHS[:2])
    assert [record.status for record in run(tmp_path, 4.0, 4.0, LENGTHS[:3])[256]] == [Status.SKIPPED] * 2


def test_shorter_lengths_are_measured_however_slow_it_was_at_longer_ones(tmp_path: Path) -> None:
    run(tmp_path, 4.0, 4.0, LENGTHS[2:])
    assert all(record.ok for own in run(tmp_path, 4.0, 4.0).values() for record in own)
