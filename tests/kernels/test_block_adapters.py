"""Adapters of block-sparse libraries: what they refuse, and what they hand over, seen by stand-ins that compute it from that alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from kernels.stand_ins import attention, checked, gradients, stand_in
from longca import masks
from longca.kernels import block_lists, registry
from longca.kernels.base import Case, No
from longca.masks import BlockMask

LN2 = float(np.log(2))


def _case(**changes: Any) -> Case:
    return Case(**{**dict(seqlen_q=256, seqlen_k=256, heads_q=2, heads_kv=2, head_dim=64, head_dim_v=64, backward=False), **changes})


@pytest.mark.parametrize(
    ("kernel", "mask", "case", "reason"),
    [
        ("cudnn_bsa", {"b": 32}, _case(), "blocks of 64 or 128 tokens, not of 32"),
        ("cudnn_bsa", {"b": 64}, _case(backward=True), "heads of 128"),
        ("cudnn_bsa", {"b": 64, "length": 250}, _case(seqlen_q=250, seqlen_k=250), "multiples of its blocks of 64"),
        ("vsa", {"b": 128}, _case(), "blocks of 64 tokens, not of 128"),
        ("vsa", {"b": 64}, _case(heads_q=4), "as many KV heads"),
        ("vsa_triton", {"b": 64}, _case(scale=1.0), "softmax scale"),
        ("vsa_triton", {"b": 64}, _case(head_dim=96, head_dim_v=96), "head size 96"),
        ("flashinfer", {"b": 64}, _case(backward=True), "has no backward"),
        ("flashinfer", {"b": 64}, _case(head_dim=128), "same head size"),
        ("fa2_sparse", {"b": 64}, _case(), "blocks of 128 tokens, not of 64"),
        ("fa4:blocks", {"b": 64}, _case(head_dim=128, head_dim_v=128, dtype="bf16", backward=True), "or of 64 for a forward alone"),
        ("fa4:blocks", {"b": 32}, _case(head_dim=128, head_dim_v=128, dtype="bf16"), "multiples of 128"),
        ("fa2_sparse", {"avg": 64, "least": 9}, _case(), "of different sizes"),
    ],
)
def test_refusals(kernel: str, mask: dict[str, int], case: Case, reason: str) -> None:
    length, params = mask.get("length", 256), {key: value for key, value in mask.items() if key != "length"}
    built = masks.build("variable_block" if "avg" in mask else "uniform_block", length, heads=2, **params)
    answer = registry.supports(registry.get(kernel), built, case)
    assert isinstance(answer, No)
    assert reason in answer.reason


@pytest.mark.parametrize("kernel", ["cudnn_bsa", "vsa", "vsa_triton", "flashinfer", "fa2_sparse", "block_triton"])
def test_masks_on_top_are_refused_where_they_cannot_be_run(kernel: str) -> None:
    edges = np.arange(0, 257, 128 if kernel == "fa2_sparse" else 64)
    kept = np.ones((2, len(edges) - 1, len(edges) - 1), bool)
    bands = (None, masks.sliding_window(256, w=9), masks.causal(256))
    whole, window, below = (registry.supports(registry.get(kernel), BlockMask(edges, edges, kept, band=band), _case()) for band in bands)
    assert whole
    assert isinstance(window, No)
    if kernel == "block_triton":
        assert "takes a causal mask on top" in window.reason
        assert below
    else:
        assert isinstance(below, No)
        assert "hides a part of some" in below.reason


@pytest.mark.parametrize("kernel", ["cudnn_bsa", "vsa", "vsa_triton", "flashinfer", "fa2_sparse", "block_triton"])
def test_bands_and_a_wrong_number_of_patterns_are_refused(kernel: str) -> None:
    four = _case(heads_q=4, heads_kv=4)
    for mask, words in ((masks.causal(256), "block patterns"), (masks.uniform_block(256, heads=2), "one per KV head (4), not 2")):
        answer = registry.supports(registry.get(kernel), mask, four)
        assert isinstance(answer, No)
        assert words in answer.reason


def _visible(index: torch.Tensor, count: torch.Tensor, size: int) -> torch.Tensor:
    """Pairs [H, L, L] of lists [1, H, rows, n] with counts [1, H, rows]."""
    blocks = torch.zeros(*index.shape[1:3], index.shape[2], dtype=torch.bool)
    for head, row in np.ndindex(*index.shape[1:3]):
        blocks[head, row, index[0, head, row, : int(count[0, head, row])].long()] = True
    return blocks.repeat_interleave(size, 1).repeat_interleave(size, 2)


def in_tokens(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """[L, H, D] of [1, H, L, D]."""
    return [x[0].transpose(0, 1) for x in tensors]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("size", [64, 128])
def test_cudnn_bsa_hands_over_the_pattern(monkeypatch: pytest.MonkeyPatch, size: int, backward: bool) -> None:
    def forward(q: Any, k: Any, v: Any, q2k_block_index: Any, block_sparse_num: int, **options: Any) -> dict[str, torch.Tensor]:
        assert options["layout"] == "bshd"
        count = torch.full(q2k_block_index.shape[:3], block_sparse_num)
        visible = _visible(q2k_block_index, count, options["sparse_block_size"])
        out, lse = attention(q[0], k[0], v[0], visible, options["softmax_scale"])
        return {"o_tensor": out[None], "lse_tensor": lse[None]}

    def backward_of(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, **options: Any) -> dict[str, torch.Tensor]:
        """As the library does, from a given lse, and for equal heads only."""
        assert q.shape == k.shape == v.shape
        assert all(x.is_contiguous() for x in (k, v))
        index = options["q2k_block_index"]
        visible = _visible(index, torch.full(index.shape[:3], options["block_sparse_num"]), options["sparse_block_size"])
        made = gradients(dout[0], q[0], k[0], v[0], out[0], lse[0], visible, options["softmax_scale"])
        return {f"{name}_tensor": x[None] for name, x in zip(("dq", "dk", "dv"), made, strict=True)}

    functions = {"block_sparse_attention_forward": forward, "block_sparse_attention_backward": backward_of}
    stand_in(monkeypatch, "cudnn.block_sparse_attention", **functions)
    case = _case(heads_q=4, head_dim=128, head_dim_v=128, dtype="bf16", backward=backward)
    checked("cudnn_bsa", masks.build("uniform_block", 256, heads=2, b=size, ratio=0.5), case)


def test_vsa_triton_hands_over_the_pattern_and_speaks_log2(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(q: Any, k: Any, v: Any, index: Any, count: Any, sizes: Any) -> tuple[torch.Tensor, torch.Tensor]:
        assert sizes.tolist() == [64] * 4
        out, lse = attention(*in_tokens(q, k, v), _visible(index, count, 64), 64**-0.5)
        return out.transpose(0, 1)[None], lse[None] / LN2

    def backward(dout: Any, q: Any, k: Any, v: Any, out: Any, lse_log2: Any, *lists: Any) -> list[torch.Tensor]:
        index, count, row_index, row_count, _ = lists
        visible = _visible(index, count, 64)
        assert torch.equal(_visible(row_index, row_count, 64), visible.transpose(1, 2))
        made = gradients(*in_tokens(dout, q, k, v, out), lse_log2[0] * LN2, visible, 1 / 8)
        return [x.transpose(0, 1)[None] for x in made]

    name = "fastvideo_kernel.triton_kernels.block_sparse_attn_triton"
    stand_in(monkeypatch, name, triton_block_sparse_attn_forward=forward, triton_block_sparse_attn_backward=backward)
    checked("vsa_triton", masks.build("uniform_block", 256, heads=2, b=64, ratio=0.5), _case(backward=True))


def test_vsa_hands_over_the_pattern_and_lets_autograd_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(q: Any, k: Any, v: Any, index: Any, count: Any, sizes: Any) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = attention(*in_tokens(q, k, v), _visible(index, count, 64), 64**-0.5)
        return out.transpose(0, 1)[None], lse[None]

    stand_in(monkeypatch, "fastvideo_kernel.block_sparse_attn", block_sparse_attn_sm90=forward)
    checked("vsa", masks.build("uniform_block", 256, heads=2, b=64, ratio=0.5), _case(backward=True))


def test_flashinfer_refuses_lists_that_it_cannot_count() -> None:
    length = 128 << 10
    dense, case = masks.build("uniform_block", length, heads=1, ratio=1.0), _case(seqlen_q=length, seqlen_k=length, heads_q=8, heads_kv=8)
    refused = registry.supports(registry.get("flashinfer"), dense, case)
    assert isinstance(refused, No)
    assert "2,147,483,648 here" in refused.reason
    assert registry.supports(registry.get("flashinfer"), dense, replace(case, heads_kv=4))


@pytest.mark.parametrize("name", ["uniform_block", "variable_block"])
def test_flashinfer_plans_the_pattern_and_speaks_log2(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    class Wrapper:
        def __init__(self, workspace: torch.Tensor) -> None:
            self.visible = torch.empty(0)

        def plan(
            self, kept: Any, rows: Any, keys: Any, heads_q: int, heads_kv: int, dim: int, *, sm_scale: float, q_data_type: Any
        ) -> None:
            tokens = [kept[h].repeat_interleave(rows[h], 0).repeat_interleave(keys[h], 1) for h in range(heads_kv)]
            self.visible, self.scale = torch.stack(tokens).repeat_interleave(heads_q // heads_kv, 0), sm_scale

        def run(self, q: Any, k: Any, v: Any, return_lse: bool) -> tuple[torch.Tensor, torch.Tensor]:
            out, lse = attention(*(x.transpose(0, 1) for x in (q, k, v)), self.visible, self.scale)
            return out.transpose(0, 1), lse / LN2

    stand_in(monkeypatch, "flashinfer.sparse", VariableBlockSparseAttentionWrapper=Wrapper)
    params: dict[str, float] = {"b": 64} if name == "uniform_block" else {"avg": 60, "least": 9}
    checked("flashinfer", masks.build(name, 201, heads=2, **params), _case(seqlen_q=201, seqlen_k=201, heads_q=4))


@pytest.mark.parametrize("tile", [(128, 128), (64, 128)])
@pytest.mark.parametrize("of_keys", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [512, 700])
def test_tile_lists_hold_every_tile_that_shows_something(length: int, causal: bool, of_keys: bool, tile: tuple[int, int]) -> None:
    pattern = masks.build("uniform_block", length, b=128, heads=2, ratio=0.4, seed=3)
    mask = BlockMask(pattern.row_edges, pattern.col_edges, pattern.kept, band=masks.causal(length) if causal else None)
    partial_count, partial, full_count, full = block_lists.tile_lists(mask, "cpu", tile, of_keys=of_keys)
    shown = np.zeros((2, *(-(-length // size) * size for size in tile)), bool)  # with the padding, which nobody sees
    shown[:, :length, :length] = mask.dense()
    tiles = shown.reshape(2, shown.shape[1] // tile[0], tile[0], -1, tile[1])
    whole, touched = tiles.all((2, 4)), tiles.any((2, 4))
    if of_keys:
        whole, touched = whole.transpose(0, 2, 1), touched.transpose(0, 2, 1)
    for head, line in np.ndindex(whole.shape[:2]):
        listed = [index[head, line, : count[head, line]].tolist() for index, count in ((full, full_count), (partial, partial_count))]
        assert listed == [sorted(tiles) for tiles in listed]
        in_full, in_partial = map(set, listed)
        assert in_full <= set(np.flatnonzero(whole[head, line]))
        assert in_full | in_partial >= set(np.flatnonzero(touched[head, line]))
        assert not in_full & in_partial
    if not causal and length % 128 == 0:
        assert not partial_count.any()
