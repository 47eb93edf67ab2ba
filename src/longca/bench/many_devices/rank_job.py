"""What each rank does for a cell: prepare, make the reference, check, time. One call per step, so that each has its own deadline."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import torch

from longca.bench.check import check as checks
from longca.bench.check.calls import Calls, call_of
from longca.bench.check.expected import Expected
from longca.bench.check.own_memory import CHECK, INPUTS, REFERENCE, memory_for
from longca.bench.check.reference import Reference, data
from longca.bench.check.reference_store import ReferenceStore
from longca.bench.check.sampled_rows import SampledRows
from longca.bench.check.timed_calls import AfterClock, check_other, check_timed
from longca.bench.clock.clock import Timer, Timing, measure
from longca.bench.clock.timers import CudaTimer, timer_for
from longca.bench.many_devices.grids import plan_of
from longca.bench.many_devices.overlap import Span, profiled
from longca.bench.many_devices.ranks_timer import RanksTimer, all_agree
from longca.bench.one_device.compiled_code import CompiledGraphs
from longca.bench.plan.cell import Cell
from longca.bench.plan.plugins import load_plugin
from longca.bench.run.outcomes import to_message
from longca.kernels import registry as kernels
from longca.kernels.base import Layout
from longca.kernels.inputs import Inputs, make
from longca.parallel.comm.base import Comm
from longca.parallel.comm.null import NullComm
from longca.parallel.kernel_requirements import refuse_calls
from longca.parallel.method import Plan
from longca.parallel.primitives.program import Program, Saved, whole_heads
from longca.parallel.ranges import Ranges
from longca.parallel.recording import distinct_calls, record
from longca.processes.ranks import OtherRankFailed
from longca.processes.shared_gpu import is_shared, loaded_version
from longca.results.problem import Pass
from longca.results.settings import ClockSettings

M = TypeVar("M")


class Prepared(msgspec.Struct):
    """What a rank knows after it has planned and called each pass once."""

    build_ms: float
    plan_ms: float
    compile_ms: float  # for the kernel to be prepared for new shapes, and for communicators: a plan for the next batch does not take it
    first_ms: dict[str, float]
    work: int  # visible pairs that it computes
    backward_kinds: list[str]


class Timed(msgspec.Struct):
    """The slowest rank's samples and their means over ranks; bytes and memory of this rank; the time without transfers."""

    timing: Timing
    without_transfers_ms: float | None
    bytes_sent: int | None  # None: another project's method, whose transfers are not counted
    peak_bytes: int | None
    device_bytes: tuple[int, int] | None = None  # that all take of this rank's GPU, and this rank by torch's allocator; None on a CPU
    nccl: str | None = None
    after: AfterClock = AfterClock()  # what the timed calls returned on this rank


class ProgramSubject:
    """One rank's program, called without gradients, as the attention of a plan calls it: a part that needs a graph makes it itself."""

    def __init__(self, program: Program, comm: Comm) -> None:
        self._program, self._comm = program, comm
        self._kept: Saved | None = None

    @torch.no_grad()
    def forward(self, inputs: Inputs) -> object:
        out, self._kept = self._program.forward(*inputs.of_forward)
        return out, self._kept.lse

    @torch.no_grad()
    def backward(self, inputs: Inputs) -> object:
        """The gradients of this rank's tokens, and the sum of all ranks' dsinks."""
        assert self._kept is not None
        gradients = self._program.backward(inputs.dout, self._kept)
        if inputs.sinks is None:
            return gradients
        own = whole_heads(self._program, gradients[3], inputs.sinks)
        parts = [torch.empty_like(own) for _ in range(self._comm.size)]
        self._comm.all_gather([own], [[part] for part in parts]).wait()
        return *gradients[:3], torch.stack(parts).sum(0)

    def release(self) -> None:
        self._kept = None


@dataclass
class CurrentCell:
    """The cell that this rank works on."""

    plan: Plan
    seed: int
    draws: int
    program: Program
    comm: Comm
    layout: Layout
    own: list[tuple[int, int]]
    inputs: Inputs
    expected: Expected | None = None  # of this rank, once it is checked; on the host: it is no memory of the method
    sampled: SampledRows | None = None  # of the whole sequence

    @cached_property
    def calls(self) -> Calls:
        return Calls(ProgramSubject(self.program, self.comm), self.inputs, self.plan.case, self.draws)

    def data(self, data_set: str) -> Inputs:
        """This rank's tokens of a data set of the check."""
        assert self.sampled is not None
        return data(self.plan.case, self.sampled, data_set, self.seed, self.layout, self.own)

    def plain(self) -> Inputs:
        """This rank's tokens as they are timed."""
        return make(self.plan.case, self.seed, self.layout, self.own)


class RankSession:
    """What one rank keeps between steps."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self._current: CurrentCell | None = None
        self._graphs = CompiledGraphs()
        self._plugins: set[str] = set()
        self._timer: Timer | None = None

    def prepare(self, cell: dict[str, Any], digest: str, backward: bool, plugins: list[str], draws: int) -> Prepared:
        """Plans, prepares the kernels, makes this rank's tokens, and calls each pass once. `draws` seeds what changes between calls."""
        self._current = None
        for path in plugins:
            if path not in self._plugins:
                load_plugin(path)
                self._plugins.add(path)
        wanted, comm = msgspec.convert(cell, Cell), self._comm
        start = time.perf_counter()
        mask = wanted.problem.build_mask()
        if mask.digest != digest:
            raise RuntimeError(f"the rank built another mask ({mask.digest}) than was planned ({digest})")
        plan = plan_of(wanted, mask, backward)
        build_ms = (time.perf_counter() - start) * 1e3
        self._together(lambda: self._ask_kernel(plan))
        self._graphs.limit()
        start, opened_s = time.perf_counter(), comm.opening_s
        program, prepared = self._together(lambda: self._prepare(plan))
        compile_ms = self._compile_ms(plan, program) + 1e3 * (comm.opening_s - opened_s)
        plan_ms = max(0.0, (prepared - start) * 1e3 - compile_ms)
        layout, own = kernels.choices(plan.kernel)[0].layout, _ranges(plan.rows(comm.rank))
        with memory_for(INPUTS):
            inputs = make(plan.case, wanted.problem.seed, layout, own)
        self._current = CurrentCell(plan, wanted.problem.seed, draws, program, comm, layout, own, inputs)
        first_ms = {pass_.value: self._first_ms(pass_) for pass_ in ((Pass.FWD, Pass.BWD) if backward else (Pass.FWD,))}
        kinds = sorted(program.kernel.backward_kinds) if hasattr(program, "kernel") else []
        work = program.work(plan)
        return Prepared(build_ms, plan_ms, compile_ms, first_ms, work, kinds)

    def _together(self, make: Callable[[], M]) -> M:
        """What `make` returns on this rank, once all ranks have come through it: one that refuses must not leave the others waiting."""
        failed: Exception | None = None
        try:
            made = make()
        except Exception as error:
            failed = error
        together = all_agree(self._comm, failed is None)
        if failed is not None:
            raise failed
        if not together:
            raise OtherRankFailed
        return made

    def _prepare(self, plan: Plan) -> tuple[Program, float]:
        """This rank's program, and when it was prepared."""
        program = plan.program(self._comm)
        self._synchronize()
        return program, time.perf_counter()

    def _compile_ms(self, plan: Plan, program: Program) -> float:
        """How much longer the kernel took to be prepared than it takes again. 0 where other projects prepare kernels as they like."""
        if plan.method.peer or not hasattr(program, "kernel"):
            return 0.0
        again: Any = plan.program(self._silent)
        return 1e3 * max(0.0, float(program.kernel.prepare_s - again.kernel.prepare_s))

    def _ask_kernel(self, plan: Plan) -> None:
        """Raises where this rank's program cannot be made, or its kernel refuses a call: found on shapes, as making it joins groups."""
        if not plan.method.peer:
            refuse_calls(plan, distinct_calls([record(plan, self._comm.rank)]))

    def reference(self, cache: str, grad: bool) -> None:
        """The first rank makes it once, for all ranks and methods that see its cache."""
        if self._comm.rank == 0:
            self._reference(cache, grad)

    def check(self, cache: str, grad: bool) -> AfterClock:
        """Checks this rank's own rows and keys by the rule of every check, and the lse of the rows and heads that it computes."""
        current, program = self.current, self.current.program
        whole = self._reference(cache, grad)
        own, computed = _tokens(current.own), _tokens(_ranges(program.rows))
        local = replace(current.plan.case, seqlen_q=len(own), seqlen_k=len(own))
        lse_shape = (program.heads[1] - program.heads[0], len(computed))
        expected = Expected(whole.cut(own), whole.cut(computed, program.heads), local, lse_shape)
        current.sampled = whole.sampled
        verdict = checks.SubjectCheck(ProgramSubject(program, self._comm), local, current.data, expected.compare, lse_shape=lse_shape).run()
        current.expected = replace(expected.to("cpu"), needs_lse="lse" in verdict.errors)
        return AfterClock("" if verdict.ok else verdict.reason, verdict.tensor_errors)

    def clock(self, pass_: str, settings: dict[str, Any]) -> Timed:
        """Times a pass on all ranks together, checks what the timed calls returned, then times the same program without transfers."""
        current, rules, comm = self.current, msgspec.convert(settings, ClockSettings), self._comm
        if self._timer is None:
            self._timer = timer_for(current.plan.case.device, comm.barrier, shared=is_shared())
        calls, which = current.calls, Pass(pass_)
        calls.keep(which)
        comm.traffic.reset()
        peak = self._peak_bytes(calls.of(which))
        sent = None if current.plan.method.peer else comm.traffic.sent_bytes
        timing = measure(calls.of(which), RanksTimer(comm, self._timer), rules, before=partial(calls.change, which))
        after = self._after_clock(which)
        calls.release()  # or what it saved would lie beside what the program without transfers makes
        return Timed(
            timing=timing,
            without_transfers_ms=self._without_transfers(which, rules),
            bytes_sent=sent,
            peak_bytes=peak,
            device_bytes=self._device_bytes(),
            nccl=loaded_version() if self._comm.device.type == "cuda" else None,
            after=after,
        )

    def trace(self, pass_: str) -> list[Span]:
        """What this rank's device does during one call of a pass."""
        calls, which = self.current.calls, Pass(pass_)
        calls.keep(which)
        call = calls.of(which)

        def together() -> None:
            self._synchronize()
            self._comm.barrier()
            self._synchronize()

        call()
        spans = profiled(call, together, self._synchronize, self._comm.device.type == "cuda")
        calls.release()
        return spans

    def _after_clock(self, pass_: Pass) -> AfterClock:
        """What this rank finds; the program runs on other numbers in the same memory on all ranks, whatever each of them found."""
        current, calls = self.current, self.current.calls
        assert current.expected is not None
        with memory_for(CHECK):
            timed = check_timed(calls, pass_, current.expected)
        other = check_other(calls, current.data, pass_ is not Pass.FWD, current.expected)
        calls.write(current.plain)
        return timed if timed.reason or not other.reason else other

    @property
    def current(self) -> CurrentCell:
        assert self._current is not None  # every step comes after `prepare`
        return self._current

    def _reference(self, cache: str, grad: bool) -> Reference:
        """With the `grad` that was planned: a forward that is tried alone shares the reference of forward and backward."""
        folder, plan = Path(cache), self.current.plan
        case = replace(plan.case, backward=grad)
        with memory_for(REFERENCE):
            return ReferenceStore().get(plan.mask, case, self.current.seed, folder if folder.is_dir() else None, self._comm.size)

    def _first_ms(self, pass_: Pass) -> float:
        """The wall time of a first call, in which many kernels compile."""
        calls = self.current.calls
        calls.keep(pass_)
        self._synchronize()
        start = time.perf_counter()
        calls.of(pass_)()
        self._synchronize()
        first_ms = (time.perf_counter() - start) * 1e3
        calls.release()
        return first_ms

    def _without_transfers(self, pass_: Pass, rules: ClockSettings) -> float | None:
        """The median of the same program where nothing is sent; None on all ranks where it fails on one, such as for its memory, and for
        other projects' methods, which send by themselves."""
        assert self._timer is not None
        if self.current.plan.method.peer:
            return None
        ranks = RanksTimer(self._comm, self._timer)
        silent = MayFail(lambda: self._silent_call(pass_))
        silent()
        if not all_agree(self._comm, silent.works):
            return None
        median = measure(silent, ranks, msgspec.structs.replace(rules, budget_s=rules.budget_s / 2)).median
        return median if all_agree(self._comm, silent.works) else None

    @property
    def _silent(self) -> NullComm:
        """A Comm like this rank's that sends nothing."""
        return NullComm(self._comm.rank, self._comm.size, self._comm.device)

    def _silent_call(self, pass_: Pass) -> Callable[[], object]:
        silent = self._silent
        subject = ProgramSubject(self.current.plan.program(silent), silent)
        if pass_ is Pass.BWD:
            subject.forward(self.current.inputs)
        return call_of(subject, self.current.inputs, pass_)

    def _peak_bytes(self, call: Callable[[], object]) -> int | None:
        """The most bytes allocated during one call, all that this rank holds included, without the timer's own buffer; None on a CPU."""
        device = self._comm.device
        if device.type != "cuda":
            call()
            return None
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        own = self._timer.own_bytes if isinstance(self._timer, CudaTimer) else 0
        return int(torch.cuda.max_memory_allocated(device)) - own

    def _device_bytes(self) -> tuple[int, int] | None:
        device = self._comm.device
        if device.type != "cuda":
            return None
        free, total = torch.cuda.mem_get_info(device)
        return total - free, torch.cuda.memory_reserved(device)

    def _synchronize(self) -> None:
        if self._comm.device.type == "cuda":
            torch.cuda.synchronize(self._comm.device)


class MayFail:
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


_sessions: WeakKeyDictionary[Comm, RankSession] = WeakKeyDictionary()


def step(comm: Comm, name: str, args: dict[str, Any]) -> Any:
    """Runs a step of the session that belongs to this communicator: prepare, reference, check or clock."""
    answer = getattr(_sessions.setdefault(comm, RankSession(comm)), name)(**args)
    return None if answer is None else to_message(answer)


def _ranges(ranges: Ranges) -> list[tuple[int, int]]:
    return [(int(first), int(last)) for first, last in ranges]


def _tokens(ranges: list[tuple[int, int]]) -> Any:
    return np.concatenate([np.arange(0), *(np.arange(first, last) for first, last in ranges)])
