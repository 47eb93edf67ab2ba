"""The two dynamic masks: their own type under the same protocol, the same numbers everywhere."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from longca import masks
from longca.errors import BadInput
from longca.masks import BlockMask, Mask, random_blocks
from longca.masks.random_blocks import block_scores
from strategies import indices, ranges_in

Dense = NDArray[np.bool_]


@st.composite
def block_masks(draw: st.DrawFn) -> tuple[BlockMask, Dense]:
    """Any blocks with any pattern per head, and on top nothing or a band mask."""
    heads = draw(st.integers(1, 3))
    sizes = [draw(st.lists(st.integers(1, 6), min_size=1, max_size=5)) for _ in range(2)]
    shape = (heads, len(sizes[0]), len(sizes[1]))
    kept = np.array(draw(st.lists(st.booleans(), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))).reshape(shape)
    edges = [np.cumsum([0, *side]) for side in sizes]
    dense = np.zeros((heads, edges[0][-1], edges[1][-1]), bool)
    for head, row, key in np.argwhere(kept):
        dense[head, edges[0][row] : edges[0][row + 1], edges[1][key] : edges[1][key + 1]] = True
    band = draw(st.none() | bands_on_top(*dense.shape[1:]))
    return BlockMask(edges[0], edges[1], kept, band=band), dense if band is None else dense & band.dense()


@st.composite
def bands_on_top(draw: st.DrawFn, seqlen_q: int, seqlen_k: int) -> Mask:
    """A part of a larger mask, so that diagonals lie anywhere."""
    name, params = draw(st.sampled_from([("causal", {}), ("full", {}), ("sliding_window", {"w": 2}), ("prefix_lm_causal", {"p": 3})]))
    row, key = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    whole = masks.build(name, max(seqlen_q + row, seqlen_k + key), **params)
    assert isinstance(whole, Mask)
    return whole.rows([(row, row + seqlen_q)]).cols([(key, key + seqlen_k)])


def assert_is(mask: BlockMask, dense: Dense) -> None:
    assert (mask.heads, mask.seqlen_q, mask.seqlen_k) == dense.shape
    np.testing.assert_array_equal(mask.dense(), dense)
    assert mask.head_areas == dense.sum((1, 2)).tolist()
    assert mask.area == dense.sum()
    assert mask.density == (dense.mean() if dense.size else 0)
    assert mask.documents is None
    assert hash(mask) == hash(mask.rows([(0, mask.seqlen_q)]))


@given(block_masks(), st.data())
def test_cuts_heads_and_transposition(drawn: tuple[BlockMask, Dense], data: st.DataObject) -> None:
    mask, dense = drawn
    rows, keys = data.draw(ranges_in(mask.seqlen_q)), data.draw(ranges_in(mask.seqlen_k))
    assert_is(mask, dense)
    assert_is(mask.rows(rows), dense[:, indices(rows)])
    assert_is(mask.cols(keys), dense[:, :, indices(keys)])
    assert_is(mask.rows(rows).cols(keys), dense[:, indices(rows)][:, :, indices(keys)])
    assert_is(mask.transpose(), dense.transpose(0, 2, 1))
    assert mask.transpose().transpose() == mask
    heads = data.draw(st.lists(st.integers(0, mask.heads - 1), min_size=1, max_size=4))
    assert_is(mask.take_heads(heads), dense[heads])


@given(block_masks(), st.data())
def test_pair_areas(drawn: tuple[BlockMask, Dense], data: st.DataObject) -> None:
    mask, dense = drawn
    row_shards = data.draw(st.lists(ranges_in(mask.seqlen_q), max_size=3))
    key_shards = data.draw(st.lists(ranges_in(mask.seqlen_k), max_size=3))
    areas = mask.pair_areas(row_shards, key_shards)
    assert areas.shape == (len(row_shards), len(key_shards))
    for (row, rows), (key, keys) in product(enumerate(row_shards), enumerate(key_shards)):
        assert areas[row, key] == dense[:, indices(rows)][:, :, indices(keys)].sum()


@given(block_masks(), st.integers(1, 8), st.integers(1, 8))
def test_each_head_is_a_mask_and_tiles_follow_one_another(drawn: tuple[BlockMask, Dense], rows_per_tile: int, keys_per_tile: int) -> None:
    mask, dense = drawn
    tiles = mask.tiles(rows_per_tile, keys_per_tile)
    by_row, by_col = tiles.by_row(), tiles.by_col()
    row_tiles, key_tiles = -(-mask.seqlen_q // rows_per_tile), -(-mask.seqlen_k // keys_per_tile)
    assert len(by_row.full_ptr) == len(by_row.partial_ptr) == mask.heads * row_tiles + 1
    assert len(by_col.full_ptr) == len(by_col.partial_ptr) == mask.heads * key_tiles + 1
    assert (tiles.full, tiles.partial) == (len(by_row.full_idx), len(by_row.partial_idx))
    for head in range(mask.heads):
        single = mask.head(head)
        assert isinstance(single, Mask)
        np.testing.assert_array_equal(single.dense(), dense[head])
        own_tiles = single.tiles(rows_per_tile, keys_per_tile)
        for lists, own, count in ((by_row, own_tiles.by_row(), row_tiles), (by_col, own_tiles.by_col(), key_tiles)):
            for ptr, index, own_ptr, own_index in ((*lists[:2], *own[:2]), (*lists[2:], *own[2:])):
                of_head = ptr[head * count : (head + 1) * count + 1]
                assert (of_head - of_head[0]).tolist() == own_ptr.tolist()
                assert index[of_head[0] : of_head[-1]].tolist() == own_index.tolist()


@given(st.integers(1, 500), st.integers(1, 64), st.floats(0.01, 1), st.integers(1, 3), st.integers(0, 99))
def test_uniform_blocks_keep_the_best_of_every_row(seqlen: int, b: int, ratio: float, heads: int, seed: int) -> None:
    mask = masks.uniform_block(seqlen, b=b, ratio=ratio, heads=heads, seed=seed)
    edges = [*range(0, seqlen, b), seqlen]
    assert mask.row_edges.tolist() == mask.col_edges.tolist() == edges
    columns = len(edges) - 1
    count = columns if ratio == 1 else max(1, int(Fraction(repr(ratio)) * seqlen / b))
    assert (mask.kept.sum(2) == count).all()
    for head, row in product(range(heads), range(columns)):
        scores = [int(block_scores(seed, head, row, column)) for column in range(columns)]
        best = sorted(range(columns), key=lambda column: -scores[column])[:count]
        assert sorted(best) == np.flatnonzero(mask.kept[head, row]).tolist()
    assert (mask.name, mask.seed, mask.params) == ("uniform_block", seed, {"b": b, "ratio": ratio, "heads": heads})


@given(st.integers(1, 5000), st.integers(1, 300), st.integers(1, 100))
def test_no_block_is_lost_to_rounding(seqlen: int, size: int, percent: int) -> None:
    """29 % of 100 blocks are 29, though 0.29 * 100 is less; and 100 % are all, also where the last block is a part of one."""
    mask = masks.variable_block(seqlen, avg=size, ratio=percent / 100)
    blocks = max(1, seqlen // size)
    assert (mask.kept.sum(2) == max(1, percent * blocks // 100)).all()
    kept = blocks if percent == 100 else max(1, percent * seqlen // (100 * size))
    assert (masks.uniform_block(seqlen, b=size, ratio=percent / 100).kept.sum(2) == (-(-seqlen // size) if percent == 100 else kept)).all()


@given(st.integers(1, 5000), st.integers(1, 300), st.integers(1, 300), st.integers(0, 9))
def test_the_least_size_holds_or_is_refused(seqlen: int, avg: int, least: int, seed: int) -> None:
    if least > avg:
        with pytest.raises(BadInput, match=f"blocks of at least {least} are never {avg} on average; lower least or raise avg"):
            masks.variable_block(seqlen, avg=avg, least=least, seed=seed)
        return
    mask = masks.variable_block(seqlen, avg=avg, least=least, seed=seed)
    for edges in (mask.row_edges, mask.col_edges):
        assert (edges[0], edges[-1], len(edges) - 1) == (0, seqlen, max(1, seqlen // avg))
        assert np.diff(edges).min() >= min(least, seqlen)
    assert mask.params["least"] == least


def test_large_patterns_are_made_by_many_threads_and_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = masks.uniform_block(8192, b=64, ratio=0.3, heads=5, seed=2)
    monkeypatch.setattr(random_blocks, "MANY_BLOCKS", 1)
    assert masks.uniform_block(8192, b=64, ratio=0.3, heads=5, seed=2) == alone


def test_scores_spread_evenly() -> None:
    kept = masks.uniform_block(16384, b=64, ratio=0.25, heads=8).kept
    per_column = kept.mean((0, 1))
    assert per_column.min() > 0.18
    assert per_column.max() < 0.32


def score_grid(seed: int, index: object) -> object:
    return block_scores(seed, 3, index.reshape(-1, 1), index.reshape(1, -1))  # type: ignore[attr-defined]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("seed", [0, 42, 2**31, 2**40 + 5, -1])
def test_torch_makes_the_same_scores(seed: int, device: str) -> None:
    import torch

    made = score_grid(seed, torch.arange(2048, device=device))
    assert np.array_equal(score_grid(seed, np.arange(2048)), made.cpu().numpy())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("rows", "columns", "shape", "problem"),
    [
        ([1, 4], [0, 4], (1, 1, 1), "block edges must start with 0 and rise"),
        ([0, 4, 4], [0, 4], (1, 2, 1), "block edges must start with 0 and rise"),
        ([0, 4], [], (1, 1, 1), "block edges must start with 0 and rise"),
        ([0, 4], [0, 4], (1, 2, 1), "does not fit its edges"),
        ([0, 4], [0, 4], (1, 1), "does not fit its edges"),
    ],
)
def test_the_constructor_checks(rows: list[int], columns: list[int], shape: tuple[int, ...], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        BlockMask(rows, columns, np.ones(shape, bool))


def test_digests_of_patterns_without_a_band_stay_what_they_were() -> None:
    assert masks.uniform_block(1024, heads=2, seed=3).digest == "2e6a25b3b74693bc81ea0627bede9728"
    assert masks.variable_block(2048, heads=2, seed=3).digest == "ad726d21ec88429799286ee15a88e00e"


def test_a_band_on_top_counts_only_where_it_hides_something() -> None:
    edges, kept = [0, 4, 8], np.array([[[1, 0], [1, 0]]], bool)
    plain = BlockMask(edges, edges, kept)
    assert BlockMask(edges, edges, kept, band=masks.full(8)) == plain
    below = BlockMask(edges, edges, np.array([[[0, 1], [1, 0]]], bool), band=masks.causal(8))  # one block hidden, one all visible
    assert below.band is None
    assert below == BlockMask(edges, edges, np.array([[[0, 0], [1, 0]]], bool))
    cut = BlockMask(edges, edges, kept, band=masks.causal(8))
    assert cut.band == masks.causal(8)
    assert cut != plain
    assert cut.area == plain.area - 6
    with pytest.raises(BadInput, match="on top of 8x8 tokens must have as many, not 9x9"):
        BlockMask(edges, edges, kept, band=masks.causal(9))
