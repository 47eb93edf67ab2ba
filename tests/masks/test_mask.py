"""Cuts, transposition, areas and digests against the visible pairs of random masks."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca import masks
from longca.errors import BadInput
from longca.masks import Mask
from strategies import Dense, assert_is, indices, random_masks, ranges_in, runs_of

MASKS = random_masks()
Drawn = tuple[Mask, Dense]


def most_intervals(dense: Dense) -> int:
    return max((len(runs_of(row)) for row in dense), default=0)


@given(MASKS)
def test_dense_area_density_and_transposition(drawn: Drawn) -> None:
    mask, dense = drawn
    for made, pairs in ((mask, dense), (mask.transpose(), dense.T)):
        assert_is(made, pairs)
        assert made.area == dense.sum()
        assert made.density == (dense.mean() if dense.size else 0)
    assert mask.transpose().transpose() == mask


@given(MASKS, st.data())
def test_cuts_keep_and_renumber(drawn: Drawn, data: st.DataObject) -> None:
    mask, dense = drawn
    rows, keys = data.draw(ranges_in(mask.seqlen_q)), data.draw(ranges_in(mask.seqlen_k))
    assert_is(mask.rows(rows), dense[indices(rows)])
    assert_is(mask.cols(keys), dense[:, indices(keys)])
    both = mask.cols(keys).rows(rows)
    assert_is(both, dense[indices(rows)][:, indices(keys)])
    assert both == mask.rows(rows).cols(keys)
    assert most_intervals(both.dense()) <= most_intervals(dense)
    assert mask.rows([(0, mask.seqlen_q)]).cols([(0, mask.seqlen_k)]) == mask.take_heads([0]) == mask


@given(MASKS, st.data())
def test_pair_areas_count_what_shards_see_of_each_other(drawn: Drawn, data: st.DataObject) -> None:
    mask, dense = drawn
    row_shards = data.draw(st.lists(ranges_in(mask.seqlen_q), max_size=4))
    key_shards = data.draw(st.lists(ranges_in(mask.seqlen_k), max_size=4))
    areas = mask.pair_areas(row_shards, key_shards)
    assert areas.shape == (len(row_shards), len(key_shards))
    expected = [[dense[indices(rows)][:, indices(keys)].sum() for keys in key_shards] for rows in row_shards]
    np.testing.assert_array_equal(areas, np.array(expected).reshape(areas.shape))


def pieces(dense: Dense, by: str) -> list[tuple[int, ...]]:
    """The same pairs as other bands: one per pair, per interval of a row, or per interval of a column."""
    if by == "pair":
        return [(i, i + 1, j, 0, j + 1, 0) for i, j in np.argwhere(dense).tolist()]
    if by == "row":
        return [(i, i + 1, start, 0, end, 0) for i, row in enumerate(dense) for start, end in runs_of(row)]
    return [(start, end, j, 0, j + 1, 0) for j, column in enumerate(dense.T) for start, end in runs_of(column)]


@given(MASKS, st.sampled_from(["pair", "row", "column"]), st.randoms(use_true_random=False))
def test_bands_and_digest_depend_on_the_pairs_alone(drawn: Drawn, by: str, rng: object) -> None:
    mask, dense = drawn
    rows = pieces(dense, by)
    rng.shuffle(rows)  # type: ignore[attr-defined]
    rebuilt = Mask.of(*dense.shape, rows)
    assert_is(rebuilt, dense)
    assert (rebuilt.table, rebuilt.digest) == (mask.table, mask.digest)


@given(MASKS, st.data())
def test_other_pairs_have_another_digest(drawn: Drawn, data: st.DataObject) -> None:
    mask, dense = drawn
    assert Mask.of(mask.seqlen_q + 1, mask.seqlen_k, mask.bands) != mask
    assert Mask.of(mask.seqlen_q, mask.seqlen_k + 1, mask.bands) != mask
    if dense.size:
        changed = dense.copy()
        changed.flat[data.draw(st.integers(0, dense.size - 1))] ^= True
        assert Mask.of(*dense.shape, pieces(changed, "row")) != mask
    assert mask != dense


def test_the_canonical_form_is_short() -> None:
    assert masks.causal(1000).table == [[0, 1000, 0, 0, 1, 1]]
    assert masks.causal(1000).transpose().table == [[0, 1000, 0, 1, 1000, 0]]
    assert masks.full(1000).table == [[0, 1000, 0, 0, 1000, 0]]
    assert masks.full(1000).rows([(0, 300), (500, 1000)]).cols([(1, 2), (7, 9)]).table == [[0, 800, 0, 0, 3, 0]]
    assert len(masks.causal_document(1000, documents=[10] * 100).table) == 100
    assert Mask.of(9, 9, [(i, i + 1, i, 0, i + 1, 0) for i in range(9)]).table == [[0, 9, 0, 1, 1, 1]]


@pytest.mark.parametrize(
    ("shape", "rows", "problem"),
    [
        ((4, 4), [(0, 4, 0, 2, 1, 1)], "slopes must be 0 or 1"),
        ((4, 4), [(2, 2, 0, 0, 1, 0)], "a band has no rows"),
        ((4, 4), [(0, 2, 1, 0, 1, 1)], "a row of a band is empty"),
        ((4, 4), [(0, 5, 0, 0, 1, 0)], "a band leaves the 4 queries"),
        ((4, 4), [(0, 4, 0, 0, 2, 1)], "a band leaves the 4 keys"),
        ((4, 4), [(2, 4, 0, 0, 1, 0), (0, 1, 0, 0, 1, 0)], "its bands are not sorted and joined"),
        ((4, 4), [(0, 2, 0, 0, 1, 0), (2, 4, 0, 0, 1, 0)], "its bands are not sorted and joined"),
        ((4, 4), [(0, 1, 0, 1, 1, 1)], "its bands are not sorted and joined"),
        ((4, 4), [(0, 2, 0, 0, 2, 0), (0, 2, 1, 0, 3, 0)], "bands overlap"),
        ((4, 4), [(0, 4, 0, 0, 1, 1), (3, 4, 3, 0, 4, 0)], "bands overlap"),
        ((-1, 4), [], "lengths of 0 and more"),
    ],
)
def test_the_constructor_checks_every_promise(shape: tuple[int, int], rows: list[tuple[int, ...]], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        Mask(*shape, rows)


@pytest.mark.parametrize("make", [Mask, Mask.of])
@pytest.mark.parametrize(
    ("shape", "rows", "problem"),
    [
        ((4, 4), [(0, 4, 0, 5, 1, 1)], "slopes must be 0 or 1"),  # of which only the first row would not be empty
        ((4, 4), [(0, 4, 0, 0, 1.5, 0)], r"a band must be six whole numbers .*, not \(0, 4, 0, 0, 1.5, 0\)"),
        ((4, 4), [(0, 4, 0, 0, 1, "x")], "a band must be six whole numbers"),
        ((4, 4), "causal", "bands must be rows of six whole numbers .*, not str"),
        (("4", 4), [], "lengths of 0 and more, not '4' queries and 4 keys"),
    ],
)
def test_bands_and_lengths_are_whole_numbers(make: Any, shape: Any, rows: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        make(*shape, rows)


def test_bands_may_be_an_array_or_arrays_over_documents() -> None:
    rows = [(0, 2, 0, 0, 1, 1), (2, 5, 2, 0, 3, 1)]
    inside = Mask.of(5, 5, rows)
    assert inside == Mask.of(5, 5, np.array(rows)) == masks.causal_document(5, documents=[2, 3])  # type: ignore[arg-type]
    assert inside == Mask.of(5, 5, [(np.array([0, 2]), np.array([2, 5]), np.array([0, 2]), 0, np.array([1, 3]), 1)])  # type: ignore[list-item]


@pytest.mark.parametrize("ranges", [[(0, 5)], [(-1, 2)], [(3, 1)], [(2, 4), (0, 1)], [(0, 3), (2, 4)], [(0.5, 2)], [(0, 1, 2)]])
def test_bad_ranges_are_refused(ranges: Any) -> None:
    mask = masks.causal(4)
    for cut in (mask.rows, mask.cols, masks.uniform_block(4, b=2).rows, masks.uniform_block(4, b=2).cols):
        with pytest.raises(BadInput, match="ranges must"):
            cut(ranges)
    with pytest.raises(BadInput, match="ranges must"):
        mask.pair_areas([ranges], [[(0, 4)]])
    with pytest.raises(BadInput, match="ranges must"):
        mask.pair_areas([[(0, 4)]], [ranges])


def test_areas_are_exact_where_64_bits_end() -> None:
    length = 2**33
    assert masks.full(length).area == length**2
    assert masks.causal(length).area == length * (length + 1) // 2
    half = length // 2
    assert masks.causal(length).rows([(half, length)]).cols([(0, half)]).area == half**2


@given(MASKS)
def test_no_mask_has_fewer_bands(drawn: Drawn) -> None:
    """Interval by interval from the top, as long as a band goes: the fewest, though not always the same ones."""
    mask, dense = drawn
    open_bands: dict[tuple[int, int], list[tuple[int, int]]] = {}
    count = 0
    for row in dense:
        still: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for lo, hi in runs_of(row):
            above = [old for old in open_bands if (lo - old[0], hi - old[1]) in open_bands[old]]
            count += not above
            still[lo, hi] = [(lo - above[0][0], hi - above[0][1])] if above else [(0, 0), (0, 1), (1, 0), (1, 1)]
        open_bands = still
    assert len(mask.table) == count
