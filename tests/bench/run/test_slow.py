"""Kernels that were three times slower at two lengths are skipped at longer ones, with the reason; --full runs them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.run.test_runner import OK, REFUSED, SUITE, Answering
from longca.bench.plan.catalogue import Catalogue, Entry
from longca.bench.plan.cells import Planned
from longca.bench.plan.jobs import Job
from longca.bench.plan.suite import Suite
from longca.bench.run.campaign import measure, plan_level
from longca.bench.run.level import Level
from longca.bench.run.outcomes import make_record
from longca.bench.run.progress import Progress
from longca.results import metrics
from longca.results.problem import Pass
from longca.results.record import Outcome, Record, Status, Times

LENGTHS = (64, 128, 256, 512)


class Timed(Answering):
    """Gives each kernel its own time per pass and length."""

    def __init__(self, ms: dict[tuple[str, Pass], float]) -> None:
        super().__init__()
        self.ms = ms

    def attempt(self, job: Job) -> Iterator[tuple[Pass, Outcome]]:
        self.asked.append(job)
        for entry in job.planned:
            ms = self.ms[entry.cell.kernel, entry.cell.problem.pass_]
            speed = metrics.tflops(make_record(entry, REFUSED, "e").flops, ms)
            yield entry.cell.problem.pass_, replace(OK, timed=Times(median=ms, p20=ms, p80=ms, samples=[ms], tflops=speed))


class TimedLevel(Level):
    """Two kernels whose times a test chooses."""

    def __init__(self, ms: dict[tuple[str, Pass], float], suite: Suite) -> None:
        catalogue = Catalogue()
        for name in ("fast", "slow"):
            catalogue.add(Entry(name, {"code": "one"}, "mine.py"))
        super().__init__(suite, "cpu", catalogue)
        self.ms = ms

    def admit(self, planned: Sequence[Planned], dry: bool) -> None: ...

    def executor(self, device_model: str, cache: Path, full: bool) -> Timed:
        self.answering = Timed(self.ms)
        return self.answering


def run(out: Path, fwd: float, bwd: float, lengths: tuple[int, ...] = LENGTHS, **settings: bool) -> dict[int, list[Record]]:
    """The records of the slow kernel by length."""
    ms = {("fast", Pass.FWD): 1.0, ("fast", Pass.BWD): 1.0, ("slow", Pass.FWD): fwd, ("slow", Pass.BWD): bwd}
    level = TimedLevel(ms, replace(SUITE, seqlens=lengths))
    records = measure(level, plan_level(level), out, show=Progress, **settings).results.records  # type: ignore[arg-type]
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
