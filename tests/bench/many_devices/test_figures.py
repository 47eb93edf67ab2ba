"""What is made of many ranks' samples: the slowest rank of each iteration, per GPU, with what the ranks wait for and hold."""

from collections.abc import Callable, Generator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.many_devices.conftest import SMALL
from longca import masks
from longca.bench.clock.clock import Sample, Timing, measure
from longca.bench.clock.timers import CudaTimer, HostTimer
from longca.bench.many_devices.level import ManyDevices
from longca.bench.many_devices.rank_job import RankSession, Timed
from longca.bench.many_devices.ranks import Ranks, outside_gib
from longca.bench.many_devices.ranks_timer import RanksTimer
from longca.bench.plan.cells import plan
from longca.bench.plan.jobs import Job, make_jobs
from longca.bench.plan.suite import Suite
from longca.bench.run.outcomes import make_record
from longca.bench.run.retry import outcomes
from longca.parallel.comm.local import World
from longca.results.problem import Pass, Sharing
from longca.results.record import Memory, Record, Status, TensorError
from longca.results.settings import ClockSettings

GIB = 1 << 30
SUITE = SMALL.changed(methods=("ring_p2p",), heads=("2:1",), passes=(Pass.FWD, Pass.BWD))


class UnevenTimer:
    """In iteration n rank r takes 1 + (r + n) % 3 ms; rank 1 is always late; clocks of ranks differ by an hour. The MHz tell the time."""

    def __init__(self, rank: int) -> None:
        self.rank, self.taken = rank, 0

    def samples(self, call: Callable[[], object], before: Callable[[], object]) -> Generator[Sample, None, None]:
        while True:
            before()
            self.taken += 1
            ms = 1.0 + (self.rank + self.taken) % 3
            yield Sample(ms, self.rank == 1, 0.1 * self.rank, mhz=1000 + ms)

    def now(self) -> float:
        return 3600.0 * self.rank + self.taken


def test_a_sample_is_the_slowest_ranks_of_that_iteration_and_all_ranks_see_the_same() -> None:
    """Each rank alone has a median of 2 ms, and so has their mean; but nobody is done before 3 ms."""
    world = World(3)
    comms = world.comms()

    def program(rank: int) -> list[Any]:
        timer = RanksTimer(comms[rank], UnevenTimer(rank))
        return [*islice(timer.samples(lambda: None, lambda: befores.append(rank)), 4), timer.now()]

    befores = list[int]()
    assert world.run(program) == [[Sample(3.0, True, 0.2, 2.0, 1003.0)] * 4 + [4.0]] * 3
    assert sorted(befores) == [0] * 4 + [1] * 4 + [2] * 4  # what comes before each call comes on every rank


def test_ranks_whose_clocks_differ_stop_together() -> None:
    world = World(3)
    comms = world.comms()
    rules = ClockSettings(warmup_s=2, budget_s=5, target=-1.0)  # a target that is never met
    timings = world.run(lambda rank: measure(lambda: None, RanksTimer(comms[rank], UnevenTimer(rank)), rules))
    assert [len(timing.samples) for timing in timings] == [10, 10, 10]
    assert {(timing.median, timing.stop, timing.means) for timing in timings} == {(3.0, "budget", (2.0,) * 10)}


class ScriptedGroup:
    """Two ranks with known answers."""

    lost = False
    samples = (4.0, 5.0, 4.0)
    without_transfers_ms: float | None = 3.0

    def run(self, job: str, args: dict[str, Any], deadline: float) -> list[Any]:
        functional: dict[str, Any] = {"build_ms": 1.0, "plan_ms": 9.0, "work": 1, "backward_kinds": ["functional"]}
        functional |= {"first_ms": {"fwd": 6.0, "bwd": 30.0}, "compile_ms": 5.0}
        autograd: dict[str, Any] = {"build_ms": 2.0, "plan_ms": 3.0, "work": 3, "backward_kinds": ["autograd"]}
        autograd |= {"first_ms": {"fwd": 7.0, "bwd": 20.0}, "compile_ms": 2.0}
        timing = {"samples": self.samples, "means": [2.0, 4.0, 3.2], "host_bound": False, "call_ms": 0.1, "stop": "target"}
        answers: dict[str, list[Any]] = {
            "prepare": [functional, autograd],
            "reference": [None, None],
            "check": [{"reason": "", "errors": {"out": {"error": error, "allowed": 4.0}}} for error in (1.0, 2.0)],
            "clock": [
                {"timing": timing | {"clocks": [1500.0 + rank] * 3}, "bytes_sent": 10 + rank}
                | {"peak_bytes": (2 + rank) * GIB, "without_transfers_ms": self.without_transfers_ms}
                for rank in range(2)
            ],
        }
        return answers[args["name"]]

    def close(self) -> None: ...


def job_and_ranks(
    cache: Path, monkeypatch: pytest.MonkeyPatch, group: Any, suite: Suite = SUITE, model: str = "a CPU"
) -> tuple[Job, Ranks]:
    monkeypatch.setattr(Ranks, "_begin", lambda *_: group)
    level = ManyDevices(suite, "cpu")
    (job,) = make_jobs(plan(level.cells([]), model, level.catalogue.versions))
    return job, level.executor(model, cache, full=False)


def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: ScriptedGroup, model: str = "a CPU") -> dict[Pass, Record]:
    job, ranks = job_and_ranks(tmp_path, monkeypatch, group, model=model)
    found = dict(outcomes(job, ranks))
    return {entry.cell.problem.pass_: make_record(entry, found[entry.cell.problem.pass_], "here") for entry in job.planned}


def test_figures_are_per_gpu_and_of_the_worst_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = records(tmp_path, monkeypatch, ScriptedGroup())
    forward = found[Pass.FWD]
    over = forward.over_ranks
    assert forward.times.median == 4.0
    assert forward.speed == pytest.approx(4 * masks.causal(64).area * 2 * 16 / 2 / 4.0 / 1e9)
    assert over.wait_share == 0.25  # 3 of 4 ms are the program without transfers
    assert over.imbalance == 1.5
    assert (over.mean_ms, over.imbalance_ms) == (3.2, 1.25)  # medians of 2, 4, 3.2 ms, and of 4/2, 5/4, 4/3.2
    assert forward.backward_kind == "autograd"
    assert (forward.build_ms, forward.plan_ms, forward.compile_ms) == (2.0, 9.0, 5.0 + 3.0)  # before the first call, and in it
    assert (over.bytes_sent, forward.memory) == ([10, 11], Memory(3.0, [2.0, 3.0]))
    assert forward.check == {"out": TensorError(2.0, 4.0)}
    assert found[Pass.BWD].compile_ms == 31.0
    assert (forward.times.clock_mhz, forward.energy) == (1500.0, None)


def test_memory_beside_the_allocator_is_of_a_rank() -> None:
    """Two GPUs on which 20 and 23 GiB are taken: by ranks that have one each, or two each."""
    timing = Timing((1.0,), host_bound=False, call_ms=0.1)

    def rank(used: int, own: int) -> Timed:
        return Timed(timing, None, 0, 0, (used * GIB, own * GIB))

    assert outside_gib([rank(20, 4), rank(23, 8)], None) == 16
    assert outside_gib([rank(20, 4), rank(19, 6), rank(23, 9), rank(23, 10)], Sharing(ranks=2)) == 5
    assert outside_gib([Timed(timing, None, 0, None)], None) is None  # a CPU


@pytest.mark.parametrize("answer", [{"build_ms": "soon"}, None])
def test_a_malformed_answer_of_a_rank_costs_its_cells(answer: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimpleNamespace(lost=False, close=lambda: None, run=lambda *_: [answer, answer])
    job, ranks = job_and_ranks(tmp_path, monkeypatch, group)
    found = dict(outcomes(job, ranks))
    assert {outcome.status for outcome in found.values()} == {Status.ERROR}
    assert set(found) == {Pass.FWD, Pass.BWD}
    assert all("a rank gave a malformed answer during preparation or the first call" in outcome.reason for outcome in found.values())


def test_the_flush_buffer_is_no_memory_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"now": 5000, "most": 9999}  # bytes: the flush buffer, then tokens and results
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: held.update(most=held["now"]))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: held["most"])
    timer = object.__new__(CudaTimer)
    timer._flush = torch.empty(3000, dtype=torch.int8)
    timer._load = SimpleNamespace(tensors=(torch.empty(1000, dtype=torch.int8),))  # type: ignore[assignment]
    comm: Any = SimpleNamespace(device=torch.device("cuda"))
    session = RankSession(comm)

    def call() -> None:
        held["most"] = max(held["most"], held["now"] + 700)

    session._timer = timer
    assert session._peak_bytes(call) == 1700
    session._timer = HostTimer()
    assert session._peak_bytes(call) == 5700
