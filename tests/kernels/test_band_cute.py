"""`band_cute` without a GPU: order of thread blocks, layouts of joined heads, the host function on a stand-in of the library, refusals."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels.stand_ins import attention, gradients
from longca import masks
from longca.bench.plan.catalogue import make_catalogue
from longca.bench.plan.suite import Suite
from longca.kernels import backends, lower, registry
from longca.kernels.backends.band_cute import kernel
from longca.kernels.backends.band_cute._attention import JoinedAttention
from longca.kernels.backends.band_cute._layout import TILE_BITS, joined_layout
from longca.kernels.backends.band_cute._order import documents, documents_first, evenness, heads_to_join, query_tiles, shared_with_next
from longca.kernels.backends.fa4._bands import Tuning, backward_rows
from longca.kernels.base import Case, No, Yes
from longca.kernels.choice.candidates import candidates
from longca.masks import Mask
from longca.masks.tiles import TileLists
from longca.results.problem import Pass

CASE = Case(512, 512, 8, 2, 128, 128, "bf16", "cuda")
LOG2_E = float(np.log2(np.e))
EXPECTED_HEADS = {  # the fastest, or within 1 % of it, in most runs on an H200
    **dict.fromkeys(("sliding_window", "sliding_window_causal", "full_document"), 8),
    "block_causal_document": 4,
    **dict.fromkeys(("causal_document", "causal_blockwise", "prefix_lm_document", "share_question"), 2),
}


def lists_of(mask: Mask) -> TileLists:
    return mask.tiles(64, 128).by_col()


def touched_tiles(mask: Mask) -> np.ndarray:
    """Returns a bool for each query tile and key tile."""
    rows, keys = -(-mask.seqlen_q // 64), -(-mask.seqlen_k // 128)
    dense = np.zeros((rows * 64, keys * 128), np.bool_)
    dense[: mask.seqlen_q, : mask.seqlen_k] = lower.dense(mask, "cpu").numpy()
    return np.asarray(dense.reshape(rows, 64, keys, 128).any((1, 3)))


STRIPES = Mask.of(1000, 2000, [(row, row + 90, key, 0, key + 7, 0) for row in range(0, 900, 150) for key in range(row % 7, 1900, 333)])
SOME_KEYS = Mask.of(512, 1024, [(0, 100, 0, 0, 300, 0), (64, 512, 500, 0, 700, 0)])


@pytest.mark.parametrize("mask", [*(masks.build(name, 2048, seed=3) for name in masks.names()), STRIPES, SOME_KEYS], ids=lambda m: m.name)
def test_tiles_shared_by_neighbours_are_counted(mask: Mask) -> None:
    touched = touched_tiles(mask)
    lists = lists_of(mask)
    assert query_tiles(lists).tolist() == touched.sum(0).tolist()
    assert shared_with_next(lists).tolist() == (touched[:, :-1] & touched[:, 1:]).sum(0).tolist()


def test_documents_begin_where_neighbours_share_little() -> None:
    ends = [1000, 1050, 3000, 3072, 4096]  # the first within a tile
    mask = Mask.of(4096, 4096, [(a, b, a, 0, b, 0) for a, b in zip([0, *ends[:-1]], ends, strict=True)])
    number, touched = documents(lists_of(mask)), touched_tiles(mask)
    for key in range(1, 32):
        before, here = touched[:, key - 1], touched[:, key]
        assert (number[key] == number[key - 1]) == ((before & here).sum() > max(before.sum(), here.sum()) / 2)
    assert number[9:23].tolist() == [number[9]] * 14, "tiles of the same document"
    assert len(set(number[[0, 15, 31]])) == 3


@pytest.mark.parametrize(
    "mask", [Mask.of(64, 100, [(0, 64, 0, 0, 100, 0)]), Mask.of(512, 512, [])], ids=["one key tile", "nothing visible"]
)
def test_order_of_small_masks(mask: Mask) -> None:
    lists = lists_of(mask)
    count, document = query_tiles(lists), documents(lists)
    assert len(document) == len(count) == -(-mask.seqlen_k // 128)
    assert 8 % heads_to_join(count, document, 8, 8) == 0
    assert sorted(tiles_and_heads(documents_first(count, document, 3))) == [(tile, head) for tile in range(len(count)) for head in range(3)]


def tiles_and_heads(blocks: np.ndarray) -> list[tuple[int, int]]:
    return [(int(block) % 2**TILE_BITS, int(block) // 2**TILE_BITS) for block in blocks]


def test_long_documents_come_first_and_their_heads_in_turn() -> None:
    order = tiles_and_heads(documents_first(np.array([2, 2, 9, 7, 5, 3]), np.array([0, 0, 1, 1, 1, 2]), 2))
    long, middle, short = [[(tile, head) for head in range(2) for tile in tiles] for tiles in ([2, 3, 4], [5], [0, 1])]
    assert order == long + middle + short


@pytest.mark.parametrize(
    ("tiles", "heads"),
    [
        ([18] * 256, 8),
        ([290, *[18] * 255], 4),  # a multiprocessor has 2366 query tiles: 4 * 290 are less than half of them, 8 * 290 more
        ([600, *[18] * 255], 2),
        ([3000, *[2] * 255], 1),
        ([20] * 128 + [10] * 128, 8),  # 0.75 of the longest
        ([20] * 126 + [10] * 130, 4),
        ([*[100] * 4, *[10] * 252], 2),  # uneven: 4 * 100 are more than a tenth of 1416
    ],
)
def test_heads_are_joined_while_the_longest_block_stays_short(tiles: list[int], heads: int) -> None:
    """In the cases of one long list it is a document of its own, and all others are even."""
    document = np.cumsum([False, *(abs(a - b) > 100 for a, b in pairwise(tiles))])
    assert heads_to_join(np.array(tiles), document, heads_q=64, group=8) == heads


@pytest.mark.parametrize("name", masks.names())
def test_joined_heads_of_the_masks_of_the_paper(name: str) -> None:
    lists = lists_of(masks.build(name, 32768, seed=42))
    count, document = query_tiles(lists), documents(lists)
    chosen = {group: heads_to_join(count, document, 64, group) for group in (1, 3, 6, 7, 8, 64)}
    assert all(group % heads == 0 for group, heads in chosen.items())
    assert chosen[8] == EXPECTED_HEADS.get(name, chosen[8])
    if evenness(count, document) < 0.75:
        assert max(chosen.values()) <= 4


def joined_view(tensor: Tensor, row_mode: int, head_mode: int, tile: int, joined: int) -> Tensor:
    """Returns a view [joined heads, tiles, within a tile, ...], the batch left out."""
    shape, stride = joined_layout(tuple(tensor.shape), tensor.stride(), row_mode, head_mode, tile, joined)
    others = [mode for mode in range(1, tensor.dim()) if mode != row_mode]
    sizes, steps = ((*reversed(layout[row_mode]), *(layout[mode] for mode in others)) for layout in (shape, stride))
    return tensor.as_strided(sizes, steps)


@pytest.mark.parametrize("joined", [1, 2, 4, 8])
def test_rows_of_joined_heads_are_one_whole_head_after_the_other(joined: int) -> None:
    tokens, heads, size, tile = 6, 8, 3, 2
    q = torch.arange(tokens * heads * size).reshape(1, tokens, heads, size)
    view = joined_view(q, 1, 2, tile, joined)
    assert view.shape == (joined, 3, 2, 8 // joined, 3), "joined heads, tiles, rows of a tile, other heads, head size"
    for row in range(tokens):
        for head in range(heads):
            assert torch.equal(view[head % joined, row // tile, row % tile, head // joined], q[0, row, head])


class Lists(NamedTuple):
    mask_block_cnt: Tensor
    mask_block_idx: Tensor
    full_block_cnt: Tensor
    full_block_idx: Tensor
    block_size: tuple[int, int]


def config(rows: int, swapped: bool) -> SimpleNamespace:
    """Returns a row of the library's table of tiles."""
    swaps = dict(SdP_swapAB=swapped, dKV_swapAB=False, dQ_swapAB=False)
    stages = dict(num_stages_Q=2, num_stages_dO=2, num_stages_PdS=2)
    atoms = dict(AtomLayoutMSdP=1, AtomLayoutNdKV=2, AtomLayoutMdQ=1)
    return SimpleNamespace(**swaps, **stages, **atoms, m_block_size=rows, n_block_size=128, num_wg=2)


class Intervals:
    def __init__(self, count: int, anchors_are_keys: bool, per_fragment: bool, last_tile_first: bool) -> None:
        self.count, self.anchors_are_keys = count, anchors_are_keys

    def visible(self, bounds: Tensor, m_block: int, n_block: int, tile: tuple[int, int]) -> Tensor:
        """Returns which pairs of a tile are visible, queries x keys."""
        queries, keys = (torch.arange(size) + number * size for number, size in zip((m_block, n_block), tile, strict=True))
        anchors, others = (keys, queries) if self.anchors_are_keys else (queries, keys)
        inside = [(others >= bounds[2 * k, anchors, None]) & (others < bounds[2 * k + 1, anchors, None]) for k in range(self.count)]
        shown = torch.stack(inside).any(0)
        return shown.T if self.anchors_are_keys else shown


class JoinedBackward:
    """The main kernel in plain torch: a loop over thread blocks in their order, joined heads, and the listed query tiles of a key tile.

    Sums of a tile are the rows of a tile, one after the other. Where a thread block has all query heads of a KV head, dk and dv are
    written, scaled, and else added up.
    """

    joined = 1

    def __init__(self, dtype: Any, size: int, size_v: int, group: int, **options: Any) -> None:
        self.size, self.group, self.tile = size, group, (options["tile_m"], options["tile_n"])
        self.mask_mod = options["mask_mod"]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, dout: Tensor, lse2: Tensor, delta: Tensor, sums: Tensor, *rest: Any) -> None:
        dk, dv, scale, aux, lists, order = rest
        tile_m, tile_n = self.tile
        rows_q, rows_dout = (joined_view(t, 1, 2, tile_m, self.joined) for t in (q, dout))  # [joined heads, tiles, rows, heads, size]
        lse2, delta = (joined_view(t, 2, 1, tile_m, self.joined) for t in (lse2, delta))
        sums_of = joined_view(sums, 2, 1, tile_m * self.size, self.joined)
        for n, head in tiles_and_heads(order.numpy()):
            keys = slice(n * tile_n, (n + 1) * tile_n)
            key, value = k[0, keys, head // self.group], v[0, keys, head // self.group]
            dkey, dvalue = torch.zeros_like(key), torch.zeros_like(value)
            partial = [(int(m), True) for m in lists[1][0, 0, n, : lists[0][0, 0, n]]]
            listed = partial + [(int(m), False) for m in lists[3][0, 0, n, : lists[2][0, 0, n]]]
            for place, masked in [((joined, m), masked) for joined in range(self.joined) for m, masked in listed]:
                query, grad = rows_q[(*place, slice(None), head)], rows_dout[(*place, slice(None), head)]
                p = torch.exp2(query @ key.T * scale * LOG2_E - lse2[(*place, slice(None), head)][:, None])
                if masked:
                    p = p * self.mask_mod.visible(aux[0], place[1], n, self.tile)[:, : len(key)]
                ds = p * (grad @ value.T - delta[(*place, slice(None), head)][:, None])
                dvalue += p.T @ grad
                dkey += ds.T @ query
                sums_of[(*place, slice(None), head)] += (ds @ key).flatten()
            if self.group == 1:
                dk[0, keys, head], dv[0, keys, head] = dkey * scale, dvalue
            else:
                inside = slice(n * tile_n * self.size, n * tile_n * self.size + dkey.numel())
                dk[0, head // self.group, inside] += dkey.flatten()
                dv[0, head // self.group, inside] += dvalue.flatten()


def preprocess(out: Tensor, dout: Tensor, delta: Tensor, lse: Tensor, lse2: Tensor, sums: Tensor, *_: Any, fake_mode: bool) -> None:
    delta.copy_((out * dout).sum(-1).transpose(1, 2))
    lse2.copy_(lse * LOG2_E)
    sums.zero_()


def convert(sums: Tensor, result: Tensor, scale: float, *_: Any, fake_mode: bool) -> None:
    _, length, heads, size = result.shape
    result.copy_(sums.reshape(1, heads, -1, size)[:, :, :length].transpose(1, 2) * scale)


def library(swapped: bool) -> SimpleNamespace:
    return SimpleNamespace(
        _tile_size_bwd_sm90=lambda *_, sparse_block_size_q: config(sparse_block_size_q, swapped),
        normalize_block_sparse_config_bwd=lambda lists, **_: (lists, ()),
        maybe_contiguous=lambda tensor: tensor,
        torch2cute_dtype_map={torch.bfloat16: None},
        is_fake_mode=lambda: False,
        get_jit_cache=lambda name: {},
        utils=SimpleNamespace(hash_callable=id),
        get_aux_tensor_metadata=len,
        AuxData=lambda tensors, scalars: tensors,
        to_cute_aux_tensor=lambda tensor: tensor,
        to_cute_tensor=lambda tensor, **_: tensor,
        to_cute_block_sparse_tensors=lambda lists: lists,
        _bwd_preprocess=preprocess,
        _bwd_postprocess_convert=convert,
    )


def bounds_tensors(starts: Tensor, ends: Tensor, multiple: int, ends_with_a_tile: bool) -> list[Tensor]:
    bounds = torch.zeros(2 * len(starts), -(-starts.shape[1] // multiple) * multiple, dtype=torch.int32)
    bounds[0::2, : starts.shape[1]], bounds[1::2, : starts.shape[1]] = starts, ends
    return [bounds]


def prepared(monkeypatch: pytest.MonkeyPatch, mask: Mask, case: Case, joined: int | None, swapped: bool) -> JoinedAttention:
    """Returns the attention on a stand-in of the library, without its forward."""
    main = ModuleType("longca.kernels.backends.band_cute._main")
    vars(main).update(JoinedBackward=JoinedBackward, SOURCE="", compiled=lambda main, *_: main)
    monkeypatch.setitem(sys.modules, main.__name__, main)
    monkeypatch.setattr(sys.modules[f"{backends.__name__}.band_cute"], "_main", main, raising=False)
    monkeypatch.setattr("longca.kernels.backends.band_cute._attention.backward_rows", lambda case: 64)
    attention = JoinedAttention.__new__(JoinedAttention)
    attention.library, attention.case, attention.tuning, attention.joined = library(swapped), case, Tuning(), joined
    attention.cute = SimpleNamespace(Intervals=Intervals, bounds_tensors=bounds_tensors, TileListTensors=Lists)
    attention.backward_options = attention._lower_backward(mask)
    return attention


@pytest.mark.parametrize(
    ("group", "joined", "heads"), [(4, 2, 2), (4, 4, 4), (4, 1, 1), (3, 3, 3), (3, 2, 1), (1, 8, 1), (6, 4, 2), (4, None, 1)]
)
@pytest.mark.parametrize("name", ["share_question", "causal_document"])
@pytest.mark.parametrize("swapped", [True, False])
def test_gradients_of_joined_heads(
    monkeypatch: pytest.MonkeyPatch, name: str, group: int, joined: int | None, heads: int, swapped: bool
) -> None:
    """Where the number of joined heads does not divide those of a KV head, fewer are joined."""
    heads_q = 2 * group
    mask, case = masks.build(name, 192, seed=4), Case(192, 192, heads_q, 2, 16, 16, "bf16", "cpu", scale=0.3)
    made = prepared(monkeypatch, mask, case, joined, swapped)
    generator = torch.Generator().manual_seed(1)
    q, k, v, dout = (torch.randn(192, count, 16, generator=generator, dtype=torch.float64) for count in (heads_q, 2, 2, heads_q))
    visible = torch.from_numpy(mask.dense())
    given = (dout, q, k, v, *attention(q, k, v, visible, 0.3))
    for gradient, expected in zip(made.backward(*given), gradients(*given, visible, 0.3), strict=True):
        torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=1e-5, check_dtype=False, msg="sums are fp32")
    assert made.heads == heads


BAND_CUTE = kernel.BandCute()
PREFIX = masks.prefix_lm_causal(512)


def of_two(each: object) -> bool:
    return getattr(each, "name", "") in ("fa4", "band_cute")


@pytest.mark.parametrize("name", masks.names())
def test_best_takes_it_as_a_backward_only(name: str) -> None:
    """Its forward is that of fa4:bands, which would be timed twice."""
    mask, case = masks.build(name, 4096, seed=2), replace(CASE, seqlen_q=4096, seqlen_k=4096)
    able = candidates(mask, case, available=of_two)
    assert "band_cute" not in {each.label for each in (*able.forward, *able.whole)}
    backwards = [each.label for each in able.backward]
    assert backwards[-2:] == ["fa4:bands", "band_cute"], "in the place behind fa4"
    for other in (replace(case, backward=False), replace(case, deterministic=True)):
        assert "band_cute" not in {each.label for each in candidates(mask, other, available=of_two).all}


@pytest.mark.parametrize(("passes", "taken"), [("fwd,bwd", True), ("bwd", True), ("fwd", False)])
def test_all_has_it_where_a_backward_is_measured(monkeypatch: pytest.MonkeyPatch, passes: str, taken: bool) -> None:
    monkeypatch.setattr(registry, "available", lambda kernel, device: Yes())
    suite = Suite(
        kernels=("all",), masks=("prefix_lm_causal",), seqlens=("4K",), heads=("8:2",), passes=tuple(map(Pass, passes.split(",")))
    )
    catalogue = make_catalogue(suite, {}, "cuda")
    assert ("band_cute" in catalogue.entries, "band_cute" in catalogue.left_out) == (taken, not taken)


@pytest.mark.parametrize(
    ("mask", "case", "words"),
    [
        (PREFIX, replace(CASE, head_dim=96, head_dim_v=96), "takes head sizes 64 and 128"),
        (PREFIX, replace(CASE, head_dim=192, head_dim_v=128), "takes head sizes 64 and 128, the same for v, not 192/128"),
        (PREFIX, replace(CASE, deterministic=True), "no deterministic backward"),
        (PREFIX, replace(CASE, dtype="fp32"), "not fp32"),
        (PREFIX, replace(CASE, seqlen_q=500), "takes multiples of 64 queries at head size 128, not 500"),
        (PREFIX, replace(CASE, seqlen_q=192, head_dim=64, head_dim_v=64), "takes multiples of 128 queries at head size 64, not 192"),
        (PREFIX, replace(CASE, backward=False), "a forward alone is that of fa4:bands"),
        (masks.uniform_block(512, b=128), CASE, "fa4:blocks"),
    ],
)
def test_refusals(mask: masks.AnyMask, case: Case, words: str) -> None:
    answer = BAND_CUTE.supports(mask, case)
    assert isinstance(answer, No)
    assert words in answer.reason


def test_whole_tiles_are_those_of_the_backward() -> None:
    assert {size: backward_rows(replace(CASE, head_dim=size)) for size in kernel.ROWS} == kernel.ROWS
