"""What `fa4:joined` needs and no GPU: layouts and lists of joined heads, its host function on a stand-in of the library, refusals."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from longca import masks
from longca.kernels import backends, lower, registry
from longca.kernels.backends.fa4 import kernel
from longca.kernels.backends.fa4._bands import Tuning, backward_rows
from longca.kernels.backends.fa4._joined import (
    COMPILED,
    JoinedAttention,
    Joining,
    documents,
    documents_first,
    heads_to_join,
    heavy_first,
    with_joined_heads,
)
from longca.kernels.backends.fa4._joined_layout import HEADS, TILES, WHOLE_HEADS, joined_layout
from longca.kernels.base import Case, No, Yes
from longca.masks import Mask

CASE = Case(512, 512, 8, 2, 128, 128, "bf16", "cuda")
LOG2_E = float(np.log2(np.e))


ORDERS = TILES, HEADS, WHOLE_HEADS


def joined_view(tensor: Tensor, row_mode: int, head_mode: int, tile: int, joined: int, order: str) -> Tensor:
    """A view [tiles of joined heads in their order, within a tile, ...], the batch left out; the order is in the layout alone."""
    shape, stride = joined_layout(tuple(tensor.shape), tensor.stride(), row_mode, head_mode, tile, joined, order)
    others = [mode for mode in range(1, tensor.dim()) if mode != row_mode]
    sizes, steps = ((*reversed(layout[row_mode]), *(layout[mode] for mode in others)) for layout in (shape, stride))
    return tensor.as_strided(sizes, steps)


def place_of(tile: int, head: int, order: str) -> tuple[int, int]:
    """Where tile `tile` of joined head `head` lies in the first two modes of such a view, the slower one first."""
    return (tile, head) if order == TILES else (head, tile)


@pytest.mark.parametrize("order", ORDERS)
def test_rows_of_joined_heads_are_their_tiles_in_turn(order: str) -> None:
    tokens, heads, size, tile, joined = 6, 8, 3, 2, 4
    q = torch.arange(tokens * heads * size).reshape(1, tokens, heads, size)
    view = joined_view(q, 1, 2, tile, joined, order)
    assert view.shape == ((3, 4) if order == TILES else (4, 3)) + (2, 2, 3), (
        "tiles and joined heads, rows of a tile, other heads, head size"
    )
    for row in range(tokens):
        for head in range(heads):
            slow, fast = place_of(row // tile, head % joined, order)
            assert torch.equal(view[slow, fast, row % tile, head // joined], q[0, row, head])


@pytest.mark.parametrize("order", ORDERS)
def test_sums_of_joined_heads_stay_where_they_are(order: str) -> None:
    sums = torch.arange(8 * 12).reshape(1, 8, 12)  # [batch, heads, values of all tiles]
    view = joined_view(sums, 2, 1, 4, 2, order)
    assert view.shape == ((3, 2) if order == TILES else (2, 3)) + (4, 4)
    for tile in range(3):
        for head in range(8):
            assert torch.equal(view[(*place_of(tile, head % 2, order), slice(None), head // 2)], sums[0, head, 4 * tile : 4 * tile + 4])


@pytest.mark.parametrize("order", [TILES, HEADS])
def test_lists_of_joined_heads(order: str) -> None:
    mask = masks.build("share_question", 640, seed=5)
    dense = lower.dense(mask, "cpu").numpy().reshape(10, 64, 640)
    tiles = np.repeat(dense, 2, axis=0) if order == TILES else np.tile(dense, (2, 1, 1))  # tile 0 of two heads first, or all tiles of one
    rows = tiles.reshape(20 * 64, 640)
    lists = with_joined_heads(mask.tiles(64, 128).by_col(), 2, 10 if order == HEADS else 0)
    for key in range(5):
        full, partial = (index[ptr[key] : ptr[key + 1]] for ptr, index in (lists[:2], lists[2:]))
        assert all((np.diff(index) > 0).all() for index in (full, partial))
        for tile in range(20):
            shown = rows[64 * tile : 64 * tile + 64, 128 * key : 128 * key + 128]
            assert (tile in full, tile in partial) == (shown.all(), shown.any() and not shown.all())


def tiles_and_heads(blocks: np.ndarray) -> list[tuple[int, int]]:
    return [(int(block) % 2**16, int(block) // 2**16) for block in blocks]


def test_heavy_tiles_come_first_and_equal_ones_stay_in_order() -> None:
    work = np.array([1, 64, 3, 64, 70, 0, 200])
    order = tiles_and_heads(heavy_first(work, 3))
    assert order == [(tile, head) for tile in (6, 1, 3, 4, 2, 0, 5) for head in range(3)]


def test_documents_are_found_where_they_begin() -> None:
    ends = [1000, 1050, 3000, 3072, 4096]  # the first within a tile
    mask = Mask.of(4096, 4096, [(a, b, a, 0, b, 0) for a, b in zip([0, *ends[:-1]], ends, strict=True)])
    number = documents(mask.tiles(64, 128).by_col())
    for key in range(1, 32):
        dense = lower.dense(mask, "cpu").numpy().reshape(64, 64, 32, 128).any((1, 3))
        one, other = dense[:, key - 1], dense[:, key]
        assert (number[key] == number[key - 1]) == ((one & other).sum() > max(one.sum(), other.sum()) / 2)
    assert number[9:23].tolist() == [number[9]] * 14, "tiles of the same document"
    assert len(set(number[[0, 15, 31]])) == 3


def test_windows_are_one_document() -> None:
    assert set(documents(masks.build("sliding_window", 4096, w=512).tiles(64, 128).by_col())) == {0}


def test_long_documents_come_first_and_their_heads_in_turn() -> None:
    order = tiles_and_heads(documents_first(np.array([2, 2, 9, 7, 5, 3]), np.array([0, 0, 1, 1, 1, 2]), 2))
    long, middle, short = [[(tile, head) for head in range(2) for tile in tiles] for tiles in ([2, 3, 4], [5], [0, 1])]
    assert order == long + middle + short


@pytest.mark.parametrize(("tiles", "heads"), [([18] * 256, 8), ([300, *[2] * 255], 1), ([20, *[10] * 255], 4), ([60, *[10] * 255], 2)])
def test_heads_are_joined_while_the_longest_block_stays_short(tiles: list[int], heads: int) -> None:
    assert heads_to_join(np.array(tiles), heads_q=64, group=8) == heads


class Lists(NamedTuple):
    mask_block_cnt: Tensor
    mask_block_idx: Tensor
    full_block_cnt: Tensor
    full_block_idx: Tensor
    block_size: tuple[int, int]


def config(rows: int = 64, keys: int = 128, **options: Any) -> SimpleNamespace:
    """A row of the library's table of tiles."""
    swaps = dict(SdP_swapAB=True, dKV_swapAB=False, dQ_swapAB=False)
    stages = dict(num_stages_Q=2, num_stages_dO=2, num_stages_PdS=2)
    atoms = dict(AtomLayoutMSdP=1, AtomLayoutNdKV=2, AtomLayoutMdQ=1)
    return SimpleNamespace(**swaps | stages | atoms | options, m_block_size=rows, n_block_size=keys, num_wg=2)


class Intervals:
    def __init__(self, count: int, anchors_are_keys: bool, per_fragment: bool, last_tile_first: bool = False) -> None:
        self.count, self.anchors_are_keys = count, anchors_are_keys


class JoinedIntervals(Intervals):
    def __init__(self, intervals: Intervals, joined: int, order: str) -> None:
        super().__init__(intervals.count, intervals.anchors_are_keys, per_fragment=True)

    def visible(self, bounds: Tensor, m_block: int, n_block: int, tile: tuple[int, int]) -> Tensor:
        """Of the pairs of a tile of one head, queries x keys."""
        queries, keys = (torch.arange(size) + number * size for number, size in zip((m_block, n_block), tile, strict=True))
        anchors, others = (keys, queries) if self.anchors_are_keys else (queries, keys)
        inside = [(others >= bounds[2 * k, anchors, None]) & (others < bounds[2 * k + 1, anchors, None]) for k in range(self.count)]
        shown = torch.stack(inside).any(0)
        return shown.T if self.anchors_are_keys else shown


class JoinedBackward:
    """The main kernel in plain torch: rows in joined order, a loop over heads, key tiles and their listed query tiles. Sums of a tile are
    the rows of a tile, one after the other; with one query head for each KV head, dk and dv are written, scaled, and else added up."""

    joined, order = 1, TILES

    def __init__(self, dtype: Any, size: int, size_v: int, group: int, **options: Any) -> None:
        self.size, self.group, self.tile = size, group, (options["tile_m"], options["tile_n"])
        self.mask_mod = options["mask_mod"]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, dout: Tensor, lse2: Tensor, delta: Tensor, sums: Tensor, *rest: Any) -> None:
        dk, dv, scale, aux, lists, order = rest
        tile_m, tile_n = self.tile
        kind = self.joined, self.order
        rows_q, rows_dout = (joined_view(t, 1, 2, tile_m, *kind).flatten(0, 1) for t in (q, dout))  # [tiles, rows, heads, size]
        statistics = [joined_view(t, 2, 1, tile_m, *kind).flatten(0, 1) for t in (lse2, delta)]
        sums_of = joined_view(sums, 2, 1, tile_m * self.size, *kind)  # [tiles and joined heads, values, heads]
        tiles, heads, key_tiles = len(rows_q) // self.joined, q.shape[2] // self.joined, -(-k.shape[1] // tile_n)
        blocks = [(n, head) for head in range(heads) for n in range(key_tiles)] if order is None else tiles_and_heads(order.numpy())
        for n, head in blocks:
            keys = slice(n * tile_n, (n + 1) * tile_n)
            key, value = k[0, keys, head // self.group], v[0, keys, head // self.group]
            dkey, dvalue = torch.zeros_like(key), torch.zeros_like(value)
            partial = [(int(m), True) for m in lists[1][0, 0, n, : lists[0][0, 0, n]]]
            listed = partial + [(int(m), False) for m in lists[3][0, 0, n, : lists[2][0, 0, n]]]
            if self.order == WHOLE_HEADS:
                listed = [(m + joined * tiles, masked) for joined in range(self.joined) for m, masked in listed]
            for m, masked in listed:
                query, grad = rows_q[m, :, head], rows_dout[m, :, head]
                p = torch.exp2(query @ key.T * scale * LOG2_E - statistics[0][m, :, head, None])
                if masked:
                    tile = m // self.joined if self.order == TILES else m % tiles
                    p = p * self.mask_mod.visible(aux[0], tile, n, self.tile)[:, : len(key)]
                ds = p * (grad @ value.T - statistics[1][m, :, head, None])
                dvalue += p.T @ grad
                dkey += ds.T @ query
                sums_of[(*divmod(m, sums_of.shape[1]), slice(None), head)] += (ds @ key).flatten()
            if self.group == 1:
                dk[0, keys, head], dv[0, keys, head] = dkey * scale, dvalue
            else:
                place = slice(n * tile_n * self.size, n * tile_n * self.size + dkey.numel())
                dk[0, head // self.group, place] += dkey.flatten()
                dv[0, head // self.group, place] += dvalue.flatten()


def preprocess(out: Tensor, dout: Tensor, delta: Tensor, lse: Tensor, lse2: Tensor, sums: Tensor, *_: Any, fake_mode: bool) -> None:
    length = out.shape[1]
    delta[..., :length], lse2[..., :length] = (out * dout).sum(-1).transpose(1, 2), lse * LOG2_E
    sums.zero_()


def convert(sums: Tensor, result: Tensor, scale: float, *_: Any, fake_mode: bool) -> None:
    _, length, heads, size = result.shape
    result.copy_(sums.reshape(1, heads, -1, size)[:, :, :length].transpose(1, 2) * scale)


def library() -> SimpleNamespace:
    return SimpleNamespace(
        BwdConfig=config,
        _tile_size_bwd_sm90=lambda *_, sparse_block_size_q: config(sparse_block_size_q),
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


def prepared(monkeypatch: pytest.MonkeyPatch, mask: Mask, case: Case, joining: Joining) -> JoinedAttention:
    """The attention on a stand-in of the library, with the forward left out."""

    def compiled(main: JoinedBackward, *_: Any) -> JoinedBackward:
        return main

    main = ModuleType("longca.kernels.backends.fa4._joined_main")
    vars(main).update(JoinedIntervals=JoinedIntervals, JoinedBackward=JoinedBackward, SOURCE="", compiled=compiled)
    monkeypatch.setitem(sys.modules, main.__name__, main)
    monkeypatch.setattr(sys.modules[f"{backends.__name__}.fa4"], "_joined_main", main, raising=False)
    monkeypatch.setattr(COMPILED, "_kept", None)
    attention = JoinedAttention.__new__(JoinedAttention)
    attention.library, attention.case, attention.tuning, attention.joining = library(), case, Tuning(), joining
    attention.cute = SimpleNamespace(Intervals=Intervals, bounds_tensors=bounds_tensors, TileListTensors=Lists)
    attention.backward_options = attention._lower_backward(mask)
    return attention


def bounds_tensors(starts: Tensor, ends: Tensor, multiple: int, ends_with_a_tile: bool) -> list[Tensor]:
    bounds = torch.zeros(2 * len(starts), -(-starts.shape[1] // multiple) * multiple, dtype=torch.int32)
    bounds[0::2, : starts.shape[1]], bounds[1::2, : starts.shape[1]] = starts, ends
    return [bounds]


@pytest.mark.parametrize(
    "joining",
    [
        Joining(joined=2),
        Joining(joined=4, heavy_first=True),
        Joining(joined=1),
        Joining(joined=1, order=HEADS),
        Joining(joined=2, keys=64),
        Joining(joined=2, order=HEADS),
        Joining(joined=4, order=HEADS),
        Joining(joined=2, order=WHOLE_HEADS, documents_first=True),
        Joining(joined=4, order=WHOLE_HEADS),
        Joining(joined=1, documents_first=True),
    ],
)
@pytest.mark.parametrize("name", ["share_question", "causal_document"])
def test_gradients_of_joined_heads(monkeypatch: pytest.MonkeyPatch, name: str, joining: Joining) -> None:
    mask, case = masks.build(name, 192, seed=4), Case(192, 192, 8, 2, 16, 16, "bf16", "cpu", scale=0.3)
    monkeypatch.setattr("longca.kernels.backends.fa4._joined.backward_rows", lambda case: 64)
    attention = prepared(monkeypatch, mask, case, joining)
    generator = torch.Generator().manual_seed(1)
    q, k, v, dout = (torch.randn(192, heads, 16, generator=generator, dtype=torch.float64) for heads in (8, 2, 2, 8))
    inputs = [tensor.requires_grad_() for tensor in (q, k, v)]
    repeated = [tensor.repeat_interleave(4, 1) for tensor in (k, v)]
    scores = torch.einsum("qhd,khd->hqk", q, repeated[0]) * 0.3
    scores = scores.masked_fill(~lower.dense(mask, "cpu"), -torch.inf)
    out = torch.einsum("hqk,khd->qhd", scores.softmax(-1), repeated[1])
    right = torch.autograd.grad(out, inputs, dout)
    gradients = attention.backward(dout, *(tensor.detach() for tensor in (q, k, v, out)), scores.logsumexp(-1).detach())
    assert attention.heads == joining.joined
    for gradient, expected in zip(gradients, right, strict=True):
        assert torch.allclose(gradient, expected, atol=1e-5), "sums are fp32"


def joined(monkeypatch: pytest.MonkeyPatch, version: str = "4.0.0b36") -> kernel.Fa4:
    monkeypatch.setattr(kernel, "installed_version", lambda package: version)
    return kernel.Fa4("joined")


@pytest.mark.parametrize("name", masks.names())
def test_takes_every_mask_but_is_never_chosen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mask = masks.build(name, 512, seed=2)
    assert isinstance(joined(monkeypatch).supports(mask, CASE), Yes)
    assert "fa4:joined" not in {each.label for each in registry.preferred("cuda")}
    assert registry.default_for_methods("cuda") != "fa4:joined"
    first = next(each for each in registry.choices("fa4") if each.supports(mask, CASE))
    assert first.variant != "joined"


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (replace(CASE, head_dim=96, head_dim_v=96), "takes head sizes 64 and 128"),
        (replace(CASE, deterministic=True), "no deterministic backward"),
        (replace(CASE, dtype="fp32"), "not fp32"),
        (replace(CASE, heads_kv=8), "fa4:bands takes equal heads"),
        (replace(CASE, seqlen_q=500), "takes multiples of 64 queries at head size 128, not 500"),
        (replace(CASE, seqlen_q=192, head_dim=64, head_dim_v=64), "takes multiples of 128 queries at head size 64, not 192"),
    ],
)
def test_refused_cases(monkeypatch: pytest.MonkeyPatch, case: Case, words: str) -> None:
    answer = joined(monkeypatch).supports(masks.causal(512), case)
    assert isinstance(answer, No)
    assert words in answer.reason


def test_whole_tiles_are_those_of_the_backward() -> None:
    assert {size: backward_rows(replace(CASE, head_dim=size)) for size in kernel.JOINED_ROWS} == kernel.JOINED_ROWS


@pytest.mark.parametrize("version", ["4.0.0b37", ""])
def test_refuses_other_versions(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    answer = joined(monkeypatch, version).supports(masks.causal(512), CASE)
    assert isinstance(answer, No)
    assert "4.0.0b36" in answer.reason


def test_refuses_block_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = joined(monkeypatch).supports(masks.uniform_block(512, b=128, ratio=0.5, heads=1, seed=1), CASE)
    assert isinstance(answer, No)
    assert "fa4:blocks" in answer.reason


def test_many_intervals_are_refused_like_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    stripes = Mask.of(64, 1024, [(0, 64, key, 0, key + 1, 0) for key in range(0, 1024, 4)])
    case = replace(CASE, seqlen_q=64, seqlen_k=1024)
    assert joined(monkeypatch).supports(stripes, case) == kernel.supports_bands(stripes)


def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("backward_ideas", Path(__file__).parents[2] / "benchmarks" / "backward_ideas.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "backward_ideas", script)
    spec.loader.exec_module(script)
    return script


def test_ideas_are_kernels_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    script = benchmark(monkeypatch)
    joinings = [script.kernel_of(idea).joining for idea in script.IDEAS]
    assert len(set(joinings)) == len(joinings)
    assert all(script.kernel_of(idea, small=True).joining.joined for idea in script.IDEAS), "the choice on a small mask would be one head"


def test_bytes_of_delta_inside_the_main_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = masks.build("share_question", 640, seed=5)
    tiles = lower.dense(mask, "cpu").reshape(10, 64, 5, 128).any(3).any(1)
    before, inside = benchmark(monkeypatch).delta_bytes(mask, replace(CASE, seqlen_q=640, seqlen_k=640))
    assert before == pytest.approx(2 * 640 * 8 * 128 * 2 / 1e9), "out and dout once"
    assert inside == pytest.approx(int(tiles.sum()) * 64 * 8 * 128 * 2 / 1e9), "out once for every touched tile"
