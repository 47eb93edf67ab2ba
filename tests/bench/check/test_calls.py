"""Inputs that change between timed calls: what comes out changes by just their factors, to the bit."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from longca import masks
from longca.bench.check.calls import Calls
from longca.bench.check.check import KernelSubject
from longca.bench.check.timed_calls import compare_calls
from longca.bench.check.trials import _RingSubject, _Step
from longca.bench.many_devices.rank_job import ProgramSubject
from longca.kernels import registry
from longca.kernels.base import Case
from longca.kernels.inputs import Inputs, make
from longca.parallel.comm.null import NullComm
from longca.results.problem import Pass


def calls_of(case: Case, name: str = "torch:plain") -> tuple[Calls, Inputs]:
    mask, inputs = masks.causal(case.seqlen_q), make(case)
    kernel = registry.choose(name, mask, case)
    return Calls(KernelSubject(kernel, registry.prepare(kernel, mask, case).attention, case), inputs, case, seed=0), inputs


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("pass_", list(Pass))
@pytest.mark.parametrize("name", ["torch:plain", "sdpa:math"])
def test_a_deterministic_kernel_is_not_called_nondeterministic(dtype: str, pass_: Pass, name: str) -> None:
    calls, _ = calls_of(Case(512, 512, 4, 2, 16, 16, dtype, backward=True), name)
    calls.keep(pass_)
    call = calls.of(pass_)
    call()
    plain = calls.last(pass_)
    for _ in range(6):
        calls.change(pass_)
        call()
        assert all(torch.equal(x, plain[name]) for name, x in calls.last(pass_).items())
    calls.change(pass_)
    assert len(calls.sums) == 7
    assert compare_calls(calls.sums, plain) == (False, "")


@pytest.mark.parametrize(("pass_", "least"), [(Pass.FWD, 40), (Pass.BOTH, 40), (Pass.BWD, 2)])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_timed_inputs_seldom_come_again_even_with_one_kv_head(pass_: Pass, least: int, dtype: str) -> None:
    calls, inputs = calls_of(Case(8, 8, 2, 1, 16, 16, dtype, backward=True))
    calls.keep(pass_)
    seen = set()
    for _ in range(50):
        calls.change(pass_)
        seen.add((tuple(inputs.v.flatten().tolist()), tuple(inputs.dout.flatten().tolist())))
    assert len(seen) >= (least if dtype == "fp16" or pass_ is not Pass.BWD else 8)


@pytest.mark.parametrize("pass_", list(Pass))
def test_inputs_are_restored_for_the_next_pass(pass_: Pass) -> None:
    case = Case(8, 8, 2, 1, 16, 16, "fp32", backward=True)
    calls, inputs = calls_of(case)
    for _ in range(5):
        calls.change(pass_)
    calls.keep(Pass.FWD)
    assert all(torch.equal(now, before) for now, before in zip(inputs, make(case), strict=True))


def test_an_lse_that_differs_between_calls_is_told() -> None:
    lse = torch.full((1, 200), 3.0)
    lse[0, 100:] = -torch.inf  # rows without keys
    other = lse.clone()
    other[0, 7] = 3.0001
    calls, _ = calls_of(Case(200, 200, 1, 1, 16, 16, "fp32", backward=False))
    out = torch.ones(200, 1, 16)
    for answer in (lse, other, lse):
        calls._outputs = out, answer
        calls.change(Pass.FWD)
    assert compare_calls(calls.sums, {"lse": lse}) == (True, "")
    calls._outputs = out, torch.zeros_like(lse)
    calls.change(Pass.FWD)
    differ, problem = compare_calls(calls.sums, {"lse": lse})
    assert differ
    assert problem == "its timed calls disagree: lse of tokens 0 to 127, head 0 differs in call 4 of 4"


def test_steps_of_a_ring_and_the_program_of_a_rank_are_called_without_gradients() -> None:
    """As in training: only where autograd makes a kernel's backward are gradients recorded."""
    case, modes = Case(20, 20, 2, 1, 8, 8, "fp32"), list[bool]()

    class Noting:
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            modes.append(torch.is_grad_enabled())
            return q, SimpleNamespace(lse=None) if self is program else torch.zeros(2, 20)

        def backward(self, dout: Any, *kept: Any) -> Any:
            modes.append(torch.is_grad_enabled())
            return dout, *(torch.zeros(20, 1, 8) for _ in range(2))

    program = Noting()
    ring = _RingSubject([_Step(registry.get("torch:plain"), Noting(), slice(0, 20))])  # type: ignore[arg-type]
    subjects: list[Any] = [ring, ProgramSubject(program, NullComm(0, 1, torch.device("cpu")))]  # type: ignore[arg-type]
    for subject in subjects:
        subject.forward(make(case))
        subject.backward(make(case))
    assert modes == [False] * 4
