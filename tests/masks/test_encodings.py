"""What kernels get shows the same pairs as the mask, or is refused with the reason."""

from contextlib import suppress
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forms import pairs_of_columns, pairs_of_slices, pairs_of_varlen
from longca import masks
from longca.errors import Refused
from longca.masks import Mask, Varlen
from longca.masks.tiles import TileLists
from strategies import REGULAR, Dense, patterns, random_masks, runs_of

MASKS = random_masks()
DOCUMENTS = [5, 9, 3]
Drawn = tuple[Mask, Dense]


@given(MASKS)
def test_row_intervals(drawn: Drawn) -> None:
    mask, dense = drawn
    starts, ends = mask.row_intervals()
    assert starts.dtype == ends.dtype == np.int32
    assert starts.shape == ends.shape == (max(1, *(len(runs_of(row)) for row in dense), 1), mask.seqlen_q)
    for i, row in enumerate(dense):
        runs = runs_of(row)
        end = runs[-1][1] if runs else 0
        padding = [(end, end)] * (len(starts) - len(runs))
        assert list(zip(starts[:, i].tolist(), ends[:, i].tolist(), strict=True)) == runs + padding


@given(MASKS)
def test_slices(drawn: Drawn) -> None:
    mask, dense = drawn
    np.testing.assert_array_equal(pairs_of_slices(*mask.slices(), *dense.shape), dense)


def tile_lists(dense: Dense, rows_per_tile: int, keys_per_tile: int) -> TileLists:
    """Full and partial tiles of every row tile, by looking at every pair."""
    full: list[list[int]] = []
    partial: list[list[int]] = []
    for top in range(0, dense.shape[0], rows_per_tile):
        tiles = [dense[top : top + rows_per_tile, left : left + keys_per_tile] for left in range(0, dense.shape[1], keys_per_tile)]
        full.append([t for t, tile in enumerate(tiles) if tile.all()])
        partial.append([t for t, tile in enumerate(tiles) if tile.any() and not tile.all()])
    return TileLists(*(field for lists in (full, partial) for field in (np.cumsum([0, *map(len, lists)]), np.array(sum(lists, [])))))  # noqa: RUF017


@given(MASKS, st.integers(1, 20), st.integers(1, 20))
def test_tiles(drawn: Drawn, rows_per_tile: int, keys_per_tile: int) -> None:
    mask, dense = drawn
    tiles = mask.tiles(rows_per_tile, keys_per_tile)
    by_row, by_col = tile_lists(dense, rows_per_tile, keys_per_tile), tile_lists(dense.T, keys_per_tile, rows_per_tile)
    for found, expected in ((tiles.by_row(), by_row), (tiles.by_col(), by_col)):
        for field, wanted in zip(found, expected, strict=True):
            assert field.dtype == np.int32
            np.testing.assert_array_equal(field, wanted)
    assert (tiles.full, tiles.partial) == (len(by_row.full_idx), len(by_row.partial_idx))
    assert tiles.grid == (len(by_row.full_ptr) - 1, len(by_col.full_ptr) - 1)


@given(MASKS)
def test_column_intervals_equal_the_mask_or_have_a_reason_to_refuse(drawn: Drawn) -> None:
    mask, dense = drawn
    hidden_parts = max((len(runs_of(~column)) for column in dense.T), default=0)
    if mask.seqlen_q != mask.seqlen_k:
        with pytest.raises(Refused, match=f"as many queries as keys, not {mask.seqlen_q} and {mask.seqlen_k}"):
            mask.column_intervals()
    elif hidden_parts > 2:
        with pytest.raises(Refused, match=f"at most 2 hidden parts per key; this mask has {hidden_parts}"):
            mask.column_intervals()
    else:
        columns = mask.column_intervals()
        assert columns.rows.dtype == np.int32
        assert columns.rows.shape[0] == mask.seqlen_k
        assert columns.rows.shape[1] in ((1, 2) if columns.causal else (2, 4))
        np.testing.assert_array_equal(pairs_of_columns(columns.rows, columns.causal, mask.seqlen_q), dense)


@pytest.mark.parametrize(
    ("name", "params", "form"),
    [
        ("full", {}, (False, 2)),
        ("causal", {}, (True, 1)),
        ("sliding_window", {"w": 4}, (False, 2)),
        ("sliding_window_causal", {"w": 4}, (True, 1)),
        ("full_document", {}, (False, 2)),
        ("causal_document", {}, (True, 1)),
        ("share_question", {}, (True, 1)),
        ("causal_blockwise", {}, (True, 2)),
        ("prefix_lm_causal", {"p": 6}, (False, 2)),
        ("prefix_lm_document", {"p": 4}, (False, 2)),
        ("global_sliding_window", {"g": 3, "w": 2}, (False, 4)),
        ("block_causal_document", {"B": 2}, (False, 2)),
    ],
)
def test_masks_of_the_paper_take_flashmasks_short_forms(name: str, params: dict[str, int], form: tuple[bool, int]) -> None:
    columns = masks.PATTERNS[name](17, documents=DOCUMENTS if masks.PATTERNS[name].has_documents else None, **params).column_intervals()
    assert (columns.causal, columns.rows.shape[1]) == form


def assert_varlen(mask: Mask, dense: Dense) -> None:
    varlen = mask.varlen()
    assert varlen.cu_q.dtype == varlen.cu_k.dtype == np.int32
    assert (varlen.cu_q[0], varlen.cu_q[-1], varlen.cu_k[0], varlen.cu_k[-1]) == (0, mask.seqlen_q, 0, mask.seqlen_k)
    assert (np.diff(varlen.cu_q) >= 0).all()
    assert (np.diff(varlen.cu_k) >= 0).all()
    np.testing.assert_array_equal(pairs_of_varlen(*varlen), dense)


@given(patterns(REGULAR))
def test_the_regular_masks_are_documents_with_a_window(drawn: Drawn) -> None:
    assert_varlen(*drawn)


@pytest.mark.parametrize(
    ("mask", "cu", "left", "right"),
    [
        (masks.full(17), [0, 17], -1, -1),
        (masks.causal(17), [0, 17], -1, 0),
        (masks.sliding_window(17, w=4), [0, 17], 4, 4),
        (masks.sliding_window_causal(17, w=4), [0, 17], 4, 0),
        (masks.full_document(17, documents=DOCUMENTS), [0, 5, 14, 17], -1, -1),
        (masks.causal_document(17, documents=DOCUMENTS), [0, 5, 14, 17], -1, 0),
    ],
)
def test_regular_masks_read_as_a_user_would_write_them(mask: Mask, cu: list[int], left: int, right: int) -> None:
    varlen = mask.varlen()
    assert (varlen.cu_q.tolist(), varlen.cu_k.tolist(), varlen.left, varlen.right) == (cu, cu, left, right)
    assert varlen.causal == ("causal" in mask.name and "sliding" not in mask.name)


@given(MASKS)
def test_varlen_equals_the_mask_or_refuses(drawn: Drawn) -> None:
    mask, dense = drawn
    if not dense.any():
        with pytest.raises(Refused, match="no query sees any key"):
            mask.varlen()
        return
    with suppress(Refused):  # that it refuses too little would show here; that it refuses too much, in the test of all small ones
        assert_varlen(mask, dense)


def cuts(length: int, parts: int) -> list[tuple[int, ...]]:
    return [(0, *inner, length) for inner in combinations_with_replacement(range(length + 1), parts - 1)]


def every_varlen(rows: int, keys: int) -> dict[bytes, Varlen]:
    """Every mask that documents with a window can make: up to three documents, empty ones included."""
    found = {}
    for parts in (1, 2, 3):
        for cu_q, cu_k, left, right in product(cuts(rows, parts), cuts(keys, parts), range(-1, keys), range(-1, keys)):
            varlen = Varlen(np.array(cu_q, np.int32), np.array(cu_k, np.int32), left, right)
            found[pairs_of_varlen(*varlen).tobytes()] = varlen
    return found


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (2, 3), (3, 2), (3, 3)])
def test_varlen_refuses_nothing_that_documents_with_a_window_can_make(rows: int, keys: int) -> None:
    for pairs, varlen in every_varlen(rows, keys).items():
        dense = np.frombuffer(pairs, bool).reshape(rows, keys)
        if dense.any():
            bands = [(i, i + 1, start, 0, end, 0) for i, row in enumerate(dense) for start, end in runs_of(row)]
            mask = Mask.of(rows, keys, bands)
            try:
                assert_varlen(mask, dense)
            except Refused:
                pytest.fail(f"refused {varlen}, whose pairs are\n{dense.astype(int)}")


@pytest.mark.parametrize("encode", ["row_intervals", "column_intervals", "slices", "varlen"])
def test_lengths_beyond_32_bits_are_refused(encode: str) -> None:
    with pytest.raises(Refused, match="32-bit"):
        getattr(masks.full(2**31), encode)()
