"""What each rank does for a cell of the level `cp`: prepare, make the reference, check, time. One call per step, so that each has its
own deadline; what they share stays here between calls."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from longca.bench import check as checks
from longca.bench.cell import Cell
from longca.bench.clock import CudaTimer, Sample, Settings, Timer, measure, timer_for
from longca.bench.compilations import Compilations
from longca.bench.cp_catalogue import plan_of
from longca.bench.cp_plugins import load_plugin
from longca.bench.gauge import Gauge, gauge_for
from longca.bench.reference import data
from longca.bench.references import References
from longca.kernels import registry as kernels
from longca.kernels.base import Case, Layout
from longca.kernels.inputs import WHICH, Inputs, tokens
from longca.parallel.comm.base import Comm
from longca.parallel.comm.null import NullComm
from longca.parallel.method import Plan
from longca.parallel.primitives.program import Kept, Program
from longca.parallel.ranges import Ranges

Fields = dict[str, Any]


@dataclass
class Held:
    """The cell at hand, on this rank."""

    plan: Plan
    seed: int
    program: Program
    layout: Layout
    own: list[tuple[int, int]]
    inputs: Inputs
    kept: Kept | None = None

    def call(self, which: str, program: Program) -> Callable[[], object]:
        """A pass as a function without arguments; a backward starts from one saved forward."""
        q, k, v, dout = self.inputs
        self.kept = None  # of an earlier pass: it is no part of this one's memory
        if which == "fwd":
            return lambda: program.forward(q, k, v)
        if which == "fwd+bwd":
            return lambda: program.backward(dout, program.forward(q, k, v)[1])
        kept = self.kept = program.forward(q, k, v)[1]
        return lambda: program.backward(dout, kept)


class Process:
    """What this rank's process keeps."""

    held: Held | None = None
    timer: Timer | None = None
    gauge: Gauge | None = None
    compilations = Compilations()
    plugins: tuple[str, ...] = ()


def prepare(comm: Comm, cell: Fields, backward: bool, plugins: list[str]) -> Fields:
    """Plan, prepare the kernels, make this rank's tokens, and call each pass once."""
    Process.held = None
    for path in plugins:
        if path not in Process.plugins:
            load_plugin(path)
            Process.plugins += (path,)
    wanted = Cell.from_json(cell)
    start = time.perf_counter()
    plan = plan_of(wanted, wanted.build_mask(), backward)
    built = time.perf_counter()
    Process.compilations.limit()
    program = plan.program(comm)
    _synchronize(comm)
    prepared = time.perf_counter()
    layout, own = kernels.choices(plan.kernel)[0].layout, _ranges(plan.rows(comm.rank))
    inputs = Inputs(*(tokens(name, plan.case, own, wanted.seed, layout) for name in WHICH))
    held = Process.held = Held(plan, wanted.seed, program, layout, own, inputs)
    first_ms = {which: _first(held, which, comm) for which in (("fwd", "bwd") if backward else ("fwd",))}
    about = {"build_ms": (built - start) * 1e3, "plan_ms": (prepared - built) * 1e3, "mask_digest": plan.mask.digest}
    about["backward_kinds"] = sorted(program.kernel.backward_kinds) if hasattr(program, "kernel") else []
    return about | {"first_ms": first_ms, "work": plan.pairs(program.rows, program.heads)}


def reference(comm: Comm, cache: str, grad: bool) -> None:
    """Made once, by the first rank, for all ranks and methods that see its cache."""
    if comm.rank == 0:
        _reference(_held(), cache, grad)


def check(comm: Comm, cache: str, grad: bool) -> Fields:
    """This rank's own rows and keys by the rule of every check, and the lse of the rows and heads that it computes."""
    held = _held()
    whole = _reference(held, cache, grad)
    own, computed = _tokens(held.own), _tokens(_ranges(held.program.rows))
    mine, of_lse = whole.cut(own), whole.cut(computed, held.program.heads)
    local = replace(held.plan.case, seqlen_q=len(own), seqlen_k=len(own))

    def compare(found: checks.Tensors, which: str, verdict: checks.Verdict) -> None:
        lse = {"lse": found.pop("lse")} if "lse" in found else {}
        checks.compare(found, mine, which, local, verdict)
        checks.compare(lse, of_lse, which, local, verdict)

    verdict = checks.examine(
        lambda which: data(held.plan.case, whole.probe, which, held.seed, held.layout, held.own),
        lambda inputs, verdict: _run(held.program, local, inputs, verdict),
        compare,
    )
    errors = {name: {"error": error.error, "allowed": error.allowed, "ratio": error.ratio} for name, error in verdict.errors.items()}
    return {"reason": "" if verdict.ok else verdict.reason, "errors": errors}


def clock(comm: Comm, which: str, settings: Fields) -> Fields:
    """Samples that are the slowest rank's; bytes and memory of this one; and the time of the same program without transfers."""
    held, rules = _held(), Settings(**settings)
    if Process.timer is None:
        Process.timer = timer_for(held.plan.case.device, comm.barrier)
        Process.gauge = gauge_for(comm.device.type, comm.device.index or 0)
    call = held.call(which, held.program)
    comm.traffic.reset()
    peak = _peak(call, comm, Process.timer)
    sent = comm.traffic.sent_bytes
    timing = measure(call, RanksTimer(comm, Process.timer), rules, Process.gauge)
    del call  # as with `kept`, or what it saved would lie beside what the program without transfers makes
    held.kept = None
    alone_ms = silent_ms(held, which, comm, Process.timer, rules)
    timed = {"samples": timing.samples, "host_bound": timing.host_bound, "call_ms": timing.call_ms, "stop": timing.stop}
    timed |= {"clock_mhz": timing.clock_mhz, "watts": timing.watts}
    means = [sample.mean for sample in timing.samples if isinstance(sample, OfRanks)]
    return {"timing": timed, "mean_samples": means, "silent_ms": alone_ms, "bytes_sent": sent, "peak_bytes": peak}


def silent_ms(held: Held, which: str, comm: Comm, timer: Timer, rules: Settings) -> float | None:
    """The median of the same program where nothing is ever sent; None on all ranks where it fails on one, such as for its memory.

    What was timed with transfers stands, whatever becomes of this.
    """
    ranks = RanksTimer(comm, timer)
    trial = Trial(lambda: held.call(which, held.plan.program(NullComm(comm.rank, comm.size, comm.device))))
    try:
        trial()
        if not ranks.all_say(trial.works):
            return None
        found = measure(trial, ranks, replace(rules, budget_s=rules.budget_s / 2)).median
        return found if ranks.all_say(trial.works) else None
    finally:
        held.kept = None


class Trial:
    """A call that may fail on one rank alone: it does nothing from then on, so that this rank keeps in step with the others."""

    def __init__(self, make: Callable[[], Callable[[], object]]) -> None:
        self._make, self.works = make, True
        self._call: Callable[[], object] | None = None

    def __call__(self) -> None:
        if not self.works:
            return
        try:
            self._call = self._call or self._make()
            self._call()
        except Exception as error:
            print(f"without transfers: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            self.works, self._call = False, None


class OfRanks(float):
    """The milliseconds of an iteration: the slowest rank's, of which one may ask the mean of all ranks."""

    mean: float

    def __new__(cls, slowest_ms: float, every_rank: Sequence[float]) -> OfRanks:
        found = super().__new__(cls, slowest_ms)
        found.mean = statistics.fmean(every_rank)
        return found


class RanksTimer:
    """Ranks start together, and all see the same figures: the slowest rank's time, and the first rank's clock. So they stop together."""

    def __init__(self, comm: Comm, inner: Timer) -> None:
        self._comm, self._inner = comm, inner
        self._now = self._everybodys([inner.now()])[0][0]

    def samples(self, call: Callable[[], object]) -> Generator[Sample, None, None]:
        with closing(self._inner.samples(call)) as samples:
            for ms, late, call_ms in samples:
                spin_ms = self._inner.spin_ms if isinstance(self._inner, CudaTimer) else 0.0
                rows = self._everybodys([self._inner.now(), ms, float(late), call_ms, spin_ms])
                self._now = rows[0][0]
                _, slowest_ms, any_late, longest_call_ms, spin_ms = map(max, zip(*rows, strict=True))
                if isinstance(self._inner, CudaTimer):
                    self._inner.spin_ms = spin_ms
                yield Sample(OfRanks(slowest_ms, [row[1] for row in rows]), bool(any_late), longest_call_ms)

    def now(self) -> float:
        return self._now

    def all_say(self, mine: bool) -> bool:
        return all(row[0] for row in self._everybodys([float(mine)]))

    def _everybodys(self, numbers: list[float]) -> list[list[float]]:
        mine = torch.tensor(numbers, dtype=torch.float64, device=self._comm.device)
        rows = [torch.empty_like(mine) for _ in range(self._comm.size)]
        self._comm.all_gather([mine], [[row] for row in rows]).wait()
        return [row.tolist() for row in rows]


def _run(program: Program, local: Case, inputs: Inputs, verdict: checks.Verdict) -> checks.Tensors:
    q, k, v, dout = inputs
    checks.poison(local)
    out, kept = program.forward(q, k, v)
    found = {"out": out}
    if local.backward:
        checks.poison(local)
        dq, dk, dv = program.backward(dout, kept)
        found |= {"dq": dq, "dk": dk, "dv": dv}
    checks.refuse_shapes(found, local, verdict)
    return found if kept.lse is None else found | {"lse": kept.lse}


def _held() -> Held:
    assert Process.held is not None  # every step comes after `prepare`
    return Process.held


def _reference(held: Held, cache: str, grad: bool) -> Any:
    """`grad` as planned: a forward that is tried alone shares the reference of forward and backward."""
    folder = Path(cache)
    case = replace(held.plan.case, backward=grad)
    return References().get(held.plan.mask, case, held.seed, folder if folder.is_dir() else None)


def _ranges(ranges: Ranges) -> list[tuple[int, int]]:
    return [(int(first), int(last)) for first, last in ranges]


def _tokens(ranges: list[tuple[int, int]]) -> Any:
    return np.concatenate([np.arange(0), *(np.arange(first, last) for first, last in ranges)])


def _first(held: Held, which: str, comm: Comm) -> float:
    """The wall time of a first call, in which many kernels compile."""
    call = held.call(which, held.program)
    start = time.perf_counter()
    call()
    _synchronize(comm)
    return (time.perf_counter() - start) * 1e3


def _synchronize(comm: Comm) -> None:
    if comm.device.type == "cuda":
        torch.cuda.synchronize(comm.device)


def _peak(call: Callable[[], object], comm: Comm, timer: Timer) -> int | None:
    """The most bytes allocated during one call, all that this rank holds included, but not the timer's own buffer; not known on a CPU."""
    if comm.device.type != "cuda":
        call()
        return None
    torch.cuda.synchronize(comm.device)
    torch.cuda.reset_peak_memory_stats(comm.device)
    call()
    torch.cuda.synchronize(comm.device)
    own = timer.flush_bytes if isinstance(timer, CudaTimer) else 0
    return int(torch.cuda.max_memory_allocated(comm.device)) - own
