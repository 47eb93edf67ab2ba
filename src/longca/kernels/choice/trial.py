"""A trial: times the kernels that may be the fastest for a call, on tensors of its shape, and chooses.

Samples of the kernels are interleaved, so that all see the same state of the device. The forward is chosen first; backwards are then timed
from its out and lse, with whatever copies the pair needs. A kernel that runs both passes itself is chosen where the sum of its times is
less. Kernels within 1 % of the fastest count as equal: of these the one with the least workspace and plan time is chosen.

A trial is bounded. When the time of a pass is over, no further kernel is prepared for it. Where a call is too much work, only some KV heads
run with their query heads; on a CPU, where one head may take minutes, only the first tokens of one.
"""

from __future__ import annotations

import gc
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import torch

from longca.errors import LongcaError, Refused
from longca.kernels.base import Attention, Case, Kernel
from longca.kernels.choice.candidates import Candidates
from longca.kernels.choice.choice import TIE, Choice, Option, fastest, is_tie
from longca.kernels.choice.clocks import Clock
from longca.kernels.choice.pair import PairAttention, backward_case, forward_case
from longca.kernels.choice.part import part_of, smaller
from longca.kernels.inputs import Inputs, in_layout, make
from longca.masks import AnyMask
from longca.text import format_lead, short

BUDGET_S = {"cpu": 0.5, "cuda": 40.0}  # of one pass; on a GPU kernels compile for seconds
WARMUP_S = {"cpu": 0.0, "cuda": 0.3}  # of it: a GPU that rested runs faster at first
SAMPLING_S = {"cpu": 0.1, "cuda": 2.0}  # of the samples in it
FEWEST, MOST = 5, 25  # samples of each kernel
FEW, PATIENCE_S = 3, 4.0  # so few samples do after so long
HOPELESS, TWICE = 2.0, 2  # times the fastest: after so many samples such a kernel is not sampled again
CLEAR = 1.1  # the same after `FEWEST` samples; where all others are so far behind, and no samples overlap, these do


@dataclass
class Entrant:
    """A prepared kernel in one pass. `call` runs it."""

    kernel: Kernel
    call: Callable[[], Any]
    first_ms: float  # of its first call, which may compile
    plan_ms: float
    workspace: int = 0
    samples: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles over the median."""
        if len(self.samples) < 2 or not self.median:
            return 0.0
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / 2 / self.median

    def option(self) -> Option:
        return Option(self.kernel.label, self.median, self.spread, None, self.plan_ms, self.workspace)


@dataclass(frozen=True)
class Whole:
    """A kernel that runs both passes itself."""

    ahead: Entrant
    back: Entrant

    @property
    def ms(self) -> float:
        return self.ahead.median + self.back.median


Tried = TypeVar("Tried", Entrant, Whole)


def run_trial(among: Candidates, mask: AnyMask, case: Case, clock: Clock) -> Choice:
    """Returns the choice; raises Refused where no kernel runs, and torch's error where there is no memory for the inputs."""
    small, part = smaller(mask, case)
    with torch.inference_mode(False):
        return Trial(small, part, clock, whole=case).choice(among)


class Trial:
    """The state of one trial: `case` is timed, and `whole` is the call that it is a part of."""

    def __init__(self, mask: AnyMask, case: Case, clock: Clock, whole: Case) -> None:
        self.mask, self.case, self.clock, self.whole = mask, case, clock, whole
        self.inputs = make(case)
        self.failures: dict[str, list[Option]] = {"fwd": [], "bwd": []}
        self.ends = math.inf  # of the pass
        self._is_first = True

    def choice(self, among: Candidates) -> Choice:
        self._begin_pass()
        forwards = [entrant for kernel in among.forward if (entrant := self._forward(kernel)) is not None]
        whole = [both for kernel in among.whole if (both := self._whole(kernel)) is not None]
        self._sample([*forwards, *(entrant.ahead for entrant in whole)])
        first = _fastest(forwards)
        self._begin_pass()
        backwards = self._backwards(among.backward, first) if first and among.backward else []
        self._sample([*backwards, *(entrant.back for entrant in whole)])
        second = _fastest(backwards, first.kernel.label if first else "")
        options = {"fwd": [*forwards, *(entrant.ahead for entrant in whole)], "bwd": [*backwards, *(entrant.back for entrant in whole)]}
        if whole:
            least = min(whole, key=lambda entrant: entrant.ms)
            if first is None or second is None or least.ms < (first.median + second.median) * (1 - TIE):
                first, second = least.ahead, least.back
        if first is None or (self.case.backward and second is None):
            reasons = [f"{option.kernel}: {option.note}" for failed in self.failures.values() for option in failed]
            raise Refused(f"no kernel that is available here runs this: {'; '.join(dict.fromkeys(reasons))}.")
        part = part_of(self.case, self.whole)
        why = {"fwd": explain(first, options["fwd"], part)} | ({"bwd": explain(second, options["bwd"], part)} if second else {})
        compared = {name: self._options(name, entrants) for name, entrants in options.items() if entrants or self.failures[name]}
        return Choice(first.kernel.label, second.kernel.label if second else "", "trial", why, compared, part)

    def _begin_pass(self) -> None:
        self.ends, self._is_first = self.clock.now() + BUDGET_S[self.case.device], True

    def _options(self, pass_: str, entrants: Sequence[Entrant]) -> list[Option]:
        return [entrant.option() for entrant in sorted(entrants, key=lambda entrant: entrant.median)] + self.failures[pass_]

    def _forward(self, kernel: Kernel) -> Entrant | None:
        inputs = _ordered(self.inputs, kernel)

        def entrant() -> Entrant:
            attention, first_ms, plan_ms = self._prepare(kernel, forward_case(self.case), lambda attention: forward(attention, inputs))
            return Entrant(kernel, torch.no_grad()(lambda: forward(attention, inputs)), first_ms, plan_ms)

        return self._tried(kernel, "fwd", entrant)

    def _backwards(self, kernels: Sequence[Kernel], first: Entrant) -> list[Entrant]:
        """Returns the entrants of a backward that starts from the out and lse of the chosen forward."""
        out, lse = first.call()
        inputs = _ordered(self.inputs, first.kernel)
        return [entrant for kernel in kernels if (entrant := self._backward(kernel, first, inputs, out, lse)) is not None]

    def _backward(self, kernel: Kernel, first: Entrant, inputs: Inputs, out: torch.Tensor, lse: torch.Tensor) -> Entrant | None:
        same = kernel.label == first.kernel.label

        def run(attention: Attention) -> object:
            paired = attention if same else PairAttention(attention, attention, kernel.layout)
            return backward(paired, inputs, out, lse)

        def entrant() -> Entrant:
            attention, first_ms, plan_ms = self._prepare(kernel, self.case if same else backward_case(self.case), run)
            return Entrant(kernel, torch.no_grad()(lambda: run(attention)), first_ms, plan_ms, kernel.workspace(self.whole))

        return self._tried(kernel, "bwd", entrant)

    def _whole(self, kernel: Kernel) -> Whole | None:
        """Returns a kernel that runs both passes itself; the forward keeps a graph for the backward."""
        q, k, v, dout = (x.detach() for x in _ordered(self.inputs, kernel)[:4])
        sinks = None if self.inputs.sinks is None else self.inputs.sinks.detach().requires_grad_()
        inputs = Inputs(q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), dout, sinks)
        kept: list[tuple[torch.Tensor, torch.Tensor | None]] = []

        def ahead(attention: Attention) -> object:
            kept[:] = [forward(attention, inputs)]
            return kept[0]

        def both(attention: Attention) -> object:
            ahead(attention)
            return backward(attention, inputs, *kept[0])

        def entrant() -> Whole:
            attention, first_ms, plan_ms = self._prepare(kernel, self.case, both, torch.enable_grad())
            first = Entrant(kernel, torch.enable_grad()(lambda: ahead(attention)), first_ms, plan_ms)
            second = Entrant(kernel, lambda: backward(attention, inputs, *kept[0]), first_ms, plan_ms, kernel.workspace(self.whole))
            return Whole(first, second)

        return self._tried(kernel, "fwd", entrant)

    def _prepare(
        self, kernel: Kernel, case: Case, run: Callable[[Attention], object], grad: AbstractContextManager[object] | None = None
    ) -> tuple[Attention, float, float]:
        """Returns the kernel, and the milliseconds of its first call and of preparing it once more, when all is compiled."""
        with grad or torch.no_grad():
            attention = kernel.prepare(self.mask, case)
            self._synchronize()
            called = self.clock.now()
            run(attention)
            self._synchronize()
            begun = self.clock.now()
            kernel.prepare(self.mask, case)
            self._synchronize()
            return attention, (begun - called) * 1e3, (self.clock.now() - begun) * 1e3

    def _tried(self, kernel: Kernel, pass_: str, make_entrant: Callable[[], Tried]) -> Tried | None:
        """Returns the entrant, or notes why there is none: it refuses or fails now, or the time is over."""
        if not self._is_first and self.clock.now() > self.ends:
            self._note(pass_, kernel, f"not tried: the {BUDGET_S[self.case.device]:g} s of a trial's pass were over")
            return None
        try:
            entrant = make_entrant()
        except (LongcaError, RuntimeError, ImportError, AttributeError, TypeError, ValueError, AssertionError) as error:
            self._note(pass_, kernel, str(error).rstrip(".") if isinstance(error, LongcaError) else f"{type(error).__name__}: {error}")
            free_memory(self.case.device)
            return None
        self._is_first = False
        return entrant

    def _note(self, pass_: str, kernel: Kernel, reason: str) -> None:
        self.failures[pass_].append(Option(kernel.label, note=short(reason)))

    def _sample(self, entrants: Sequence[Entrant]) -> None:
        """Takes samples in turn, until the fastest is clear or the time is over, and one of each in any case: the first call may compile.
        Where there is no other kernel, it counts."""
        if len(entrants) < 2:
            for entrant in entrants:
                entrant.samples.append(entrant.first_ms)
            return
        self._warm_up(entrants)
        begun = self.clock.now()
        for number in range(MOST):
            least = min((entrant.median for entrant in entrants if entrant.samples), default=0.0)
            far = HOPELESS if number < FEWEST else CLEAR
            for entrant in Random(number).sample(entrants, len(entrants)):  # so that none always follows the same
                if len(entrant.samples) < TWICE or min(entrant.samples) <= far * least:
                    entrant.samples.append(self.clock.sample(entrant.call, min(entrant.samples, default=0.0)))
            now = self.clock.now()
            is_enough = now - begun > SAMPLING_S[self.case.device] or _is_clear(entrants)
            fewest = FEWEST if now - begun < PATIENCE_S else FEW
            if now > self.ends or (number + 1 >= fewest and is_enough):
                return

    def _warm_up(self, entrants: Sequence[Entrant]) -> None:
        """Calls the kernels in turn for some time."""
        ends = self.clock.now() + WARMUP_S[self.case.device]
        for entrant in itertools.cycle(entrants):
            if self.clock.now() >= ends:
                return
            self.clock.sample(entrant.call, entrant.first_ms)

    def _synchronize(self) -> None:
        if self.case.device == "cuda":
            torch.cuda.synchronize()


def _fastest(entrants: Sequence[Entrant], prepared: str = "") -> Entrant | None:
    """Returns the fastest; of several that count as equal that with the least workspace and then the least plan time, of which a kernel
    that is prepared already needs none."""

    def cost(entrant: Entrant) -> tuple[int, float]:
        return entrant.workspace, 0.0 if entrant.kernel.label == prepared else entrant.plan_ms

    return fastest(entrants, lambda entrant: entrant.median, cost) if entrants else None


def _is_clear(entrants: Sequence[Entrant]) -> bool:
    """Whether one kernel is far ahead of all others, in every sample."""
    first, *others = sorted(entrants, key=lambda entrant: entrant.median)
    return all(other.median > CLEAR * first.median and min(other.samples) > max(first.samples) for other in others)


def explain(chosen: Entrant, entrants: Sequence[Entrant], part: str = "") -> str:
    """Returns why a kernel was chosen, in a sentence; `part` names what was timed where that was not the whole call."""
    others = sorted((entrant for entrant in entrants if entrant is not chosen), key=lambda entrant: entrant.median)
    took = f"trial{f' on {part}' if part else ''}: {chosen.kernel.label} takes {chosen.median:.3g} ms"
    if not others:
        return f"{took}, and no other kernel ran"
    second = others[0]
    if second.median < chosen.median and not is_tie(chosen.median, second.median):
        return f"{took}, and is the fastest in both passes together; {second.kernel.label} takes {second.median:.3g} ms in this one"
    if is_tie(max(chosen.median, second.median), min(chosen.median, second.median)):
        return f"{took}, as fast as {second.kernel.label} ({second.median:.3g} ms) within {100 * TIE:g} %, with less workspace or plan time"
    return f"{took}, {format_lead(second.median / chosen.median)} {second.kernel.label}"


def forward(attention: Attention, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor | None]:
    q, k, v, _ = inputs
    return attention.forward(q, k, v) if inputs.sinks is None else attention.forward_with_sinks(q, k, v, inputs.sinks)


def backward(attention: Attention, inputs: Inputs, out: torch.Tensor, lse: torch.Tensor | None) -> object:
    q, k, v, dout = inputs
    if inputs.sinks is None:
        return attention.backward(dout, q, k, v, out, lse)
    return attention.backward_with_sinks(dout, q, k, v, out, lse, inputs.sinks)


def _ordered(inputs: Inputs, kernel: Kernel) -> Inputs:
    """Returns the inputs in the memory order of a kernel."""
    q, k, v, dout = (in_layout(x, kernel.layout) for x in inputs)
    return Inputs(q, k, v, dout, inputs.sinks)


def free_memory(device: str) -> None:
    """Frees the memory of a kernel that failed: the next one may need it."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
