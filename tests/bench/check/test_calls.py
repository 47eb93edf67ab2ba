"""Inputs that change between timed calls: what comes out changes by just their factors, to the bit."""

import pytest
import torch

from longca import masks
from longca.bench.check.calls import Calls
from longca.bench.check.check import KernelSubject
from longca.bench.check.timed_calls import compare_calls
from longca.kernels import registry
from longca.kernels.base import Case
from longca.kernels.inputs import Inputs, make
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
