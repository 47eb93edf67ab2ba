"""Masks without queries, without keys, without heads or with nothing visible: every operation answers, none crashes."""

import numpy as np
import pytest

from longca.errors import Refused
from longca.masks import BlockMask, Mask

SHAPES = [(0, 0), (0, 3), (3, 0), (3, 3)]


def nothing_of(shape: tuple[int, int]) -> list[Mask | BlockMask]:
    rows, keys = ([0, length] if length else [0] for length in shape)
    blocks = BlockMask(rows, keys, np.zeros((2, len(rows) - 1, len(keys) - 1), bool))
    return [Mask(*shape, []), Mask.of(*shape, [(0, 0, 0, 0, 1, 1)]), blocks, blocks.take_heads([])]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mask_that_shows_nothing(shape: tuple[int, int]) -> None:
    rows, keys = shape
    whole = [[(0, rows)]], [[(0, keys)]]
    for mask in nothing_of(shape):
        assert (mask.seqlen_q, mask.seqlen_k, mask.area, mask.density) == (rows, keys, 0, 0)
        assert mask.dense().shape[-2:] == shape
        assert not mask.dense().any()
        assert mask.transpose().transpose() == mask
        assert mask.rows([(0, rows)]).cols([(0, keys)]) == mask
        assert mask.rows([]).cols([]).area == 0
        assert mask.pair_areas(*whole).tolist() == [[0]]
        assert mask.pair_areas([], []).shape == (0, 0)
        tiles = mask.tiles(2, 2)
        assert (tiles.full, tiles.partial) == (0, 0)
        assert len(tiles.by_row().full_idx) == len(tiles.by_col().partial_idx) == 0
        assert repr(mask)


@pytest.mark.parametrize("shape", SHAPES)
def test_encodings_of_nothing(shape: tuple[int, int]) -> None:
    mask = Mask(*shape, [])
    starts, ends = mask.row_intervals()
    assert starts.tolist() == ends.tolist() == [[0] * shape[0]]
    assert len(mask.slices().types) == 0
    with pytest.raises(Refused, match=r"^no query sees any key\.$"):
        mask.varlen()
    if shape[0] == shape[1]:
        assert mask.column_intervals().rows.shape[0] == shape[1]
    else:
        with pytest.raises(Refused, match="as many queries as keys"):
            mask.column_intervals()
