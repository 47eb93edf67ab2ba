"""One job inside a worker: build the mask, prepare the kernel, check it, time its passes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from longca.bench.one_device.messages import Answer, Chosen, WorkerJob
from longca.bench.plan.cell import Cell
from longca.bench.run.figures import timed_outcome
from longca.bench.run.outcomes import CellFailed
from longca.kernels import registry
from longca.kernels.base import Attention, Case, Kernel, Yes
from longca.masks import AnyMask
from longca.results import metrics
from longca.results.metrics import GIB
from longca.results.record import Check, Outcome, Pass, Status, TensorError
from longca.text import format_memory, plural

if TYPE_CHECKING:
    import torch

    from longca.bench.one_device.session import Session
    from longca.kernels.inputs import Inputs

SLOW_S, LONG_S = 0.2, 60.0  # preparing that takes so long is done twice; if it takes minutes, it is not


def run(job: WorkerJob, session: Session) -> Iterator[Chosen | Answer]:
    """The chosen variant, then an answer for every pass; what fails raises."""
    cell = job.cells[0]
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
    before = session.allocated()
    attention, plan_ms, tuning_ms = _prepare(kernel, mask, case, session)
    prepared_bytes = session.allocated() - before
    check, first_ms = _check(kernel, attention, mask, case, cell, job.reference_grad, session)
    known: dict[str, Any] = {"variant": kernel.variant or None, "backward_kind": kernel.backward, "grad": case.backward, "check": check}
    known |= {"build_ms": session.build_ms, "plan_ms": plan_ms}
    if not job.timed:
        yield from (Answer(cell.pass_, Outcome(status=Status.OK, **known)) for cell in job.cells)
        return
    calls = Calls(kernel, attention, case, cell.seed)
    for pass_ in (cell.pass_ for cell in job.cells):
        session.phase("time")
        kept_bytes = calls.keep(pass_, session)
        peak_bytes, timing = session.time(calls.of(pass_))
        joules = session.joules(calls.of(pass_))
        calls.release()
        first = sum(first_ms[part] for part in pass_.parts)
        steady = timing.median if case.device == "cuda" else timing.call_ms
        known["compile_ms"] = tuning_ms + max(0.0, first - steady)
        known["peak_gib"] = None if peak_bytes is None else max(0, prepared_bytes + kept_bytes + peak_bytes) / GIB
        yield Answer(pass_, timed_outcome(timing, mask, case, pass_, session.device_model, joules=joules, **known))


def _prepare(kernel: Kernel, mask: AnyMask, case: Case, session: Session) -> tuple[Attention, float, float]:
    """The kernel, the milliseconds of planning, and those of what a process does only once: compiling and tuning.

    Where the first time is slow, a second one tells them apart, unless a second one was as slow for this kernel before.
    """
    attention, first_ms = _timed(kernel, mask, case, session)
    if not SLOW_S < first_ms / 1e3 < LONG_S or first_ms < 2 * session.slow_plans.get(kernel.label, 0.0):
        return attention, first_ms, 0.0
    session.phase("build")  # with a deadline of its own
    del attention  # there may be no memory for two
    gc.collect()
    attention, second_ms = _timed(kernel, mask, case, session)
    if second_ms > first_ms / 2:
        session.slow_plans[kernel.label] = second_ms
    return attention, min(first_ms, second_ms), max(0.0, first_ms - second_ms)


def _timed(kernel: Kernel, mask: AnyMask, case: Case, session: Session) -> tuple[Attention, float]:
    start = time.perf_counter()
    attention = registry.prepare(kernel, mask, case)
    session.synchronize()
    return attention, (time.perf_counter() - start) * 1e3


def _check(
    kernel: Kernel, attention: Attention, mask: AnyMask, case: Case, cell: Cell, reference_grad: bool, session: Session
) -> tuple[Check, dict[str, float]]:
    """The errors of each tensor, and the milliseconds of each pass's first call: kernels compile in it, so it has building's deadline."""
    from longca.bench.check.check import check_kernel

    reference = session.reference(mask, replace(case, backward=reference_grad), cell.seed)
    session.phase("build")
    verdict = check_kernel(kernel, attention, case, reference, cell.seed, ran=lambda: session.phase("check"))
    errors = {name: TensorError(error.error, error.allowed) for name, error in verdict.errors.items()}
    if not verdict.ok:
        raise CellFailed(Status.WRONG, verdict.reason, errors)
    return errors, verdict.first_ms


class Calls:
    """The passes of a prepared kernel as functions without arguments. Gradients are returned, never accumulated."""

    def __init__(self, kernel: Kernel, attention: Attention, case: Case, seed: int) -> None:
        from longca.kernels.inputs import make

        inputs: Inputs = make(case, seed, kernel.layout)
        q, k, v, self._dout = inputs
        if kernel.backward == "autograd" and case.backward:
            q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        self._qkv, self._attention = (q, k, v), attention
        self._kept: tuple[torch.Tensor, torch.Tensor | None] | None = None

    def of(self, pass_: Pass) -> Callable[[], object]:
        return {Pass.FWD: self.forward, Pass.BWD: self.backward, Pass.BOTH: self.both}[pass_]

    def forward(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self._attention.forward(*self._qkv)

    def backward(self) -> object:
        if self._kept is None:
            self._kept = self.forward()
        return self._attention.backward(self._dout, *self._qkv, *self._kept)

    def both(self) -> object:
        return self._attention.backward(self._dout, *self._qkv, *self.forward())

    def keep(self, pass_: Pass, session: Session) -> int:
        """Runs the forward that a backward starts from; returns the bytes it keeps."""
        self.release()
        if pass_ is not Pass.BWD:
            return 0
        before = session.allocated()
        self._kept = self.forward()
        session.synchronize()
        return session.allocated() - before

    def release(self) -> None:
        self._kept = None


def refuse_quadratic(kernel: Kernel, mask: AnyMask, case: Case, longest: int | None) -> None:
    """Skips a kernel whose memory grows with the square of the length beyond this length, and says what it would take."""
    if longest is None or max(case.seqlen_q, case.seqlen_k) <= longest:
        return
    answer = kernel.supports(mask, case)
    if not (isinstance(answer, Yes) and answer.quadratic):
        return
    heads = case.heads_q if answer.per_head else 1
    need = format_memory(case.seqlen_q * case.seqlen_k * metrics.BYTES[case.dtype] * heads)
    what = f"the scores of {plural(heads, 'head')}" if answer.per_head else "a dense mask"
    reason = f"O(S²) memory, {need} for {what} at {case.seqlen_q} tokens: skipped beyond {longest} tokens; --full runs it"
    raise CellFailed(Status.SKIPPED, reason)
