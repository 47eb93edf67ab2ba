"""block_triton in Triton's interpreter; test_block_triton.py runs this file in a process of its own, where Triton starts as one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from longca import masks
from longca.bench.check.check import check_kernel
from longca.bench.check.reference import reference
from longca.kernels import registry
from longca.kernels.base import Attention, Case
from longca.kernels.inputs import make
from longca.masks import BlockMask

# No bf16: the interpreter casts fp32 to bf16 by cutting bits off, where a GPU rounds, and then all of out is too small by half a step.
SHAPES = {  # mask, length, parameters, heads, head sizes, dtype
    "64, grouped heads": ("uniform_block", 192, {"b": 64, "ratio": 0.5}, (4, 2), (16, 16), "fp32"),
    "64, odd length": ("uniform_block", 211, {"b": 64, "ratio": 0.3}, (2, 2), (32, 16), "fp16"),
    "128, odd length": ("uniform_block", 299, {"b": 128, "ratio": 0.5}, (4, 1), (16, 32), "fp16"),
    "128, three heads a group": ("uniform_block", 256, {"b": 128, "ratio": 0.5}, (3, 1), (16, 16), "fp32"),
    "variable, grouped heads": ("variable_block", 170, {"avg": 50, "least": 7, "ratio": 0.4}, (4, 1), (16, 16), "fp16"),
    "variable, equal heads": ("variable_block", 221, {"avg": 80, "least": 20, "ratio": 0.5}, (2, 2), (16, 16), "fp16"),
    "variable, shared pattern": ("variable_block", 190, {"avg": 60, "least": 1, "ratio": 0.5, "heads": 1}, (4, 2), (16, 16), "fp32"),
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
    mask = masks.build("variable_block", 132, seed=1, heads=2, avg=40, least=8, ratio=0.5)
    case = Case(132, 132, 4, 2, 16, 16, "fp32")
    q, k, v, dout = make(case)
    whole = _prepared(mask, case)
    out, lse = whole.forward(q, k, v)
    expected = whole.backward(dout, q, k, v, out, lse)
    halves = [slice(0, 70), slice(70, 132)]
    gradients = []
    for keys in halves:
        part = _prepared(mask.cols([(keys.start, keys.stop)]), replace(case, seqlen_k=keys.stop - keys.start))
        gradients.append(part.backward(dout, q, k[keys].contiguous(), v[keys].contiguous(), out, lse))
    joined = [sum(part[0] for part in gradients), *(torch.cat([part[i] for part in gradients]) for i in (1, 2))]
    for got, right in zip(joined, expected, strict=True):
        torch.testing.assert_close(got, right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tile", [16, 64, 128])
def test_lists_name_every_kept_pair_once(tile: int) -> None:
    from longca.kernels.backends.block_triton._lists import lists, pattern, tiles

    mask = masks.build("variable_block", 400, seed=5, heads=2, avg=60, least=9, ratio=0.5)
    kept, _, col_edges = pattern(mask, "cpu")
    made, cut = lists(kept, col_edges, tile), tiles(mask.row_edges, tile, "cpu")
    seen = np.zeros((2, 400, 400), int)
    for head in range(2):
        for start, count, block in zip(*(x.tolist() for x in cut.arguments), strict=True):
            number = head * (len(mask.row_edges) - 1) + block
            for i in range(made.whole_ptr[number], made.whole_ptr[number + 1]):
                seen[head, start : start + count, made.whole_start[i] : made.whole_start[i] + tile] += 1
            for i in range(made.short_ptr[number], made.short_ptr[number + 1]):
                assert 0 < made.short_count[i] < tile
                seen[head, start : start + count, made.short_start[i] : made.short_start[i] + made.short_count[i]] += 1
    assert np.array_equal(seen, mask.dense().astype(int))


@pytest.mark.parametrize("tile", [16, 64, 128])
@pytest.mark.parametrize("tiles_are_rows", [False, True])
def test_lists_below_the_diagonal(tile: int, tiles_are_rows: bool) -> None:
    """Whole tiles are all visible; whole and short ones together hold every visible pair once."""
    from longca.kernels.backends.block_triton._lists import lists, pattern, under_diagonal

    drawn = masks.build("variable_block", 400, seed=5, heads=2, avg=60, least=9, ratio=0.5)
    assert isinstance(drawn, BlockMask)
    mask = BlockMask(drawn.row_edges, drawn.col_edges, drawn.kept, band=masks.causal(400))
    kept, row_edges, col_edges = pattern(mask, "cpu")
    own, other = (col_edges, row_edges) if tiles_are_rows else (row_edges, col_edges)
    made = under_diagonal(lists(kept.transpose(1, 2) if tiles_are_rows else kept, other, tile), own, tile, tiles_are_rows=tiles_are_rows)
    right = mask.dense().transpose(0, 2, 1) if tiles_are_rows else mask.dense()
    seen = np.zeros((2, 400, 400), int)
    for number in range(2 * (len(own) - 1)):
        head, block = divmod(number, len(own) - 1)
        rows = slice(int(own[block]), int(own[block + 1]))
        for i in range(made.whole_ptr[number], made.whole_ptr[number + 1]):
            keys = slice(int(made.whole_start[i]), int(made.whole_start[i]) + tile)
            assert right[head, rows, keys].all()
            seen[head, rows, keys] += 1
        for i in range(made.short_ptr[number], made.short_ptr[number + 1]):
            keys = slice(int(made.short_start[i]), int(made.short_start[i] + made.short_count[i]))
            assert right[head, rows, keys].any()
            seen[head, rows, keys] += right[head, rows, keys]
    assert np.array_equal(seen, right.astype(int))


def _prepared(mask: BlockMask, case: Case) -> Attention:
    kernel = registry.get("block_triton")
    assert registry.supports(kernel, mask, case)
    return kernel.prepare(mask, case)


def _check(mask: BlockMask, case: Case) -> None:
    verdict = check_kernel(registry.get("block_triton"), _prepared(mask, case), case, reference(mask, case))
    assert verdict.ok, verdict.reason
    assert set(verdict.errors) == {"out", "lse", "dq", "dk", "dv"}


@pytest.mark.parametrize(("name", "params"), [("uniform_block", {"b": 64}), ("variable_block", {"avg": 50, "least": 9})])
def test_tensor_descriptors_read_the_same(monkeypatch: pytest.MonkeyPatch, name: str, params: dict[str, float]) -> None:
    """What runs on Hopper: loops read through descriptors, which return the tokens behind a short tile too."""
    from longca.kernels.backends.block_triton import _launch

    monkeypatch.setattr(_launch, "_has_tma", lambda case: True)
    mask = masks.build(name, 131, seed=8, heads=2, ratio=0.5, **params)
    _check(mask, Case(131, 131, 4, 2, 16, 16, "fp16"))
