"""The loop of a run: each mask is built once, records are written as they come, and a second run measures what is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from longca.bench.plan.catalogue import Catalogue, Entry
from longca.bench.plan.cells import Planned, plan
from longca.bench.plan.jobs import Job, make_jobs
from longca.bench.plan.suite import Suite
from longca.bench.run import health, runner
from longca.bench.run.campaign import Finished, measure, plan_level
from longca.bench.run.level import Level
from longca.bench.run.outcomes import make_record
from longca.bench.run.progress import Progress
from longca.bench.run.retry import Executor
from longca.errors import BadInput
from longca.results import metrics
from longca.results.files import read_masks, read_results
from longca.results.journal import Journal
from longca.results.problem import Pass, Problem
from longca.results.record import Outcome, Record, Status, TensorError, Times
from longca.results.settings import ClockSettings

SUITE = Suite(masks=("causal",), seqlens=(64, 65), passes=(Pass.FWD, Pass.BWD), heads=("2:1",), head_dims=("8",), dtypes=("fp32",))
TIMES = Times(median=1.0, p20=1.0, p80=1.0, samples=[1.0], tflops=1.0)
OK = Outcome(status=Status.OK, timed=TIMES, check={"out": TensorError(0.1, 1.0)})  # the speed is the cell's
REFUSED = Outcome(status=Status.UNSUPPORTED, reason="no")
Milliseconds = dict[tuple[str, Pass], float]  # by kernel and pass


class Answering(Executor):
    """An executor that gives every cell the same outcome, in 1 ms or that of its kernel and pass; and a watcher that says nothing."""

    def __init__(self, outcome: Outcome = REFUSED, ms: Milliseconds | None = None) -> None:
        super().__init__()
        self.outcome, self.ms = outcome, ms or {}

    def attempt(self, job: Job) -> Iterator[tuple[Pass, Outcome]]:
        for entry in job.planned:
            pass_, outcome = entry.cell.problem.pass_, self.outcome
            if outcome.timed:
                ms = self.ms.get((entry.cell.kernel, pass_), 1.0)
                speed = metrics.tflops(make_record(entry, REFUSED, "e").flops, ms)
                outcome = replace(outcome, timed=Times(median=ms, p20=ms, p80=ms, samples=[ms], tflops=speed))
            yield pass_, outcome

    def begin(self, job: Job) -> None: ...

    def finished(self, record: Record) -> None: ...


class Answered(Level):
    """The kernel kk, or those with milliseconds, in a version of its code; all cells have one outcome."""

    def __init__(self, outcome: Outcome = OK, code: str = "one", suite: Suite = SUITE, ms: Milliseconds | None = None) -> None:
        names = {name for name, _ in ms or {}} or {"kk"}
        super().__init__(suite, "cpu", Catalogue({name: Entry(name, {"code": code}, "mine.py") for name in sorted(names)}))
        self.outcome, self.ms = outcome, ms

    def admit(self, planned: Sequence[Planned], dry: bool) -> None: ...

    def executor(self, device_model: str, cache: Path, full: bool) -> Answering:
        return Answering(self.outcome, self.ms)


def run(level: Answered, out: Path, **settings: bool) -> Finished:
    return measure(level, plan_level(level), out, show=Progress, **settings)  # type: ignore[arg-type]


def test_a_run_builds_each_mask_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To plan it; whoever measures it builds it for himself. Records and masks.jsonl need it no more, however many lie between."""
    built, build = list[Problem](), Problem.build_mask
    monkeypatch.setattr(Problem, "build_mask", lambda problem: built.append(problem) or build(problem))
    suite = replace(SUITE, masks=("uniform_block", "causal_document"), seeds=(90, 91, 92), seqlens=(300, 301))
    entries = plan(Answered(suite=suite).cells(()), "a CPU", {"kk": {"code": "one"}})
    with Journal(tmp_path) as journal:
        runner.make_cache(tmp_path)
        for entry in entries:
            journal.add_mask(entry.mask)
        assert runner.execute(make_jobs(entries), Answering(), journal, "here", Answering()) == (0, False)
    assert len(journal.records) == len(entries) == 2 * 2 * 3 * 2
    assert len(built) == len({entry.cell.problem.every_pass for entry in entries}) == 12
    for entry in entries:
        mask, record = build(entry.cell.problem), journal.records[entry.key]
        assert record.flops == metrics.flops(mask, entry.cell.case(mask), entry.cell.problem.pass_)
        assert (record.built.params, record.built.seqlen_q, record.built.area) == (mask.params, mask.seqlen_q, mask.area)
    assert {entry.digest for entry in read_masks(tmp_path).entries} == {entry.mask.digest for entry in entries}
    assert not (tmp_path / runner.CACHE).exists()


def test_a_second_run_measures_nothing_and_gives_the_same_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(Answered(), tmp_path)
    assert (first.measured, first.left, len(first.results.records)) == (4, 0, 4)
    assert all(record.versions == {"code": "one"} for record in first.results.records)
    capsys.readouterr()
    second = run(Answered(), tmp_path)
    assert (second.measured, second.results.records) == (0, first.results.records)
    assert f"resuming {tmp_path}: 4 of 4 cells are done." in capsys.readouterr().err


def test_times_of_other_clock_settings_are_kept_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(**clock: Any) -> list[str]:
        run(Answered(suite=replace(SUITE, clock=ClockSettings(**clock))), tmp_path)
        return capsys.readouterr().err.splitlines()

    assert not any("other settings" in line for line in said(budget_s=2.0))
    assert not any("other settings" in line for line in said(budget_s=2))
    *_, line = said(budget_s=3.0, least=7)
    settings = "budget_s 2.0, now 3.0, least 10, now 7"
    assert line == f"4 cells of it were measured with other settings of the clock ({settings}); another --out measures everything again."


def test_edited_code_is_measured_again_and_going_back_to_it_costs_nothing(tmp_path: Path) -> None:
    run(Answered(code="one"), tmp_path)
    assert run(Answered(code="two"), tmp_path).measured == 4
    before = run(Answered(code="one"), tmp_path)
    assert before.measured == 0
    assert {(record.versions or {})["code"] for record in before.results.records} == {"one"}


@pytest.mark.parametrize(
    ("status", "settings", "measured"),
    [
        (Status.SKIPPED, {}, 0),
        (Status.SKIPPED, {"retry": True}, 0),
        (Status.SKIPPED, {"full": True}, 4),
        (Status.ERROR, {}, 0),
        (Status.ERROR, {"full": True}, 0),
        (Status.ERROR, {"retry": True}, 4),
        (Status.UNSUPPORTED, {"retry": True, "full": True}, 0),
        (Status.OK, {"retry": True, "full": True}, 0),
    ],
)
def test_what_is_measured_again(tmp_path: Path, status: Status, settings: dict[str, bool], measured: int) -> None:
    run(Answered(OK if status is Status.OK else Outcome(status=status, reason="why")), tmp_path)
    again = run(Answered(), tmp_path, **settings)
    assert again.measured == measured
    assert {record.status for record in again.results.records} == {Status.OK if measured else status}
    assert len(read_results(tmp_path).entries) == 4 + measured


def test_a_run_without_kernels_is_refused() -> None:
    level = Answered()
    level.catalogue = Catalogue()
    with pytest.raises(BadInput, match="no kernel runs here"):
        plan_level(level)


def test_a_busy_machine_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    assert health.busy("cpu") == []
    monkeypatch.setattr(health.os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    assert [sentence.partition(" on ")[0] for sentence in health.busy("cpu")] == ["the load is 99.0"]


LENGTHS = (64, 128, 256, 512)


def run_slow(out: Path, fwd: float, bwd: float, lengths: tuple[int, ...] = LENGTHS) -> dict[int, list[Record]]:
    """The records of the slow kernel by length."""
    ms = {("fast", Pass.FWD): 1.0, ("fast", Pass.BWD): 1.0, ("slow", Pass.FWD): fwd, ("slow", Pass.BWD): bwd}
    level = Answered(suite=replace(SUITE, seqlens=lengths), ms=ms)
    records = run(level, out).results.records
    assert all(record.ok for record in records if record.kernel == "fast")
    return {n: [record for record in records if (record.kernel, record.problem.seqlen) == ("slow", n)] for n in lengths}


@pytest.mark.parametrize(("fwd", "bwd", "skipped"), [(3.0, 3.1, True), (2.9, 9.0, False), (9.0, 2.9, False)])
def test_a_kernel_that_was_slow_in_every_pass_is_skipped(tmp_path: Path, fwd: float, bwd: float, skipped: bool) -> None:
    records = run_slow(tmp_path, fwd, bwd)
    assert all(record.ok for n in LENGTHS[:2] for record in records[n])
    for n in LENGTHS[2:]:
        assert [record.status for record in records[n]] == [Status.SKIPPED if skipped else Status.OK] * 2
    if skipped:
        reason = "at least 3.0 times slower than the fastest kernel at 64 and 128 tokens: skipped beyond; --full runs it"
        assert {record.reason for n in LENGTHS[2:] for record in records[n]} == {reason}


def test_lengths_of_an_earlier_run_count(tmp_path: Path) -> None:
    run_slow(tmp_path, 4.0, 4.0, LENGTHS[:2])
    assert [record.status for record in run_slow(tmp_path, 4.0, 4.0, LENGTHS[:3])[256]] == [Status.SKIPPED] * 2


def test_shorter_lengths_are_measured_however_slow_it_was_at_longer_ones(tmp_path: Path) -> None:
    run_slow(tmp_path, 4.0, 4.0, LENGTHS[2:])
    assert all(record.ok for own in run_slow(tmp_path, 4.0, 4.0).values() for record in own)
