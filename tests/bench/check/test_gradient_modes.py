"""The check and the clock call a kernel in the modes in which `longca.attention` calls it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

import longca
from longca import masks
from longca.bench.check.calls import call_of
from longca.bench.check.check import KernelSubject
from longca.kernels import inputs, registry
from longca.kernels.base import Attention, Case, Kernel, Yes
from longca.results.problem import Pass

MASK, CASE = masks.causal(20), Case(20, 20, 2, 1, 8, 8, "fp32")
Mode = tuple[str, bool]  # of a call: its pass, and whether gradients are recorded


class Noting(Attention):
    def __init__(self, inner: Attention, modes: list[Mode]) -> None:
        self.inner, self.modes = inner, modes

    def forward(self, q, k, v):
        self.modes.append(("fwd", torch.is_grad_enabled()))
        return self.inner.forward(q, k, v)

    def backward(self, dout, q, k, v, out, lse):
        self.modes.append(("bwd", torch.is_grad_enabled()))
        return self.inner.backward(dout, q, k, v, out, lse)


class NotingKernel(Kernel):
    """Runs another kernel and notes the modes of its calls."""

    name, devices, capability = "noting", ("cpu",), (0, 0)

    def __init__(self, inner: str, modes: list[Mode]) -> None:
        super().__init__()
        self.inner, self.modes = registry.get(inner), modes
        self.backward, self.layout, self.gives_lse = self.inner.backward, self.inner.layout, self.inner.gives_lse

    def supports(self, mask, case):
        return Yes()

    def prepare(self, mask, case):
        return Noting(self.inner.prepare(mask, case), self.modes)


@pytest.mark.parametrize(("label", "backward"), list(product(["torch:plain", "sdpa:math"], [True, False])))
def test_a_kernel_is_called_as_in_training_and_inference(label: str, backward: bool) -> None:
    checked, used = list[Mode](), list[Mode]()
    case = replace(CASE, backward=backward)
    kernel, given = NotingKernel(label, checked), inputs.make(case, 0, registry.get(label).layout)
    call_of(KernelSubject(kernel, kernel.prepare(MASK, case), case), given, Pass.BOTH if backward else Pass.FWD)()
    with torch.set_grad_enabled(backward):
        out = longca.attention(*(x.detach().requires_grad_() for x in given[:3]), MASK, kernel=NotingKernel(label, used))
    if backward:
        out.backward(given.dout)
    assert checked[0] == used[0] == ("fwd", backward and label == "sdpa:math")
    backwards = [("bwd", False)] if backward else []
    assert checked[1:] == backwards
    assert used[1:] == ([] if label == "sdpa:math" else backwards)  # torch runs that of autograd itself
