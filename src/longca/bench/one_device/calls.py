"""The passes of a prepared kernel as functions without arguments, on inputs that change between calls.

A kernel that remembers its results, or that is right only at first, must not be timed as one that computes them. So before each timed call
each KV head of a tensor is multiplied in place by a power of two or its negative (in fp16 by 1 or -1): the memory stays, the numbers
change, hardly ever to numbers that were there before, and what comes out changes by just that factor.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch

from longca.bench.check.timed_calls import group_sums
from longca.kernels.base import Attention, Case, Kernel
from longca.kernels.inputs import Inputs, make
from longca.results.record import Pass

FACTORS = (1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
SIGNS = (1.0, -1.0)  # in fp16, whose small numbers lose bits when they are halved: bits of a deterministic kernel would differ
CHOICES = 4096  # of factors for all heads; made once, as copies to a device would keep it waiting


class Calls:
    """Gradients are returned, never accumulated. `last` are the outputs of the last call, divided by the factor of its inputs."""

    def __init__(self, kernel: Kernel, attention: Attention, case: Case, seed: int) -> None:
        made = make(case, seed, kernel.layout)
        (q, k, v, self._dout), sinks = made, made.sinks
        if kernel.backward == "autograd" and case.backward:
            q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
            sinks = None if sinks is None else sinks.requires_grad_()
        self._qkv, self._sinks, self._attention = (q, k, v), sinks, attention
        self._kept: tuple[torch.Tensor, torch.Tensor | None] | None = None
        self._random, self._group = Random(seed), case.group
        self._chosen, self._changed_for = 0, Pass.FWD
        factors = SIGNS if case.dtype == "fp16" else FACTORS
        choices = [[1.0] * case.heads_kv, *(self._random.choices(factors, k=case.heads_kv) for _ in range(CHOICES - 1))]
        self._factors = torch.tensor(choices, dtype=q.dtype, device=q.device)
        self._answer = tuple[torch.Tensor | None, ...]()
        self.sums: list[list[torch.Tensor]] = []  # per call and tensor, over groups of tokens

    def of(self, pass_: Pass) -> Callable[[], object]:
        call = {Pass.FWD: self._forward, Pass.BWD: self._backward, Pass.BOTH: self._both}[pass_]

        def kept() -> None:
            self._answer = tuple(call())

        return kept

    def change(self, pass_: Pass) -> None:
        """Notes the outputs of the call before, and multiplies v (dout, where only the backward is called) by another factor."""
        if self._answer:
            self.sums.append([group_sums(x) for x in self.last(pass_).values()])
        self._multiply(pass_, self._random.randrange(1, CHOICES))

    def _multiply(self, pass_: Pass, choice: int) -> None:
        """Replaces the factors of v or dout by others."""
        changed = self._dout if pass_ is Pass.BWD else self._qkv[2]
        before, self._chosen, self._changed_for = self._factor(changed), choice, pass_
        with torch.no_grad():
            changed.mul_(self._factor(changed) / before)

    def last(self, pass_: Pass) -> dict[str, torch.Tensor]:
        """The outputs of the last call, as they would be with the factor 1."""
        outputs = {name: x.detach() for name, x in zip(self._names(pass_), self._answer, strict=True) if x is not None}
        unchanged = ("lse",) if pass_ is Pass.FWD else ("dv",) if pass_ is Pass.BOTH else ()
        return {name: x if name in unchanged else x / self._factor(x) for name, x in outputs.items()}

    def _names(self, pass_: Pass) -> tuple[str, ...]:
        if pass_ is Pass.FWD:
            return "out", "lse"
        return ("dq", "dk", "dv") if self._sinks is None else ("dq", "dk", "dv", "dsinks")

    def _factor(self, x_LHD: torch.Tensor) -> torch.Tensor:
        """The factors of the heads of a tensor, [heads, 1]; of dsinks [heads]."""
        factors = self._factors[self._chosen]
        if x_LHD.dim() == 1:
            return factors.repeat_interleave(self._group)
        return (factors if x_LHD.shape[1] == len(factors) else factors.repeat_interleave(self._group))[:, None]

    def on_other(self, inputs: Inputs, backward: bool) -> dict[str, torch.Tensor]:
        """The outputs on other numbers in the same memory."""
        with torch.no_grad():
            for own, other in zip((*self._qkv, self._dout), inputs, strict=True):
                own.copy_(other)
            if self._sinks is not None and inputs.sinks is not None:
                self._sinks.copy_(inputs.sinks)
        out, lse = self._forward()
        outputs = {"out": out.detach()} | ({} if lse is None else {"lse": lse})
        if backward:
            outputs |= dict(zip(self._names(Pass.BWD), self._backward_of(out, lse), strict=True))
        return outputs

    def _forward(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self._sinks is None:
            return self._attention.forward(*self._qkv)
        return self._attention.forward_with_sinks(*self._qkv, self._sinks)

    def _backward(self) -> tuple[torch.Tensor, ...]:
        if self._kept is None:
            self._kept = self._forward()
        return self._backward_of(*self._kept)

    def _both(self) -> tuple[torch.Tensor, ...]:
        return self._backward_of(*self._forward())

    def _backward_of(self, out: torch.Tensor, lse: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        if self._sinks is None:
            return self._attention.backward(self._dout, *self._qkv, out, lse)
        return self._attention.backward_with_sinks(self._dout, *self._qkv, out, lse, self._sinks)

    def keep(self, pass_: Pass, allocated: Callable[[], int], synchronize: Callable[[], None]) -> int:
        """Restores the inputs and runs the forward that a backward starts from; returns the bytes it keeps."""
        self.release()
        self._multiply(self._changed_for, 0)
        if pass_ is not Pass.BWD:
            return 0
        before = allocated()
        self._kept = self._forward()
        synchronize()
        return allocated() - before

    def release(self) -> None:
        self._kept, self._answer, self.sums = None, (), []
