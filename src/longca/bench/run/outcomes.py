"""From samples, or from what a kernel raised, to the outcome of a cell, and from that to its record."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict

from longca.bench.clock.telemetry import CallEnergy
from longca.bench.plan.cells import Planned
from longca.errors import LongcaError, Refused, Unavailable, is_out_of_memory
from longca.kernels.base import Case
from longca.masks import AnyMask
from longca.plugins import place
from longca.results import metrics
from longca.results.problem import Pass
from longca.results.record import SCHEMA, BuiltMask, Check, Energy, Outcome, Record, Status, Times
from longca.text import LONGEST_REASON, out_of_memory, printable, short

if TYPE_CHECKING:
    from longca.bench.clock.clock import Timing

HINTS = {"0 active drivers": "; Triton finds no GPU here: TRITON_INTERPRET=1 runs its kernels on a CPU"}
PLACE = "longca_place"  # an attribute of errors whose frames are gone
MEASURED = ("compile_ms", "timed", "memory", "energy", "over_ranks")  # exists only where something was measured


class CellFailed(Exception):
    """The cell has no time: the status and reason of its record, and the errors that the check found."""

    def __init__(self, status: Status, reason: str, check: Check | None = None) -> None:
        super().__init__(reason)
        self.status, self.check = status, check


def failure(error: BaseException, **fields: Any) -> Outcome:
    """The outcome for what was raised; `fields` are what is known besides."""
    status, reason = status_of(error)
    return Outcome(status=status, reason=reason, check=getattr(error, "check", None), **fields)


def status_of(error: BaseException) -> tuple[Status, str]:
    text = str(error)
    if isinstance(error, CellFailed):
        return error.status, short(text)
    if isinstance(error, Refused):
        return Status.UNSUPPORTED, short(text.rstrip("."))
    if isinstance(error, Unavailable):
        return Status.UNAVAILABLE, short(text.rstrip("."))
    if is_out_of_memory(error):
        return Status.OOM, out_of_memory(text)
    where = place(error) or getattr(error, PLACE, "")
    words = text.rstrip(".") if isinstance(error, LongcaError) else f"{type(error).__name__}: {text}"
    hint = next((hint for sign, hint in HINTS.items() if sign in text), "")
    return Status.ERROR, with_tail(words, LONGEST_REASON - len(where) - len(hint)) + printable(where) + hint


def with_tail(words: str, longest: int) -> str:
    """The words in a line of bounded length. Of long ones, such as those of a compiler, the beginning is kept and the end, or what follows
    the first "error:", where the message is."""
    line = " ".join(words.split())
    if len(line) <= longest:
        return short(line)
    head, first = short(line, longest // 3), line.find(" error: ", longest // 3)
    rest = longest - len(head) - 1
    return f"{head} {short(line[first + 1 :], rest) if first >= 0 else printable(line[-rest:])}"


def drop_frames(error: BaseException) -> None:
    """Drops the frames that hold the tensors of a failed attempt, and keeps the line of the plugin that raised it."""
    with suppress(AttributeError):  # a class with slots may have no room for it
        setattr(error, PLACE, place(error) or getattr(error, PLACE, ""))
    raised: BaseException | None = error
    while raised is not None:  # also those of the errors that it came from
        raised.__traceback__ = None
        raised = raised.__context__


def timed_outcome(
    timing: Timing,
    mask: AnyMask,
    case: Case,
    pass_: Pass,
    device_model: str,
    ranks: int = 1,
    nondeterministic: bool | None = None,
    energy: CallEnergy | None = None,
    **fields: Any,
) -> Outcome:
    """The outcome of a timed pass, per device of those that share the work; `fields` are what else is known of it. A speed that the
    device cannot reach is invalid and gets no time."""
    speed = metrics.tflops(metrics.flops(mask, case, pass_) / ranks, timing.median)
    limit = peak = metrics.peak(device_model, case.dtype, timing.at_mhz or timing.clock_mhz)
    if peak is None and case.device == "cpu":
        limit = metrics.cpu_bound(len(os.sched_getaffinity(0)), case.dtype, metrics.cpu_flags())
    impossible = metrics.too_fast(speed, limit, device_model, case.dtype)
    if impossible:
        return Outcome(status=Status.INVALID, reason=impossible, **fields)
    times = Times(
        median=timing.median,
        p20=timing.percentile(20),
        p80=timing.percentile(80),
        samples=list(timing.samples),
        tflops=speed,
        spread=timing.spread,
        stop=timing.stop,
        noisy=timing.stop != "target",
        mfu=None if peak is None else speed / peak,
        call_ms=timing.call_ms,
        host_bound=timing.host_bound,
        nondeterministic=nondeterministic,
        clock_mhz=timing.clock_mhz,
        clocks=[round(mhz) for mhz in timing.clocks] or None,
        at_mhz=timing.at_mhz,
    )
    return Outcome(status=Status.OK, timed=times, energy=Energy(energy.watts, energy.joules) if energy else None, **fields)


def make_record(planned: Planned, outcome: Outcome, environment: str) -> Record:
    cell, problem, mask = planned.cell, planned.cell.problem, planned.mask
    kernel, _, variant = cell.kernel.partition(":")
    fields = asdict(outcome)
    if outcome.status is not Status.OK:
        fields |= dict.fromkeys(MEASURED)
    fields["variant"] = outcome.variant or variant or None
    pairs = mask.area * problem.heads_q // problem.patterns
    return Record(
        **fields,
        schema=SCHEMA,
        key=planned.key,
        env=environment,
        level=cell.level,
        kernel=kernel,
        asked=cell.kernel,
        problem=problem,
        built=BuiltMask(mask.digest, mask.area, mask.seqlen_q, mask.seqlen_k, mask.params),
        flops=max(1, metrics.flops_of(pairs, problem.head_dim, problem.head_dim_v, problem.pass_)),
        versions=dict(planned.versions),
        split=cell.split,
        planned_grad=cell.grad and problem.pass_ is Pass.FWD,  # where the backward fails, `grad` is that of the forward alone
    )


def to_message(reply: msgspec.Struct) -> Any:
    """A reply for the pipe: numbers with six digits, which is more than any clock is worth, and null for what is not finite."""
    return _plain(msgspec.to_builtins(reply))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
