"""Tests for the repository of a kernel. Run `pytest test_my_kernel.py` next to my_kernel.py, on a CPU or a GPU.

Each test runs the check of `longca verify` in this process. It compares out and gradients with fp64 on two data sets, and finds changed
inputs, changed earlier outputs and memory that was never written. A failure names the wrong tokens, and the mistake if it is a known one.
"""

import pytest
from my_kernel import my_kernel

import longca
from longca.testing import assert_correct


@pytest.mark.parametrize("mask", longca.masks.names())
def test_every_mask(mask: str) -> None:
    assert_correct(my_kernel, mask, trials=False)


@pytest.mark.parametrize("seqlen", [1, 63, 129, 500])
def test_lengths_that_fill_no_tile(seqlen: int) -> None:
    assert_correct(my_kernel, ["causal", "full"], seqlen, trials=False)


def test_shapes_dtypes_and_what_users_rely_on() -> None:
    """Another scale, rows without keys, strided inputs: the trials, in every shape and dtype."""
    assert_correct(my_kernel, "causal", 128, heads=["4:4", "4:1"], head_dim=[16, 64], dtype=["fp32", "bf16"])
