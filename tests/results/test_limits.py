"""What tiles let a mask reach, against counting them in a dense matrix, and on the committed journal of an H200."""

from pathlib import Path

import numpy as np
import pytest

from longca import masks
from longca.results.limits import LIMITED, covered, standings, tile_rows
from longca.results.reading import read
from longca.results.record import Pass

H200 = Path(__file__).parents[2] / "results" / "h200" / "paper-kernel"


def counted(dense: np.ndarray, rows: int, keys: int) -> float:
    tiles = [dense[i : i + rows, j : j + keys] for i in range(0, len(dense), rows) for j in range(0, dense.shape[1], keys)]
    return float(dense.sum() / sum(tile.size for tile in tiles if tile.any()))


@pytest.mark.parametrize("name", masks.names())
@pytest.mark.parametrize("tile", [(16, 128), (64, 128), (7, 13)])
def test_the_covered_share_is_that_of_a_dense_matrix(name: str, tile: tuple[int, int]) -> None:
    mask = masks.build(name, 509, seed=3)
    assert covered(mask.bands, mask.area, mask.seqlen_q, mask.seqlen_k, *tile) == pytest.approx(counted(mask.dense(), *tile), rel=1e-12)


def test_forward_tiles_are_shared_by_the_query_heads_of_a_kv_head() -> None:
    assert [tile_rows(Pass.FWD, heads, 8) for heads in (8, 16, 64)] == [128, 64, 16]
    assert {tile_rows(Pass.BWD, heads, 8) for heads in (8, 16, 64)} == {64}


def test_the_standing_is_that_of_the_fastest_kernel_and_no_share_is_far_above_the_limit() -> None:
    results = read(H200)
    found = standings(results)
    for standing in found[::17]:
        same = [r for r in results.records if r.ok and r.pass_ is standing.pass_ and r.mask_digest == standing.best.mask_digest]
        assert standing.best.speed == max(record.speed for record in same)
    assert {standing.mask for standing in found} == set(masks.names())
    assert {standing.pass_ for standing in found} == set(LIMITED)
    assert 0.5 < max(standing.share for standing in found) <= 1.05
