"""At lengths where nobody can look at every pair: sums, samples, and closed forms."""

import numpy as np
import pytest

from longca import masks
from longca.masks import Mask
from strategies import FORMULAS, sees

MILLION = 1_000_003  # a prime: no tile, no block and no document divides it


def test_areas_of_shards_are_exact_far_beyond_32_bits() -> None:
    length = 1 << 30
    quarter = length // 4
    shards = [[(part * quarter, (part + 1) * quarter)] for part in range(4)]
    areas = masks.causal(length).pair_areas(shards, shards)
    triangle = quarter * (quarter + 1) // 2
    assert areas.tolist() == [[quarter**2 if j < i else triangle if j == i else 0 for j in range(4)] for i in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("name", masks.PATTERNS)
def test_a_million_tokens(name: str) -> None:
    mask = masks.build(name, MILLION, seed=5)
    assert isinstance(mask, Mask)
    starts, ends = mask.row_intervals()
    assert int((ends.astype(np.int64) - starts).sum()) == mask.area
    assert mask.transpose().area == mask.area
    assert mask.transpose().transpose() == mask
    if name in FORMULAS:
        check_rows(mask, name, starts, ends)
    check_tiles(mask)
    shards = [[(part * MILLION // 64, (part + 1) * MILLION // 64)] for part in range(64)]
    areas = mask.pair_areas(shards, shards)
    assert areas.sum() == mask.area
    assert areas[40].sum() == mask.rows(shards[40]).area
    assert areas[:, 40].sum() == mask.cols(shards[40]).area


def check_rows(mask: Mask, name: str, starts: np.ndarray, ends: np.ndarray) -> None:
    """Around the ends of the intervals of sampled rows, each key is seen or not as the definition says."""
    rng = np.random.default_rng(0)
    documents = list(mask.documents or [])
    for row in rng.integers(0, MILLION, 3).tolist():
        for edge in {*starts[:, row].tolist(), *ends[:, row].tolist()}:
            for key in range(max(0, edge - 1), min(MILLION, edge + 1)):
                shown = bool(((starts[:, row] <= key) & (key < ends[:, row])).any())
                assert shown == sees(name, row, key, documents, mask.params), (row, key)


def check_tiles(mask: Mask) -> None:
    tiles = mask.tiles(4096, 4096)
    by_row, by_col = tiles.by_row(), tiles.by_col()
    rows = np.repeat(np.arange(tiles.grid[0]), np.diff(by_row.full_ptr))
    keys = np.repeat(np.arange(tiles.grid[1]), np.diff(by_col.full_ptr))
    assert set(zip(rows.tolist(), by_row.full_idx.tolist(), strict=True)) == set(zip(by_col.full_idx.tolist(), keys.tolist(), strict=True))
    assert tiles.partial == len(by_col.partial_idx)
    size = np.minimum(4096, MILLION - 4096 * np.arange(tiles.grid[0]))
    inside = int((size[rows] * size[by_row.full_idx]).sum())
    assert inside <= mask.area <= inside + tiles.partial * 4096**2
