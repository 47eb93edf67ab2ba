"""`&`, `|`, `-` and `~` of random masks against the same operations on every pair."""

import operator
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca import masks
from longca.errors import BadInput, Refused
from longca.masks import Mask
from strategies import Dense, assert_is, band_pairs, cut_patterns, disjoint_bands, patterns

Drawn = tuple[Mask, Dense]
OPERATIONS: dict[str, tuple[Callable[[Mask, Mask], Mask], Callable[[Dense, Dense], Dense]]] = {
    "&": (operator.and_, lambda x, y: x & y),
    "|": (operator.or_, lambda x, y: x | y),
    "-": (operator.sub, lambda x, y: x & ~y),
}


@st.composite
def pairs_of_masks(draw: st.DrawFn) -> tuple[Drawn, Drawn]:
    """Two masks of the same shape: bands are cut to the shape that both have."""
    one, other = (draw(st.one_of(patterns(), cut_patterns(), disjoint_bands())) for _ in range(2))
    rows, keys = (min(x, y) for x, y in zip(one[1].shape, other[1].shape, strict=True))
    first, second = ((mask.rows([(0, rows)]).cols([(0, keys)]), dense[:rows, :keys]) for mask, dense in (one, other))
    return first, second


@given(pairs_of_masks(), st.sampled_from(sorted(OPERATIONS)))
def test_operations_act_pair_by_pair(drawn: tuple[Drawn, Drawn], sign: str) -> None:
    (one, dense_one), (other, dense_other) = drawn
    on_masks, on_pairs = OPERATIONS[sign]
    result, dense = on_masks(one, other), on_pairs(dense_one, dense_other)
    assert_is(result, dense)
    assert result.area == dense.sum()
    assert (one & other).table == (~(~one | ~other)).table
    assert (one | other).digest == (other | one).digest


@given(st.one_of(patterns(), cut_patterns(), disjoint_bands()))
def test_the_complement_shows_the_other_pairs(drawn: Drawn) -> None:
    mask, dense = drawn
    assert_is(~mask, ~dense)
    assert ~~mask == mask
    assert (mask & ~mask).area == 0
    assert (mask | ~mask).area == mask.seqlen_q * mask.seqlen_k


@st.composite
def overlapping_bands(draw: st.DrawFn) -> tuple[int, int, list[tuple[int, ...]], Dense]:
    rows, keys = draw(st.integers(0, 12)), draw(st.integers(0, 12))
    dense, kept = np.zeros((rows, keys), bool), []
    for _ in range(draw(st.integers(0, 9))):
        q0, q1 = sorted((draw(st.integers(0, rows)), draw(st.integers(0, rows))))
        slope = st.integers(0, 1)
        band = (q0, q1, draw(st.integers(0, keys)), draw(slope), draw(st.integers(0, keys)), draw(slope))
        if (pairs := band_pairs(band, rows, keys)) is not None:
            dense |= pairs
            kept.append(band)
    return rows, keys, kept, dense


@given(overlapping_bands())
def test_overlapping_bands_are_united_on_request(drawn: tuple[int, int, list[tuple[int, ...]], Dense]) -> None:
    rows, keys, bands, dense = drawn
    assert_is(Mask.of(rows, keys, bands, overlapping="unite"), dense)


def test_overlapping_bands_are_refused_unless_they_are_to_be_united() -> None:
    bands = [(0, 4, 0, 0, 2, 0), (0, 4, 1, 0, 3, 0)]
    with pytest.raises(BadInput, match="bands overlap"):
        Mask.of(4, 4, bands)
    assert Mask.of(4, 4, bands, overlapping="unite").table == [[0, 4, 0, 0, 3, 0]]
    with pytest.raises(BadInput, match="overlapping must be 'refuse' or 'unite', not 'join'"):
        Mask.of(4, 4, bands, overlapping="join")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="a band leaves the 4 keys"):
        Mask.of(4, 4, [(0, 4, 0, 0, 5, 0)], overlapping="unite")


@pytest.mark.parametrize("band", [(5, 2, 0, 0, 8, 0), (0, 8, 5, 0, 2, 0)])
def test_a_range_that_ends_before_it_starts_is_refused(band: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match=r"the band range \[5, 2\) ends before it starts; give the smaller number first"):
        Mask.of(8, 8, [band])


def test_familiar_masks_are_made_of_others() -> None:
    documents = [5, 9, 3]
    inside = masks.full_document(17, documents=documents)
    assert inside & masks.causal(17) == masks.causal_document(17, documents=documents)
    assert masks.causal(17) - masks.sliding_window_causal(17, w=4) == masks.causal(17) & ~masks.sliding_window(17, w=4)
    assert (inside & masks.sliding_window(17, w=4)).documents == tuple(documents)
    assert (inside & masks.full_document(17, documents=[17])).documents is None
    assert (inside & masks.causal(17)).name == ""


@given(patterns(), st.integers(0, 3))
def test_a_band_mask_lies_on_top_of_blocks(drawn: Drawn, seed: int) -> None:
    mask, dense = drawn
    blocks = masks.uniform_block(mask.seqlen_q, b=4, ratio=0.5, heads=2, seed=seed)
    np.testing.assert_array_equal((blocks & mask).dense(), blocks.dense() & dense)
    np.testing.assert_array_equal(
        (mask & blocks & masks.causal(mask.seqlen_q)).dense(), blocks.dense() & dense & np.tri(len(dense), dtype=bool)
    )
    assert mask & blocks == blocks & mask


def test_what_cannot_be_combined_is_refused() -> None:
    mask, blocks = masks.causal(8), masks.uniform_block(8, b=4)
    with pytest.raises(BadInput, match="& needs two masks of the same number of queries and keys, not 8x8 and 9x9"):
        mask & masks.causal(9)
    for refused in (lambda: blocks | mask, lambda: mask | blocks, lambda: blocks - mask, lambda: mask - blocks, lambda: ~blocks):
        with pytest.raises(Refused, match=r"a block pattern takes & with a mask of bands, not \|, - or ~\."):
            refused()
    with pytest.raises(Refused, match="two block patterns"):
        blocks & blocks
    for other in (3, np.ones((8, 8), bool)):
        with pytest.raises(BadInput, match=f"& takes another mask, not {type(other).__name__}; masks.from_dense makes"):
            mask & other
        with pytest.raises(BadInput, match=f"takes & with a mask of bands, not with {type(other).__name__}"):
            blocks & other


def test_a_million_tokens_in_ten_thousand_documents() -> None:
    """Operations on large masks end, and agree with closed forms."""
    length, documents = 1_000_000, [100] * 10_000
    inside, window = masks.full_document(length, documents=documents), masks.sliding_window_causal(length, w=10)
    narrow = inside & window
    assert narrow.area == 10_000 * (100 * 11 - 55)
    assert (inside | window).area == inside.area + window.area - narrow.area
    assert (inside - window).area == inside.area - narrow.area
    assert (~inside).area == length**2 - inside.area
    shifted = [(100 * n, 100 * n + 150, 100 * n, 0, 100 * n + 100, 0) for n in range(9_999)]
    assert Mask.of(length, length, shifted, overlapping="unite").area == 9_999 * 150 * 100
