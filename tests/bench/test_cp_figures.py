"""What is made of many ranks' samples: the slowest rank of each iteration, per GPU, with what the ranks wait for and hold."""

import threading
from collections.abc import Callable, Generator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest
import torch
from longca.bench.catalogue import Catalogue
from longca.bench.cp_job import Held, Process, RanksTimer, _peak

from longca import masks
from longca.bench import cp_catalogue, cp_executor, cp_job, plan, record
from longca.bench import suite as suites
from longca.bench.clock import CudaTimer, HostTimer, Sample, Settings, measure
from longca.kernels.inputs import Inputs
from longca.parallel.comm.local import World

GIB = 1 << 30


class UnevenTimer:
    """In iteration n rank r takes 1 + (r + n) % 3 ms; rank 1 is always late; clocks of ranks differ by an hour."""

    def __init__(self, rank: int) -> None:
        self.rank, self.taken = rank, 0

    def samples(self, call: Callable[[], object]) -> Generator[Sample, None, None]:
        while True:
            self.taken += 1
            yield Sample(1.0 + (self.rank + self.taken) % 3, self.rank == 1, 0.1 * self.rank)

    def now(self) -> float:
        return 3600.0 * self.rank + self.taken


def test_a_sample_is_the_slowest_ranks_of_that_iteration_and_everybody_sees_the_same() -> None:
    """Each rank alone has a median of 2 ms, and so has their mean; but nobody is done before 3 ms."""
    world = World(3)
    comms = world.comms()

    def program(rank: int) -> list[Any]:
        timer = RanksTimer(comms[rank], UnevenTimer(rank))
        return [*islice(timer.samples(lambda: None), 4), timer.now()]

    seen = world.run(program)
    assert all(sample.ms.mean == 2.0 for samples in seen for sample in samples[:-1])
    assert seen == [[Sample(3.0, True, 0.2)] * 4 + [4.0]] * 3


def test_ranks_whose_clocks_differ_stop_together() -> None:
    world = World(3)
    comms = world.comms()
    rules = Settings(warmup_s=2, budget_s=5, target=-1.0)  # a target that is never met
    timings = world.run(lambda rank: measure(lambda: None, RanksTimer(comms[rank], UnevenTimer(rank)), rules))
    assert [len(timing.samples) for timing in timings] == [5, 5, 5]
    assert {(timing.median, timing.stop) for timing in timings} == {(3.0, "budget")}


class ScriptedGroup:
    """Two ranks with known answers."""

    lost = False
    samples = (4.0, 5.0, 4.0)
    silent_ms: float | None = 3.0

    def run(self, job: str, given: dict[str, Any], seconds: float) -> list[Any]:
        step = job.partition(":")[2]
        timing = {"samples": self.samples, "host_bound": False, "call_ms": 0.1, "stop": "target"}
        answers: dict[str, list[Any]] = {
            "prepare": [
                {
                    "build_ms": 1.0,
                    "plan_ms": 9.0,
                    "mask_digest": "d",
                    "work": 1,
                    "backward_kinds": ["functional"],
                    "first_ms": {"fwd": 6.0, "bwd": 30.0},
                },
                {
                    "build_ms": 2.0,
                    "plan_ms": 3.0,
                    "mask_digest": "d",
                    "work": 3,
                    "backward_kinds": ["autograd"],
                    "first_ms": {"fwd": 7.0, "bwd": 20.0},
                },
            ],
            "reference": [None, None],
            "check": [{"reason": "", "errors": {"out": {"error": e, "allowed": 4.0, "ratio": e / 4}}} for e in (1.0, 2.0)],
            "clock": [
                {
                    "timing": timing | {"clock_mhz": 1500.0 + r, "watts": 600.0 + r},
                    "mean_samples": [2.0, 4.0, 3.2],
                    "silent_ms": self.silent_ms,
                    "bytes_sent": 10 + r,
                    "peak_bytes": (2 + r) * GIB,
                }
                for r in range(2)
            ],
        }
        return answers[step]

    def close(self) -> None: ...


def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: ScriptedGroup, device_model: str = "a CPU") -> dict[str, Any]:
    monkeypatch.setattr(cp_executor.Ranks, "_begin", lambda *given: group)
    suite = suites.Suite(level="cp", methods=("ring_p2p",), nproc=2, masks=("causal",), seqlens=("64",), heads=("2:1",), head_dims=("16",))
    (job,) = plan.jobs(plan.plan(cp_catalogue.cells(suite, ["torch:chunked"], "cpu"), "a CPU", {"torch:chunked": {}}))
    found = dict(cp_executor.Ranks(suite, Catalogue(), "cpu", device_model, tmp_path, False).run(job))
    return {entry.cell.which: record.make(entry, found[entry.cell.which] | {"mask_digest": entry.digest}, "here") for entry in job.planned}


def test_figures_are_per_gpu_and_of_the_worst_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = records(tmp_path, monkeypatch, ScriptedGroup())
    forward = found["fwd"]
    assert forward["ms"]["median"] == 4.0
    assert forward["tflops"] == pytest.approx(4 * masks.causal(64).area * 2 * 16 / 2 / 4.0 / 1e9)
    assert forward["wait_share"] == 0.25  # 3 of 4 ms are the program where nothing is sent
    assert forward["imbalance"] == 1.5
    assert (forward["mean_ms"], forward["imbalance_ms"]) == (3.2, 1.25)  # medians of 2, 4, 3.2 ms, and of 4/2, 5/4, 4/3.2
    assert forward["backward_kind"] == "autograd"
    assert (forward["build_ms"], forward["plan_ms"], forward["compile_ms"]) == (2.0, 9.0, 3.0)
    assert (forward["bytes_sent"], forward["peak_gib_ranks"], forward["peak_gib"]) == ([10, 11], [2.0, 3.0], 3.0)
    assert forward["check"] == {"out": {"error": 2.0, "allowed": 4.0}}
    assert found["bwd"]["compile_ms"] == 26.0
    assert (forward["clock_mhz"], forward["watts"]) == (1500.0, 600.0)  # of the first rank


def test_without_a_silent_run_only_the_share_of_waiting_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = ScriptedGroup()
    group.silent_ms = None
    forward = records(tmp_path, monkeypatch, group)["fwd"]
    assert (forward["status"], forward["ms"]["median"], forward["wait_share"]) == ("ok", 4.0, None)


def test_a_time_that_cannot_be_leaves_no_figure_of_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = ScriptedGroup()
    group.samples = (1e-9, 1e-9, 1e-9)
    forward = records(tmp_path, monkeypatch, group, "NVIDIA H200")["fwd"]
    assert forward["status"] == "invalid"
    assert [forward[name] for name in ("ms", "mean_ms", "imbalance_ms", "wait_share", "bytes_sent")] == [None] * 5


def test_the_flush_buffer_is_no_memory_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    comm = SimpleNamespace(device=torch.device("cuda"))
    held = {"now": 5000, "most": 9999}  # bytes: the flush buffer, then tokens and results
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: held.update(most=held["now"]))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: held["most"])
    timer = object.__new__(CudaTimer)
    timer._flush = torch.empty(4000, dtype=torch.int8)

    def call() -> None:
        held["most"] = max(held["most"], held["now"] + 700)

    assert _peak(call, comm, timer) == 1700  # type: ignore[arg-type]
    assert _peak(call, comm, HostTimer()) == 5700  # type: ignore[arg-type]


def test_a_forward_holds_nothing_that_an_earlier_backward_kept() -> None:
    program: Any = SimpleNamespace(forward=lambda *_: ("out", "kept"), backward=lambda *_: "gradients")
    held = Held(SimpleNamespace(), 0, program, "LHD", [], Inputs(*[torch.empty(0)] * 4))  # type: ignore[arg-type]
    assert held.call("bwd", program)() == "gradients"
    assert held.kept == "kept"
    held.call("fwd", program)
    assert held.kept is None


class Saved:
    """What a forward keeps, which can be watched."""


class SavingProgram:
    """Counts what earlier forwards saved and somebody still holds; may run out of memory from some call on."""

    def __init__(self, saved: WeakSet[Saved], last_call: float = float("inf")) -> None:
        self.saved, self.left, self.most = saved, last_call, len(saved)

    def forward(self, *_: object) -> tuple[str, Saved]:
        self.left -= 1
        if self.left < 0:
            raise torch.OutOfMemoryError("no room")
        self.most = max(self.most, len(self.saved))
        kept = Saved()
        self.saved.add(kept)
        return "out", kept

    def backward(self, *_: object) -> str:
        self.left -= 1
        if self.left < 0:
            raise torch.OutOfMemoryError("no room")
        return "gradients"


def clocked(monkeypatch: pytest.MonkeyPatch, silent: list[Any], which: str = "bwd") -> list[dict[str, Any]]:
    """The answers of ranks whose program without transfers is this one."""
    world = World(len(silent))
    comms, own = world.comms(), threading.local()

    def step(rank: int) -> dict[str, Any]:
        own.plan = SimpleNamespace(program=lambda comm: silent[rank](), case=SimpleNamespace(device="cpu"))
        sending: Any = silent[rank].sending
        own.held = Held(own.plan, 0, sending, "LHD", [], Inputs(*[torch.empty(0)] * 4))
        return cp_job.clock(comms[rank], which, {"warmup_s": 0.0, "budget_s": 60.0, "least": 5, "target": 9.0})

    monkeypatch.setattr(cp_job, "_held", lambda: own.held)
    monkeypatch.setattr(cp_job, "timer_for", lambda device, align: HostTimer())
    monkeypatch.setattr(Process, "timer", None)
    monkeypatch.setattr(Process, "gauge", None)
    return world.run(step)


class Silent:
    """Makes a rank's program without transfers."""

    def __init__(self, last_call: float = float("inf")) -> None:
        self.saved: WeakSet[Saved] = WeakSet()
        self.sending, self.last_call = SavingProgram(self.saved), last_call

    def __call__(self) -> SavingProgram:
        self.made = SavingProgram(self.saved, self.last_call)
        return self.made


def test_a_backward_without_transfers_is_made_when_nothing_is_held_of_the_one_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = Silent()
    (answer,) = clocked(monkeypatch, [silent])
    assert answer["silent_ms"] > 0
    assert silent.made.most == 0


@pytest.mark.parametrize("last_call", [0, 1, 3])
def test_where_one_rank_fails_without_transfers_all_keep_what_they_timed(last_call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = clocked(monkeypatch, [Silent(), Silent(last_call), Silent()])
    assert [answer["silent_ms"] for answer in answers] == [None] * 3
    assert all(len(answer["timing"]["samples"]) >= 5 for answer in answers)


def test_every_rank_reads_the_gauge_of_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def gauge_for(device: str, index: int) -> Any:
        asked.append((device, index))
        return SimpleNamespace(read=lambda: (1500.0, 600.0))

    monkeypatch.setattr(cp_job, "gauge_for", gauge_for)
    (answer,) = clocked(monkeypatch, [Silent()], "fwd")
    assert asked == [("cpu", 0)]
    assert (answer["timing"]["clock_mhz"], answer["timing"]["watts"]) == (1500.0, 600.0)
