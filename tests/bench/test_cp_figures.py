"""What is made of many ranks' samples: the slowest rank of each iteration, per GPU, with what the ranks wait for and hold."""

from collections.abc import Callable, Generator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from longca import masks
from longca.bench import cp_catalogue, cp_executor, plan
from longca.bench import suite as suites
from longca.bench.catalogue import Catalogue
from longca.bench.clock import CudaTimer, HostTimer, Sample, Settings, measure
from longca.bench.cp_job import Held, RanksTimer, _peak
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

    def run(self, job: str, given: dict[str, Any], seconds: float) -> list[Any]:
        step = job.partition(":")[2]
        timing = {"samples": [4.0, 5.0, 4.0], "host_bound": False, "call_ms": 0.1, "stop": "target"}
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
                {"timing": timing, "mean_samples": [2.0, 4.0, 3.2], "silent_ms": 3.0, "bytes_sent": 10 + r, "peak_bytes": (2 + r) * GIB}
                for r in range(2)
            ],
        }
        return answers[step]

    def close(self) -> None: ...


def test_figures_are_per_gpu_and_of_the_worst_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp_executor.Ranks, "_begin", lambda *given: ScriptedGroup())
    suite = suites.Suite(level="cp", methods=("ring_p2p",), nproc=2, masks=("causal",), seqlens=("64",), heads=("2:1",), head_dims=("16",))
    (job,) = plan.jobs(plan.plan(cp_catalogue.cells(suite, ["torch:chunked"], "cpu"), "a CPU", {"torch:chunked": {}}))
    found = dict(cp_executor.Ranks(suite, Catalogue(), "cpu", "a CPU", tmp_path, False).run(job))
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
