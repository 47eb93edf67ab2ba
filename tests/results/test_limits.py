"""What tiles let a mask reach, against counting them in a dense matrix, and on the committed journal of an H200."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from longca import masks
from longca.results.limits import LIMITED, Limits
from longca.results.problem import Pass
from longca.results.reading import read
from longca.results.record import Record
from longca.results.tile_work import covered, tile_rows

H200 = Path(__file__).parents[2] / "results" / "h200" / "paper-kernel"


def counted(dense: np.ndarray, rows: int, keys: int) -> float:
    tiles = [dense[i : i + rows, j : j + keys] for i in range(0, len(dense), rows) for j in range(0, dense.shape[1], keys)]
    return float(dense.sum() / sum(tile.size for tile in tiles if tile.any()))


@pytest.mark.parametrize("name", masks.names())
@pytest.mark.parametrize("tile", [(16, 128), (64, 128), (7, 13)])
def test_the_covered_share_is_that_of_a_dense_matrix(name: str, tile: tuple[int, int]) -> None:
    mask = masks.build(name, 509, seed=3)
    assert covered(mask, *tile) == pytest.approx(counted(mask.dense(), *tile), rel=1e-12)


def test_forward_tiles_are_shared_by_the_query_heads_of_a_kv_head() -> None:
    assert [tile_rows(Pass.FWD, heads, 8) for heads in (8, 16, 64)] == [128, 64, 16]
    assert {tile_rows(Pass.BWD, heads, 8) for heads in (8, 16, 64)} == {64}


def test_every_time_on_one_device_has_a_limit_and_none_is_far_above_it() -> None:
    results = read(H200)
    limits = Limits(results)
    shares = {record.key: record.speed / limit for record in results.records if (limit := limits.of(record))}
    timed = [record for record in results.records if record.ok and record.problem.pass_ in LIMITED]
    assert {record.key for record in timed} == set(shares)
    assert {record.problem.mask for record in timed} == set(masks.names())
    assert 0.5 < max(shares.values()) <= 1.05


def test_runs_on_devices_of_one_name_share_a_dense_speed_and_others_do_not() -> None:
    results = read(H200)
    dense = [record for record in results.records if record.ok and (record.problem.mask, record.problem.pass_) == ("full", "bwd")]
    best = max(dense, key=per_cycle)
    own = max((record for record in dense if record.env != best.env), key=per_cycle)
    assert Limits(results).of(own) == pytest.approx(per_cycle(best) * (own.times.mhz or 0))
    results.environments[own.env] = replace(results.environments[own.env], device="another device")
    assert Limits(results).of(own) == pytest.approx(own.speed)
    assert Limits(results).of(best) == pytest.approx(best.speed)


def per_cycle(record: Record) -> float:
    assert record.times.mhz
    return record.speed / record.times.mhz
