"""One job of the level `kernel`, inside a worker: build the mask, prepare the kernel, check it, time its passes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from longca.bench import metrics
from longca.bench.cell import Cell
from longca.bench.outcome import TooLong, Wrong, fields_of
from longca.errors import Unavailable
from longca.kernels import registry
from longca.kernels.base import Attention, Case, Kernel, Yes
from longca.masks import AnyMask
from longca.text import format_memory, plural

if TYPE_CHECKING:
    import torch

    from longca.bench.clock import Timing
    from longca.bench.session import Session
    from longca.kernels.inputs import Inputs

Fields = dict[str, Any]
GIB = 1 << 30
SLOW_S, LONG_S = 0.2, 60.0  # preparing that takes so long is done twice; that takes minutes, is not


def measure(cells: list[Cell], session: Session) -> Iterator[tuple[str, Fields]]:
    """(pass, what was found) for every pass. Where forward and backward fail together, forward is tried alone."""
    cell = cells[0]
    session.phase("build")
    mask, build_ms = session.mask(cell)
    about: Fields = {"build_ms": build_ms, "mask_digest": mask.digest}
    case, passes = cell.case(mask), [entry.which for entry in cells]
    if case.backward:
        done = list[str]()
        try:
            for which, fields in _measure(cell, mask, case, passes, session):
                done.append(which)
                yield which, about | fields
            return
        except Unavailable:
            raise
        except Exception as error:
            session.after_error(error)
            if "fwd" in done or "fwd" not in passes:
                raise
            failed = about | fields_of(error)
        for which in passes:
            if which != "fwd":
                yield which, failed
        if session.fatal:  # nothing runs in this process any more: the forward is left to a new one
            return
    for which, fields in _measure(cell, mask, replace(case, backward=False), ["fwd"], session):
        yield which, about | fields


def _measure(cell: Cell, mask: AnyMask, case: Case, passes: list[str], session: Session) -> Iterator[tuple[str, Fields]]:
    kernel = registry.choose(cell.kernel, mask, case)
    refuse_quadratic(kernel, mask, case, session.quadratic)
    session.chose(kernel.label, case.backward)
    session.start_device(case.device)
    session.compilations.limit()
    before = session.allocated()
    attention, plan_ms, tuning_ms = _prepare(kernel, mask, case, session)
    about: Fields = {"variant": kernel.variant, "backward_kind": kernel.backward, "grad": case.backward, "plan_ms": plan_ms}
    prepared_bytes = session.allocated() - before
    about["check"], first_ms = _check(kernel, attention, mask, case, cell, session)
    calls = Calls(kernel, attention, case, session.inputs(case, cell.seed, kernel.layout))
    for which in passes:
        session.phase("time")
        kept_bytes = calls.keep(which, session)
        peak_bytes, timing = session.time(calls.of(which))
        energy = session.joules(calls.of(which))
        calls.release()
        fields = figures(timing, mask, case, which, session.device_model)
        first = sum(first_ms[part] for part in which.split("+"))
        steady = timing.median if case.device == "cuda" else timing.call_ms
        fields |= {"compile_ms": tuning_ms + max(0.0, first - steady), "joules": energy if fields["status"] == "ok" else None}
        fields["peak_gib"] = None if peak_bytes is None else (prepared_bytes + kept_bytes + peak_bytes) / GIB
        yield which, about | fields


def _prepare(kernel: Kernel, mask: AnyMask, case: Case, session: Session) -> tuple[Attention, float, float]:
    """The kernel, the milliseconds of planning, and those of what a process does only once: compiling and tuning.

    Where the first time is slow, a second one tells them apart. For a kernel to which the second is as slow, it is not done again.
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


class Calls:
    """The passes of a prepared kernel as functions without arguments. Gradients are returned, never accumulated."""

    def __init__(self, kernel: Kernel, attention: Attention, case: Case, inputs: Inputs) -> None:
        q, k, v, self._dout = inputs
        if kernel.backward == "autograd" and case.backward:
            q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        self._qkv, self._attention = (q, k, v), attention
        self._kept: tuple[torch.Tensor, torch.Tensor | None] | None = None

    def of(self, which: str) -> Callable[[], object]:
        return {"fwd": self.forward, "bwd": self.backward, "fwd+bwd": self.both}[which]

    def forward(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        return self._attention.forward(*self._qkv)

    def backward(self) -> object:
        if self._kept is None:
            self._kept = self.forward()
        return self._attention.backward(self._dout, *self._qkv, *self._kept)

    def both(self) -> object:
        return self._attention.backward(self._dout, *self._qkv, *self.forward())

    def keep(self, which: str, session: Session) -> int:
        """Run the forward that a backward starts from; returns the bytes it keeps."""
        self.release()
        if which != "bwd":
            return 0
        before = session.allocated()
        self._kept = self.forward()
        session.synchronize()
        return session.allocated() - before

    def release(self) -> None:
        self._kept = None


def _check(
    kernel: Kernel, attention: Attention, mask: AnyMask, case: Case, cell: Cell, session: Session
) -> tuple[Fields, dict[str, float]]:
    """The errors of each tensor, and the milliseconds of each pass's first call; with the deadline of building until that is done."""
    from longca.bench.check import check

    reference = session.reference(mask, replace(case, backward=cell.grad), cell.seed)
    session.phase("build")
    verdict = check(kernel, attention, case, reference, cell.seed, ran=lambda: session.phase("check"))
    found = {name: {"error": error.error, "allowed": error.allowed} for name, error in verdict.errors.items()}
    if not verdict.ok:
        raise Wrong(verdict.reason, found)
    return found, verdict.first_ms


def figures(timing: Timing, mask: AnyMask, case: Case, which: str, device_model: str, ranks: int = 1) -> Fields:
    """What is made of the samples, per device of those that share the work. A speed that no such device has is no measurement, so it
    gets no time."""
    work = metrics.flops(mask, case, which) // ranks
    speed = metrics.tflops(work, timing.median)
    impossible = metrics.too_fast(speed, device_model, case.dtype)
    if impossible:
        return {"status": "invalid", "reason": impossible}
    peak = metrics.peak(device_model, case.dtype)
    ms = {"median": timing.median, "p20": timing.percentile(20), "p80": timing.percentile(80), "n": len(timing.samples)}
    return {
        "status": "ok",
        "reason": "",
        "ms": ms | {"samples": list(timing.samples), "spread": timing.spread, "stop": timing.stop},
        "noisy": timing.stop != "target",
        "call_ms": timing.call_ms,
        "host_bound": timing.host_bound,
        "tflops": speed,
        "mfu": None if peak is None else speed / peak,
        "clock_mhz": timing.clock_mhz,
        "watts": timing.watts,
    }


def refuse_quadratic(kernel: Kernel, mask: AnyMask, case: Case, longest: int | None) -> None:
    """What holds something for every pair of tokens stops at a length, with what that takes."""
    if longest is None or max(case.seqlen_q, case.seqlen_k) <= longest:
        return
    answer = kernel.supports(mask, case)
    if not (isinstance(answer, Yes) and answer.quadratic):
        return
    heads = case.heads_q if answer.per_head else 1
    need = format_memory(case.seqlen_q * case.seqlen_k * metrics.BYTES[case.dtype] * heads)
    what = f"the scores of {plural(heads, 'head')}" if answer.per_head else "a dense mask"
    raise TooLong(f"O(S²) memory, {need} for {what} at {case.seqlen_q} tokens: left out by rule beyond {longest} tokens; --full runs it")
