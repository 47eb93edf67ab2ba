"""The passes of what is timed as functions without arguments, on inputs that change between calls.

A kernel or method that remembers its results, or that is right only at first, must not be timed as one that computes them. So before each
timed call V (dout, where only the backward is called) is multiplied in place: each KV head by a power of two or its negative (in fp16 by 1
or -1), and for the passes that begin with a forward each dimension of V by 1 or -1. The memory stays, the numbers change, and what comes
out changes by just these factors, to the bit. All ranks of a group draw the same factors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from random import Random, SystemRandom
from typing import Any

import torch

from longca.bench.check.check import Subject, names_of
from longca.bench.check.own_memory import INPUTS, memory_for
from longca.bench.check.timed_calls import group_sums
from longca.errors import Refused
from longca.kernels.base import Case
from longca.kernels.inputs import Inputs
from longca.results.problem import Pass

POWERS = tuple(sign * 2.0**power for power in range(-3, 4) for sign in (1, -1))
WARM_UPS = 3  # calls before one is captured, as torch advises
SIGNS = (1.0, -1.0)  # in fp16, whose small numbers lose bits when they are halved: bits of a deterministic kernel would differ
CHOICES, SIGN_CHOICES = 4096, 256  # of factors of all heads, and of signs of all dimensions; drawn once: a copy to a device takes its time


def call_of(subject: Subject, inputs: Inputs, pass_: Pass) -> Callable[[], Any]:
    """A pass as a function that returns its outputs and keeps nothing; a backward starts from the last forward, which is kept for it."""

    def forward() -> object:
        outputs = subject.forward(inputs)
        subject.release()
        return outputs

    def both() -> object:
        subject.forward(inputs)
        gradients = subject.backward(inputs)
        subject.release()
        return gradients

    return {Pass.FWD: forward, Pass.BWD: lambda: subject.backward(inputs), Pass.BOTH: both}[pass_]


@lru_cache(maxsize=8)
def _draw(values: tuple[float, ...], shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of values drawn with equal chances; nobody may write to it, as the calls of many kernels share it."""
    generator = torch.Generator().manual_seed(0)
    return torch.tensor(values)[torch.randint(len(values), shape, generator=generator)].to(dtype).to(device)


class Calls:
    """Gradients are returned, never accumulated. `sums` are those of all calls but the last, whose outputs `last` returns."""

    def __init__(self, subject: Subject, inputs: Inputs, case: Case, seed: int | None = None) -> None:
        """`seed` draws the factors, the same on all ranks; without one they come from the entropy of the system, and nothing that was kept
        on a disk can know them."""
        self._subject, self._inputs, self._case, self._group = subject, inputs, case, case.group
        self._random = SystemRandom() if seed is None else Random(seed)
        draw = partial(_draw, dtype=inputs.v.dtype, device=inputs.v.device)
        self._factors = draw(SIGNS if case.dtype == "fp16" else POWERS, (CHOICES, case.heads_kv, 1))
        self._signs = draw(SIGNS, (SIGN_CHOICES, case.heads_kv, case.head_dim_v))
        self._one = torch.ones_like(self._factors[0])
        self._factor = self._sign = self._one  # of the inputs now
        self._of_v = self._of_dout = self._one
        self._outputs = tuple[torch.Tensor | None, ...]()
        self._captured: Callable[[], Any] | None = None  # the replay of a CUDA graph of the pass
        self.kinds: set[type] = set()  # of the values that calls returned
        self.sums: list[dict[str, torch.Tensor]] = []  # per call and tensor, over groups of tokens

    def of(self, pass_: Pass) -> Callable[[], object]:
        """The pass as a function that keeps its outputs for `last` and `sums`."""
        call = self.load(pass_)

        def kept() -> None:
            self._outputs = tuple(call())

        return kept

    def load(self, pass_: Pass) -> Callable[[], Any]:
        """The pass as a function that keeps nothing."""
        return self._captured or call_of(self._subject, self._inputs, pass_)

    def change(self, pass_: Pass) -> None:
        """Notes the outputs of the call before, drops them, and changes the inputs."""
        if self._outputs:
            self.kinds.update(map(type, self._outputs))
            self.sums.append({name: group_sums(x, by) for name, (x, by) in self._last(pass_).items()})
            self._outputs = ()
        factor, sign = self._factors[self._random.randrange(CHOICES)], self._signs[self._random.randrange(SIGN_CHOICES)]
        self._multiply(pass_, factor, sign)

    @property
    def outputs(self) -> tuple[object, ...]:
        """What the last call returned."""
        return self._outputs

    def plain_inputs(self) -> Inputs:
        """The inputs with the factor 1, in the memory of the timed ones; outputs of the last call stay."""
        self._write_factors(self._one, self._one)
        return self._inputs

    def last(self, pass_: Pass) -> dict[str, torch.Tensor]:
        """The outputs of the last call, as they would be with the factor 1."""
        return {name: x if by is None else x / by for name, (x, by) in self._last(pass_).items()}

    def _last(self, pass_: Pass) -> dict[str, tuple[torch.Tensor, torch.Tensor | None]]:
        """The outputs of the last call, and the factors that they have."""
        names = names_of("forward" if pass_ is Pass.FWD else "backward", self._case)
        by = {"out": self._factor * self._sign, "dq": self._factor, "dk": self._factor, "dsinks": self._factor}
        by["dv"] = self._factor if pass_ is Pass.BWD else self._sign
        outputs = {name: x.detach() for name, x in zip(names, self._outputs, strict=True) if x is not None}
        return {name: (x, self._of_heads(by[name], x) if name in by else None) for name, x in outputs.items()}

    def again(self, backward: bool) -> dict[str, torch.Tensor]:
        """The outputs of one more forward, and of a backward, on the numbers that the inputs hold now."""
        outputs = dict(zip(("out", "lse"), self._subject.forward(self._inputs), strict=True))  # type: ignore[call-overload]
        if backward:
            outputs |= zip(names_of("backward", self._case), self._subject.backward(self._inputs), strict=True)  # type: ignore[call-overload]
        self._subject.release()
        return {name: x.detach() for name, x in outputs.items() if x is not None}

    def write(self, make: Callable[[], Inputs]) -> None:
        """Drops all outputs, then puts other numbers into the memory of the inputs."""
        self.release()
        with memory_for(INPUTS):
            inputs = make()
        for name, own in self._inputs.tensors.items():
            own.data.copy_(inputs.tensors[name])
        self._factor = self._sign = self._of_v = self._of_dout = self._one

    def keep(self, pass_: Pass, allocated: Callable[[], int] = int, synchronize: Callable[[], object] = int) -> int:
        """Restores the inputs and runs the forward that a backward starts from; returns the bytes it keeps."""
        self.release()
        self._multiply(pass_, self._one, self._one)
        if pass_ is not Pass.BWD:
            return 0
        before = allocated()
        self._subject.forward(self._inputs)
        synchronize()
        return allocated() - before

    def capture(self, pass_: Pass, allocated: Callable[[], int] = int) -> int:
        """Captures the pass, after `keep`, in a CUDA graph, which `of` and `load` replay from now on; returns the bytes it holds. Raises
        Refused where it cannot be captured. What a backward starts from is made anew on the stream of the graph."""
        before, stream, graph = allocated(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        try:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                if pass_ is Pass.BWD:
                    self._subject.forward(self._inputs)
                for _ in range(WARM_UPS):
                    call_of(self._subject, self._inputs, pass_)()
            with torch.cuda.graph(graph, stream=stream):
                outputs = call_of(self._subject, self._inputs, pass_)()
        except Exception as error:
            raise Refused(f"its {pass_} cannot be captured in a CUDA graph: {type(error).__name__}: {error}") from error

        def replay() -> Any:
            graph.replay()
            return outputs

        self._captured = replay
        return allocated() - before

    def release(self) -> None:
        """Drops all outputs, a captured graph, and what a forward left for a backward."""
        self._subject.release()
        self._captured = None
        self._outputs, self.sums, self.kinds = (), [], set()

    def _multiply(self, pass_: Pass, factor: torch.Tensor, sign: torch.Tensor) -> None:
        """Replaces the factors of v and dout. Signs of dimensions cancel in dp = dout · v where both tensors have them."""
        of_v = self._one if pass_ is Pass.BWD else factor * sign
        self._write_factors(of_v, {Pass.FWD: self._one, Pass.BWD: factor, Pass.BOTH: sign}[pass_])
        self._factor, self._sign = factor, sign

    def _write_factors(self, of_v: torch.Tensor, of_dout: torch.Tensor) -> None:
        """Through `data`, so that tensors do not tell that they changed: a kernel that asks for their version must not rely on it."""
        for x, before, now in ((self._inputs.v, self._of_v, of_v), (self._inputs.dout, self._of_dout, of_dout)):
            if now is not before:
                x.data.mul_(self._of_heads(now / before, x))
        self._of_v, self._of_dout = of_v, of_dout

    def _of_heads(self, by_head: torch.Tensor, x_LHD: torch.Tensor) -> torch.Tensor:
        """Factors of KV heads as factors of the heads of a tensor, [heads, 1 or head size]; of dsinks, [heads]."""
        if x_LHD.dim() == 1:
            return by_head[:, 0].repeat_interleave(self._group)
        return by_head if x_LHD.shape[1] == len(by_head) else by_head.repeat_interleave(self._group, 0)
