"""block_triton in Triton's interpreter; test_block_triton.py runs this file in a process of its own, where Triton starts as one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels.stand_ins import checked
from longca import masks
from longca.bench.check.trial_names import trials_on
from longca.cli import main
from longca.kernels import registry
from longca.kernels.base import Attention, Case
from longca.kernels.inputs import make
from longca.masks import BlockMask

# No bf16: the interpreter casts fp32 to bf16 by cutting bits off, where a GPU rounds, and then all of out is too small by half a step.
SHAPES = {  # mask, length, parameters, heads, head sizes, dtype
    "64, grouped heads": ("uniform_block", 150, {"b": 64, "ratio": 0.5}, (4, 2), (16, 16), "fp32"),
    "64, equal heads": ("uniform_block", 171, {"b": 64, "ratio": 0.4}, (2, 2), (32, 16), "fp16"),
    "128, odd length": ("uniform_block", 171, {"b": 128, "ratio": 0.5}, (4, 1), (16, 32), "fp16"),
    "128, three heads a group": ("uniform_block", 140, {"b": 128, "ratio": 0.5}, (3, 1), (16, 16), "fp32"),
    "variable, grouped heads": ("variable_block", 131, {"avg": 40, "least": 7, "ratio": 0.4}, (4, 1), (16, 16), "fp16"),
    "variable, shared pattern": ("variable_block", 130, {"avg": 60, "least": 1, "ratio": 0.5, "heads": 1}, (4, 2), (16, 16), "fp32"),
    "smaller than a tile": ("uniform_block", 9, {"b": 64, "ratio": 1.0}, (2, 1), (16, 16), "fp32"),
}


@pytest.mark.parametrize("on_top", ["nothing", "causal"])
@pytest.mark.parametrize("shape", SHAPES)
def test_right_forward_and_backward(shape: str, on_top: str) -> None:
    name, length, params, heads, dims, dtype = SHAPES[shape]
    mask = masks.build(name, length, seed=3, **{"heads": heads[1], **params})
    assert isinstance(mask, BlockMask)
    if on_top == "causal":  # random blocks: some rows see nothing of some tiles, or nothing at all
        mask = BlockMask(mask.row_edges, mask.col_edges, mask.kept, band=masks.causal(length))
    _check(mask, Case(length, length, *heads, *dims, dtype))


def test_rows_and_keys_that_nobody_sees() -> None:
    kept = np.array([[[0, 0, 0], [1, 0, 1], [0, 0, 1]], [[0, 0, 0], [0, 0, 0], [0, 0, 0]]], bool)
    mask = BlockMask([0, 70, 90, 140], [0, 33, 64, 150], kept)
    case = Case(140, 150, 4, 2, 16, 16, "fp32")
    _check(mask, case)
    out, lse = _prepared(mask, case).forward(*make(case)[:3])
    assert not out[:70].any()
    assert not out[:, 2:].any()
    assert (lse[:, :70] == float("-inf")).all()


def test_backward_from_a_global_out_and_lse() -> None:
    """Two halves of the keys: forward apart, joined by lse, backward of each half from the joined out and lse."""
    mask = masks.build("variable_block", 100, seed=1, heads=2, avg=40, least=8, ratio=0.5)
    case = Case(100, 100, 4, 2, 16, 16, "fp32")
    q, k, v, dout = make(case)
    whole = _prepared(mask, case)
    out, lse = whole.forward(q, k, v)
    expected = whole.backward(dout, q, k, v, out, lse)
    halves = [slice(0, 45), slice(45, 100)]
    gradients = []
    for keys in halves:
        part = _prepared(mask.cols([(keys.start, keys.stop)]), replace(case, seqlen_k=keys.stop - keys.start))
        gradients.append(part.backward(dout, q, k[keys].contiguous(), v[keys].contiguous(), out, lse))
    joined = [sum(part[0] for part in gradients), *(torch.cat([part[i] for part in gradients]) for i in (1, 2))]
    for got, right in zip(joined, expected, strict=True):
        torch.testing.assert_close(got, right, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("in_process")
def test_verify_checks_block_masks_with_a_pattern_per_kv_head(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--seqlens", "70", "--heads", "4:2", "--head-dim", "16", "--device", "cpu"]
    assert main(["verify", "--kernels", "block_triton", "--masks", "uniform_block,variable_block", *shape]) == 0
    *_, refused, skipped, last = capsys.readouterr().out.splitlines()
    assert refused == "unsupported: block_triton on trial: rows without keys: block_triton takes block patterns, not masks made of bands"
    assert skipped == "skipped: block_triton on trial: capped scores: a kernel need not support this"
    counts = dict(reversed(count.split()) for count in last.split(", "))
    assert counts == {"ok": str(2 + len(trials_on("cpu")) - 2), "skipped": "1", "unsupported": "1"}


def _prepared(mask: BlockMask, case: Case) -> Attention:
    return registry.get("block_triton").prepare(mask, case)


def _check(mask: BlockMask, case: Case) -> None:
    assert set(checked("block_triton", mask, case).errors) == {"out", "lse", "dq", "dk", "dv"}


@pytest.mark.parametrize(("name", "params"), [("uniform_block", {"b": 64}), ("variable_block", {"avg": 50, "least": 9})])
def test_tensor_descriptors_read_the_same(monkeypatch: pytest.MonkeyPatch, name: str, params: dict[str, float]) -> None:
    """What runs on Hopper: loops read through descriptors, which return the tokens behind a short tile too."""
    from longca.kernels.backends.block_triton import _launch

    monkeypatch.setattr(_launch, "_has_tma", lambda case: True)
    mask = masks.build(name, 131, seed=8, heads=2, ratio=0.5, **params)
    _check(mask, Case(131, 131, 4, 2, 16, 16, "fp16"))
