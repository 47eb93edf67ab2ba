"""One job inside a worker: build the mask, prepare the kernel, check it, time its passes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from longca.bench.check.own_memory import CHECK, INPUTS, memory_for
from longca.bench.one_device.messages import Answer, Chosen, Profiled, WorkerJob
from longca.bench.run.outcomes import CellFailed, failure, timed_outcome
from longca.errors import Refused
from longca.kernels import registry
from longca.kernels.base import BYTES, Attention, Case, Kernel, Prepared, Yes
from longca.masks import AnyMask
from longca.results.metrics import GIB
from longca.results.problem import Pass
from longca.results.record import Check, Memory, Outcome, Status
from longca.results.settings import SAMPLE_LENGTH
from longca.text import format_memory, plural, short

if TYPE_CHECKING:
    from longca.bench.check.calls import Calls
    from longca.bench.check.expected import Expected
    from longca.bench.check.reference import Reference
    from longca.bench.check.timed_calls import AfterClock
    from longca.bench.check.trial_names import TrialName
    from longca.bench.check.trials import Tried
    from longca.bench.check.verdict import Verdict
    from longca.bench.one_device.session import Session
    from longca.kernels.inputs import Inputs

SLOW_S, LONG_S = 0.2, 60.0  # a kernel that is prepared in less is prepared twice; in more, never


def run(job: WorkerJob, session: Session) -> Iterator[Chosen | Answer | Profiled]:
    """The chosen variant, then an answer for every pass; what fails raises."""
    if job.trial is not None:
        yield from _try(job, job.trial, session)
        return
    cell = job.cells[0]
    if job.compile_only:
        _compile(job, session)
        return
    if session.held is not None and session.held[0] == cell.job:
        yield from (Answer(each.problem.pass_, session.held[1].outcome(each.problem.pass_)) for each in job.cells)
        return
    session.held = None
    session.phase("build")
    mask = session.mask(cell, job.digest)
    case = cell.case(mask)
    kernel = registry.choose(cell.kernel, mask, case)
    refuse_quadratic(kernel, mask, case, session.quadratic)
    yield session.choose(kernel.label, case.backward)
    session.phase("start")  # importing torch takes seconds, and is not this kernel's fault
    session.start_device(case.device)
    session.graphs.limit()
    session.phase("build")
    (kernel, attention), plan_ms, tuning_ms, prepared_bytes = _prepare(kernel, mask, case, session)
    reference = session.reference(mask, replace(case, backward=job.reference_grad), cell.problem.seed)
    session.phase("build")  # kernels compile in their first call
    check, first_ms = _check(kernel, attention, case, cell.problem.seed, reference, session, job.repeats)
    known: dict[str, Any] = {"variant": kernel.variant or None, "backward_kind": kernel.backward, "grad": case.backward, "check": check}
    known |= {
        "chose": kernel.chose or None,
        "build_ms": session.build_ms,
        "plan_ms": plan_ms,
        "select_ms": getattr(mask, "select_ms", None),
    }
    if not job.timed:
        yield from (Answer(cell.problem.pass_, Outcome(status=Status.OK, **known)) for cell in job.cells)
        return
    if not (job.holds or kernel.chooses):  # `longca ab` starts new processes in each round, and checks in each
        _refuse_wrong_in_trial(kernel.label, case, session)
    from longca.bench.check.calls import Calls
    from longca.bench.check.check import KernelSubject
    from longca.bench.check.expected import Expected
    from longca.bench.check.reference import data
    from longca.kernels.inputs import make

    inputs = partial(make, case, cell.problem.seed, kernel.layout)
    with memory_for(INPUTS):
        calls = Calls(KernelSubject(kernel, attention, case), inputs(), case)
    expected, first_ms = Expected.of_kernel(reference, case, "lse" in check), {**first_ms, "tuning": tuning_ms}
    timer = PassTimer(session, calls, mask, case, expected, prepared_bytes, first_ms, known, cell.problem.cudagraph)
    timed = dict[Pass, Outcome]()
    for pass_ in (cell.problem.pass_ for cell in job.cells):
        timed[pass_] = _refused_alone(kernel, mask, case, pass_, known) or timer.outcome(pass_)
    for pass_ in (pass_ for pass_, outcome in timed.items() if job.traces and outcome.status is Status.OK):
        yield timer.profiled(pass_, Path(job.traces or ""))
    failed = timer.failed_on_other_numbers(lambda data_set: data(case, reference.sampled, data_set, cell.problem.seed, kernel.layout))
    if job.holds:
        calls.write(inputs)
        session.held = cell.job, timer
    yield from (Answer(pass_, failed if failed and outcome.status is Status.OK else outcome) for pass_, outcome in timed.items())


def _compile(job: WorkerJob, session: Session) -> None:
    """Prepares a kernel and calls it once."""
    from longca.bench.check.check import KernelSubject
    from longca.kernels.inputs import make

    cell = job.cells[0]
    mask = session.mask(cell, job.digest)
    case = cell.case(mask)
    kernel = registry.choose(cell.kernel, mask, case)
    refuse_quadratic(kernel, mask, case, SAMPLE_LENGTH)
    prepared, attention = registry.prepare(kernel, mask, case)
    inputs, subject = make(case, cell.problem.seed, prepared.layout), KernelSubject(prepared, attention, case)
    subject.forward(inputs)
    if case.backward:
        subject.backward(inputs)


def _refuse_wrong_in_trial(label: str, case: Case, session: Session) -> None:
    """Raises for a kernel that is wrong in a short trial, in which all rows of several calls are compared. It is made once in a process for
    each shape and dtype, before the first time of a kernel: one that is wrong in one of them may be right in others. A kernel that cannot
    run at this length is not tried."""
    from longca.bench.check.trial_names import TRIAL_TOKENS, TrialName
    from longca.bench.check.trials import Asked, run_trial

    asked = Asked(label, case, None, 0, session.short_reference, passes=(case.backward,))
    own = label, replace(case, seqlen_q=0, seqlen_k=0)
    if own not in session.tried:
        session.phase("build")  # for the shapes of the trial
        session.tried[own] = None
        try:
            session.tried[own] = run_trial(TrialName.LATER, asked).verdict
        except Exception as error:
            session.after_error(error)
            if session.device_lost:
                raise
    if (verdict := session.tried[own]) and not verdict.ok:
        raise CellFailed(Status.WRONG, f"in a trial of {TRIAL_TOKENS} tokens: {verdict.reason}", verdict.tensor_errors)


def _refused_alone(kernel: Kernel, mask: AnyMask, case: Case, pass_: Pass, known: dict[str, Any]) -> Outcome | None:
    """The outcome of a forward that the kernel refuses alone, as one with a backward but no forward of its own does; None for others."""
    if pass_ is not Pass.FWD or not case.backward:
        return None
    try:
        registry.choose(kernel, mask, replace(case, backward=False))
    except Refused as refusal:
        return failure(refusal, grad=known["grad"], build_ms=known["build_ms"])
    return None


@dataclass(frozen=True)
class PassTimer:
    """Times the passes of a kernel that was found right, and checks what the timed calls returned."""

    session: Session
    calls: Calls
    mask: AnyMask
    case: Case
    expected: Expected
    prepared_bytes: int
    first_ms: dict[str, float]  # of the first call of each pass, and of tuning
    known: dict[str, Any]  # fields of all outcomes
    cudagraph: bool = False

    def outcome(self, pass_: Pass) -> Outcome:
        """The outcome of one pass: what fails in it says nothing about the others, unless the device is lost."""
        self.session.phase("time")
        try:
            return self._timed(pass_)
        except Exception as error:
            return self._failed(error)

    def profiled(self, pass_: Pass, folder: Path) -> Profiled:
        """Where the time of a pass goes."""
        from longca.bench.one_device.profiling import profile

        trace = folder / f"{pass_.value.replace('+', '-')}.json"
        self.calls.keep(pass_)
        cuda = self.case.device == "cuda"
        spent = profile(self.calls.load(pass_), f"longca {pass_.value}", self.session.synchronize, cuda, trace)
        self.calls.release()
        return Profiled(pass_, spent, str(trace))

    def failed_on_other_numbers(self, inputs_of: Callable[[str], Inputs]) -> Outcome | None:
        """The outcome of a kernel that fails on other numbers in the memory of the timed inputs; None where it is right."""
        from longca.bench.check.timed_calls import check_other

        try:
            after = check_other(self.calls, inputs_of, self.case.backward, self.expected)
        except Exception as error:
            return self._failed(error)
        return self._failed(self._wrong(after)) if after.reason else None

    def _timed(self, pass_: Pass) -> Outcome:
        calls, session, case = self.calls, self.session, self.case
        kept_bytes = calls.keep(pass_, session.allocated, session.synchronize)
        if self.cudagraph:
            try:
                kept_bytes += calls.capture(pass_, session.allocated)
            except Refused:
                session.recover()  # a capture that failed may have broken the device
                raise
        peak_bytes, timing = session.time(calls.of(pass_), partial(calls.change, pass_))
        with memory_for(CHECK):
            nondeterministic = self._check(pass_)
        figures: dict[str, Any] = {"energy": session.energy(calls.of(pass_)), "nondeterministic": nondeterministic}
        calls.release()
        first, steady = sum(self.first_ms[part] for part in pass_.parts), timing.median if case.device == "cuda" else timing.call_ms
        figures["compile_ms"] = self.first_ms["tuning"] + max(0.0, first - steady)
        if peak_bytes is not None:
            figures["memory"] = Memory(max(0, self.prepared_bytes + kept_bytes + peak_bytes) / GIB)
        return timed_outcome(timing, self.mask, case, pass_, session.device_model, **self.known, **figures)

    def _check(self, pass_: Pass) -> bool:
        """Whether the timed calls gave different bits; raises where they are wrong."""
        from longca.bench.check.balance import unbalanced
        from longca.bench.check.expected import Expected
        from longca.bench.check.timed_calls import LAST_WRONG, AfterClock, check_drawn_rows, check_timed

        calls, case, session = self.calls, replace(self.case, backward=pass_ is not Pass.FWD), self.session
        after = check_timed(calls, pass_, self.expected)
        if not after.reason and not self.expected.of_all_rows:
            inputs = calls.plain_inputs()
            drawn = check_drawn_rows(calls, pass_, Expected.of_kernel(session.drawn_rows(self.mask, case, inputs), case))
            problem = unbalanced(self.mask, case, inputs, calls.last(pass_)) if case.backward else ""
            after = drawn if drawn.reason else AfterClock(f"{LAST_WRONG}: {problem}") if problem else after
        if after.reason:
            raise self._wrong(after)
        return after.nondeterministic

    def _wrong(self, after: AfterClock) -> CellFailed:
        return CellFailed(Status.WRONG, after.reason, self.known["check"] | after.errors)

    def _failed(self, error: Exception) -> Outcome:
        """The outcome for what was raised; raises it again where the device is lost."""
        self.calls.release()
        if not isinstance(error, CellFailed):
            self.session.after_error(error)
        if self.session.device_lost:
            raise error
        return failure(error, grad=self.known["grad"], build_ms=self.known["build_ms"])


def _prepare(kernel: Kernel, mask: AnyMask, case: Case, session: Session) -> tuple[Prepared, float, float, int]:
    """The prepared kernel, the milliseconds of planning, those of what a process does only once (compiling, loading code, tuning), and the
    bytes of device memory that the prepared kernel holds.

    A second preparation tells them apart. It is not made where the first one took over `LONG_S`, nor over `SLOW_S` if the second one was
    about as slow for this kernel before.
    """
    prepared, first_ms, held = _timed(kernel, mask, case, session)
    is_useful = first_ms / 1e3 < SLOW_S or (first_ms / 1e3 < LONG_S and first_ms >= 2 * session.slow_plans.get(kernel.label, 0.0))
    if not is_useful and not kernel.chooses:  # whose autotuning is not part of planning
        return prepared, first_ms, 0.0, held
    session.phase("build")  # with a deadline of its own
    del prepared  # there may be no memory for two
    gc.collect()
    prepared, second_ms, held = _timed(kernel, mask, case, session)
    if first_ms / 1e3 >= SLOW_S and second_ms > first_ms / 2:
        session.slow_plans[kernel.label] = second_ms
    return prepared, min(first_ms, second_ms), max(0.0, first_ms - second_ms), held


def _timed(kernel: Kernel, mask: AnyMask, case: Case, session: Session) -> tuple[Prepared, float, int]:
    """The prepared kernel, its milliseconds, and the bytes that it holds; 0 where Python freed more of earlier jobs meanwhile."""
    before, start = session.allocated(), perf_counter()
    prepared = registry.prepare(kernel, mask, case)
    session.synchronize()
    return prepared, (perf_counter() - start) * 1e3, max(0, session.allocated() - before)


def _check(
    kernel: Kernel, attention: Attention, case: Case, seed: int, reference: Reference, session: Session, repeats: int
) -> tuple[Check, dict[str, float]]:
    """The errors of each tensor, and the milliseconds of each pass's first call."""
    from longca.bench.check.check import check_kernel

    def tell_wrong(verdict: Verdict) -> None:
        session.tell_outcome(failure(_wrong(verdict), grad=case.backward, build_ms=session.build_ms))

    verdict = check_kernel(
        kernel, attention, case, reference, seed, ran=lambda: session.phase("check"), repeats=repeats, tell_wrong=tell_wrong
    )
    if not verdict.ok:
        raise _wrong(verdict)
    return verdict.tensor_errors, verdict.first_ms


def _wrong(verdict: Verdict) -> CellFailed:
    return CellFailed(Status.WRONG, verdict.reason, verdict.tensor_errors)


def _try(job: WorkerJob, name: TrialName, session: Session) -> Iterator[Answer]:
    """An answer for every pass: the outcome of a trial. What a kernel refuses raises."""
    cell = job.cells[0]
    session.phase("build")
    mask = session.mask(cell, job.digest)
    session.phase("start")
    session.start_device(cell.device)
    session.graphs.limit()
    session.phase("build")
    from longca.bench.check.trials import Asked, run_trial

    def reference(mask: AnyMask, case: Case, seed: int) -> Reference:
        wanted = session.reference(mask, case, seed)
        session.phase("build")  # what follows is the kernel's time
        return wanted

    def tell_wrong(tried: Tried) -> None:
        session.tell_outcome(_outcome(tried))
        session.phase("check")  # nothing is left to compile in the calls that follow

    asked = Asked(cell.kernel, cell.case(mask), mask, cell.problem.seed, reference, tell_wrong=tell_wrong)
    tried = run_trial(name, asked)
    if tried.verdict.raised:
        session.recover()  # the call that raised may have broken the device
    outcome = _outcome(tried)
    yield from (Answer(cell.problem.pass_, outcome) for cell in job.cells)


def _outcome(tried: Tried) -> Outcome:
    """The outcome of a trial."""
    kernel, verdict = tried.kernel, tried.verdict
    status, reason = (Status.OK, "") if verdict.ok else (Status.WRONG, verdict.reason)
    known: dict[str, Any] = {"variant": kernel.variant or None, "grad": tried.case.backward, "check": verdict.tensor_errors}
    return Outcome(status=status, reason=short(reason), **known)


def refuse_quadratic(kernel: Kernel, mask: AnyMask, case: Case, longest: int | None) -> None:
    """Skips a kernel whose memory grows with the square of the length beyond this length, and says what it would take."""
    if longest is None or max(case.seqlen_q, case.seqlen_k) <= longest:
        return
    answer = kernel.supports(mask, case)
    if not (isinstance(answer, Yes) and answer.quadratic):
        return
    heads = case.heads_q if answer.per_head else 1
    need = format_memory(case.seqlen_q * case.seqlen_k * BYTES[case.dtype] * heads)
    what = f"the scores of {plural(heads, 'head')}" if answer.per_head else "a dense mask"
    reason = f"O(S²) memory, {need} for {what} at {case.seqlen_q} tokens: skipped beyond {longest} tokens; --full runs it"
    raise CellFailed(Status.SKIPPED, reason)
