"""Inputs that change between timed calls: the bits of a deterministic kernel do not depend on the factors."""

import pytest

from longca import masks
from longca.bench.check.timed_calls import compare_calls
from longca.bench.one_device.calls import Calls
from longca.kernels import registry
from longca.kernels.base import Case
from longca.results.record import Pass


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("pass_", list(Pass))
def test_a_deterministic_kernel_is_not_called_nondeterministic(dtype: str, pass_: Pass) -> None:
    mask, case = masks.causal(512), Case(512, 512, 2, 1, 16, 16, dtype, backward=True)
    kernel = registry.choose("torch:plain", mask, case)
    calls = Calls(kernel, registry.prepare(kernel, mask, case), case, seed=0)
    call = calls.of(pass_)
    for _ in range(6):
        calls.change(pass_)
        call()
    calls.change(pass_)
    assert len(calls.sums) == 6
    assert not compare_calls(calls, pass_).nondeterministic
