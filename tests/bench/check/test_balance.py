"""Sums that hold for the gradients of any attention, and rows that are drawn after the clock."""

import pytest
import torch

from longca import masks
from longca.bench.check.balance import unbalanced
from longca.kernels import registry
from longca.kernels.base import Case
from longca.kernels.inputs import Inputs, make
from longca.masks import AnyMask, Mask

GAP = Mask.of(300, 300, [(0, 100, 0, 0, 1, 1), (150, 300, 0, 0, 1, 1)])  # rows 100 to 149 see no key
MASKS = {"causal": masks.causal(300), "gap": GAP, "documents": masks.full_document(300, documents=[100, 200])}
MASKS["blocks"] = masks.uniform_block(300, heads=2, b=64)


def gradients(mask: AnyMask, case: Case) -> tuple[Inputs, dict[str, torch.Tensor]]:
    inputs = make(case)
    attention = registry.prepare(registry.choose("torch:plain", mask, case), mask, case).attention
    out, lse = attention.forward(*inputs[:3])
    return inputs, dict(zip(("dq", "dk", "dv"), attention.backward(inputs.dout, *inputs[:3], out, lse), strict=True))


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "fp64"])
@pytest.mark.parametrize("name", MASKS)
def test_gradients_of_an_honest_kernel_are_balanced(name: str, dtype: str) -> None:
    case = Case(300, 300, 4, 2, 16, 32, dtype)
    inputs, right = gradients(MASKS[name], case)
    assert unbalanced(MASKS[name], case, inputs, right) == ""


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("tensor", ["dk", "dv"])
def test_gradients_that_lack_a_part_are_not(name: str, tensor: str, dtype: str) -> None:
    case = Case(300, 300, 4, 2, 16, 32, dtype)
    inputs, wrong = gradients(MASKS[name], case)
    wrong[tensor][:, 1] = 0
    problem = unbalanced(MASKS[name], case, inputs, wrong)
    if (tensor, name) == ("dv", "blocks"):
        assert problem == ""  # which rows of a block pattern see no key is not known, so that sum is not compared
        return
    assert problem.startswith(f"{tensor} is wrong: the sum of {tensor}")
    assert "in KV head 1, allowed" in problem
    wrong[tensor][:, 1] = torch.nan
    assert unbalanced(MASKS[name], case, inputs, wrong)
