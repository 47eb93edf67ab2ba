"""Autotuning: times a few kernels on tensors of the call, compares their results, and chooses.

Samples of the kernels are interleaved, so that all see the same state of the device. The forward is chosen first; backwards are then timed
from its out and lse, with whatever copies the pair needs. A kernel that runs both passes itself is chosen where the sum of its times is
less. Kernels within 1 % of the fastest count as equal: of these the one with the least workspace is chosen, or that of the forward.
"""

from __future__ import annotations

import gc
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import torch

from longca.errors import LongcaError, Refused
from longca.kernels.base import Attention, Case, Kernel
from longca.kernels.choice import words
from longca.kernels.choice._clocks import clock_for
from longca.kernels.choice._pair import PairAttention, backward_case, forward_case
from longca.kernels.choice.candidates import Candidates
from longca.kernels.choice.choice import TIE, Choice, Option, fastest
from longca.kernels.functional import run_backward, run_forward
from longca.kernels.inputs import in_layout, make
from longca.masks import AnyMask
from longca.text import say, short

BUDGET_S = {"cpu": 0.5, "cuda": 20.0}  # of a pass, after which no further kernel is prepared: on a GPU kernels compile for seconds
WARMUP_S = {"cpu": 0.0, "cuda": 0.3}  # a GPU that rested runs faster at first
SAMPLING_S = {"cpu": 0.1, "cuda": 2.0}
FEWEST, MOST = 3, 25  # samples of each kernel; after `FEWEST` those far behind are not sampled any more
BEHIND = 1.1  # times the fastest
ROWS = 512  # of each tensor that are compared
TOLERANCE = {"bf16": 0.03, "fp16": 0.03, "fp32": 0.01, "fp64": 1e-6}  # root mean square of a difference over that of the tensor
Tensors = tuple[torch.Tensor | None, ...]


@dataclass
class Entrant:
    """A prepared kernel in one pass. `call` runs it, and `rows` are some rows of its first result."""

    kernel: Kernel
    attention: Attention
    call: Callable[[], Tensors]
    rows: Tensors
    samples: list[float] = field(default_factory=list)

    @property
    def ms(self) -> float:
        return statistics.median(self.samples) if self.samples else 0.0


def autotune(among: Candidates, mask: AnyMask, case: Case) -> Choice:
    """Returns the choice; raises Refused where no kernel runs, and torch's error where there is no memory for the inputs."""
    with torch.inference_mode(False):
        return Autotuner(mask, case).choice(among)


class Autotuner:
    """The state of one autotuning run."""

    def __init__(self, mask: AnyMask, case: Case) -> None:
        self.mask, self.case, self.clock = mask, case, clock_for(case.device)
        self.inputs = make(case)
        self.failures: dict[str, list[Option]] = {"fwd": [], "bwd": []}

    def choice(self, among: Candidates) -> Choice:
        whole = {kernel.label for kernel in among.whole}
        makers = [(kernel, partial(self._forward, kernel, kernel.label in whole)) for kernel in among.of("fwd")]
        forwards = self._entrants("fwd", makers)
        ahead = [entrant for entrant in forwards if entrant.kernel.label not in whole]
        first = _fastest(ahead, lambda kernel: kernel.label != ahead[0].kernel.label)
        makers = [(kernel, partial(self._backward, kernel, first)) for kernel in among.backward if first]
        makers += [
            (entrant.kernel, partial(self._backward, entrant.kernel, entrant)) for entrant in forwards if entrant.kernel.label in whole
        ]
        backwards = self._entrants("bwd", makers) if self.case.backward else []
        behind = [entrant for entrant in backwards if entrant.kernel.label not in whole]
        second = _fastest(behind, lambda kernel: (kernel.workspace(self.case), first is None or kernel.label != first.kernel.label))
        pairs = [(one, two) for one in forwards for two in backwards if one.kernel.label == two.kernel.label and one.kernel.label in whole]
        alone = min(pairs, key=_sum, default=None)  # the fastest of those that run both passes themselves
        if alone and not (first and second and _sum(alone) >= _sum((first, second)) * (1 - TIE)):
            first, second = alone
        if first is None or (self.case.backward and second is None):
            reasons = [f"{option.kernel}: {option.note}" for failed in self.failures.values() for option in failed]
            raise Refused(f"no kernel that is available here runs this: {'; '.join(dict.fromkeys(reasons))}.")
        options = {"fwd": self._options("fwd", forwards)} | ({"bwd": self._options("bwd", backwards)} if second else {})
        return Choice(first.kernel.label, second.kernel.label if second else "", "autotuning", options)

    def _options(self, pass_: str, entrants: Sequence[Entrant]) -> list[Option]:
        ordered = sorted(entrants, key=lambda entrant: entrant.ms)
        return [Option(entrant.kernel.label, entrant.ms if entrant.samples else None) for entrant in ordered] + self.failures[pass_]

    def _entrants(self, pass_: str, makers: Sequence[tuple[Kernel, Callable[[], Entrant]]]) -> list[Entrant]:
        """Returns the kernels that run, with samples; notes why others do not: they refuse or fail now, are wrong, or the time is over."""
        ends, entrants = self.clock.now() + BUDGET_S[self.case.device], list[Entrant]()
        for kernel, maker in makers:
            if entrants and self.clock.now() > ends:
                self._note(pass_, kernel, f"not tried: the {BUDGET_S[self.case.device]:g} s for this pass were over")
                continue
            try:
                entrants.append(maker())
            except (LongcaError, RuntimeError, ImportError, AttributeError, TypeError, ValueError, AssertionError) as error:
                self._note(pass_, kernel, str(error).rstrip(".") if isinstance(error, LongcaError) else f"{type(error).__name__}: {error}")
                gc.collect()  # the next one may need the memory
                if self.case.device == "cuda":
                    torch.cuda.empty_cache()
        right = self._right(pass_, entrants)
        self._sample(right, ends)
        return right

    def _note(self, pass_: str, kernel: Kernel, reason: str) -> None:
        self.failures[pass_].append(Option(kernel.label, note=short(reason)))

    def _right(self, pass_: str, entrants: list[Entrant]) -> list[Entrant]:
        """Returns the entrants whose results agree with those of most others, or of two the first; says which do not."""
        limit = TOLERANCE[self.case.dtype]
        alike = [[agree(one.rows, other.rows, limit) for other in entrants] for one in entrants]
        most = max(range(len(entrants)), key=lambda number: sum(alike[number]), default=0)
        for number, entrant in enumerate(entrants):
            if not alike[most][number]:
                self._note(pass_, entrant.kernel, f"wrong: its result differs from that of {entrants[most].kernel.label}")
                say(words.wrong(entrant.kernel.label, pass_, entrants[most].kernel.label))
        return [entrant for number, entrant in enumerate(entrants) if alike[most][number]]

    def _forward(self, kernel: Kernel, whole: bool) -> Entrant:
        """Returns a forward; one whose backward is its own graph's records it."""
        attention, leaves = kernel.prepare(self.mask, self.case if whole else forward_case(self.case)), self._leaves(kernel)

        def call() -> Tensors:
            with torch.set_grad_enabled(whole and self.case.backward and kernel.backward != "functional"):
                return run_forward(attention, *leaves)

        return self._entrant(kernel, attention, call)

    def _backward(self, kernel: Kernel, ahead: Entrant) -> Entrant:
        """Returns a backward that starts from the out and lse of a forward."""
        attention, leaves = ahead.attention, self._leaves(ahead.kernel)
        if kernel.label != ahead.kernel.label:
            attention = PairAttention(attention, kernel.prepare(self.mask, backward_case(self.case)), kernel.layout)
        elif kernel.backward == "functional":  # so far only the forward is prepared
            attention = kernel.prepare(self.mask, self.case)
        recorded, (q, k, v, sinks) = kernel.backward != "functional", leaves  # a graph is kept for the calls
        dout = in_layout(self.inputs.dout, ahead.kernel.layout)
        with torch.set_grad_enabled(recorded):
            out, lse = run_forward(attention, *leaves)

        def call() -> Tensors:
            with torch.set_grad_enabled(recorded):
                return run_backward(attention, dout, q, k, v, out, lse, sinks)

        return self._entrant(kernel, attention, call)

    def _leaves(self, kernel: Kernel) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Returns q, k and v in the memory order of a kernel, and sinks or None."""
        q, k, v = (in_layout(x, kernel.layout).detach().requires_grad_(self.case.backward) for x in self.inputs[:3])
        sinks = self.inputs.sinks
        return q, k, v, None if sinks is None else sinks.detach().requires_grad_(self.case.backward)

    def _entrant(self, kernel: Kernel, attention: Attention, call: Callable[[], Tensors]) -> Entrant:
        result = call()
        if self.case.device == "cuda":
            torch.cuda.synchronize()
        return Entrant(kernel, attention, call, tuple(None if x is None else some_rows(x.detach()) for x in result))

    def _sample(self, entrants: Sequence[Entrant], ends: float) -> None:
        """Takes samples in turns, until there are enough or the time is over; none where there is no other kernel."""
        if len(entrants) < 2:
            return
        warm = self.clock.now() + WARMUP_S[self.case.device]
        for entrant in itertools.cycle(entrants):
            if self.clock.now() >= warm:
                break
            self.clock.sample(entrant.call, 0.0)
        enough, left = self.clock.now() + SAMPLING_S[self.case.device], list(entrants)
        for number in range(MOST):
            for entrant in Random(number).sample(left, len(left)):  # so that none always follows the same
                entrant.samples.append(self.clock.sample(entrant.call, min(entrant.samples, default=0.0)))
            if number + 1 >= FEWEST:
                least = min(entrant.ms for entrant in left)
                left = [entrant for entrant in left if entrant.ms <= BEHIND * least]
            if self.clock.now() > ends or (number + 1 >= FEWEST and (len(left) == 1 or self.clock.now() > enough)):
                return


def _fastest(entrants: Sequence[Entrant], cost: Callable[[Kernel], object]) -> Entrant | None:
    return fastest(entrants, lambda entrant: entrant.ms, lambda entrant: cost(entrant.kernel)) if entrants else None


def _sum(passes: tuple[Entrant, Entrant]) -> float:
    return passes[0].ms + passes[1].ms


def some_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Returns evenly spaced tokens of a tensor [L, H, D], its first and last among them, or of an lse [H, L]; sinks [H] as they are."""
    if tensor.dim() == 1:
        return tensor.double()
    dim = 0 if tensor.dim() == 3 else 1
    rows = torch.linspace(0, tensor.shape[dim] - 1, min(ROWS, tensor.shape[dim]), device=tensor.device).round().long()
    return tensor.index_select(dim, rows).double()


def agree(ours: Tensors, theirs: Tensors, limit: float) -> bool:
    """Whether two results are the same within the precision of a dtype; what only one of them has is not compared."""
    return all(_is_alike(one, other, limit) for one, other in zip(ours, theirs, strict=True) if one is not None and other is not None)


def _is_alike(one: torch.Tensor, other: torch.Tensor, limit: float) -> bool:
    finite = one.isfinite()
    if one.shape != other.shape or not torch.equal(finite, other.isfinite()):
        return False
    difference, size = (one - other)[finite], one[finite]
    if not difference.numel():
        return True
    return math.sqrt(difference.square().mean()) <= limit * max(math.sqrt(size.square().mean()), 1e-6)
