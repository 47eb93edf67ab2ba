"""The least time of a device: bytes and tiles counted by hand, and no measured time is below it."""

from pathlib import Path

import numpy as np
import pytest

import longca
from longca import masks
from longca.kernels.base import Case
from longca.results.metrics import bandwidth, traffic
from longca.results.problem import Pass
from longca.results.reading import read
from longca.results.roofline import Tiles, of_mask, of_record, touched_share
from longca.results.tile_work import TileWork

RESULTS = Path(__file__).parents[2] / "results"
CASE = Case(300, 300, 4, 2, 16, 32, "bf16")


def test_bytes_are_those_of_the_tensors() -> None:
    q, k, v, out, lse = (np.empty(shape, np.uint16) for shape in ((300, 4, 16), (300, 2, 16), (300, 2, 32), (300, 4, 32), (300, 4, 2)))
    forward = sum(x.nbytes for x in (q, k, v, out, lse))
    backward = sum(x.nbytes for x in (q, k, v, out, lse, out, q, k, v))  # with dout, dq, dk, dv
    assert [traffic(CASE, pass_) for pass_ in Pass] == [{"fwd": forward, "bwd": backward}.get(pass_, forward + backward) for pass_ in Pass]


@pytest.mark.parametrize("name", ["causal_document", "uniform_block"])
def test_the_work_is_that_of_the_touched_tiles(name: str) -> None:
    mask = masks.build(name, 512, seed=1)
    dense = np.array(mask.dense()).reshape(-1, 512, 512)
    tiles = dense.reshape(len(dense), 512 // 64, 64, 512 // 32, 32).any((2, 4)).sum()
    assert touched_share(mask, 64, 32) == pytest.approx(dense.sum() / (tiles * 64 * 32))
    limit = of_mask(mask, CASE, Pass.FWD, "NVIDIA H200", Tiles(64, 32))
    assert limit.tile_flops == pytest.approx(tiles / len(dense) * 64 * 32 * 4 * 2 * (16 + 32))
    assert limit.compute_ms == pytest.approx(limit.tile_flops / 989e12 * 1e3)
    assert limit.memory_ms == pytest.approx(limit.bytes / 4.8e12 * 1e3)
    assert limit.limit_ms == max(limit.compute_ms, limit.memory_ms)


def test_a_record_has_the_work_of_its_mask() -> None:
    """A window cuts its tiles, so the touched ones are more than the visible pairs."""
    results = read(RESULTS / "h200/paper-kernel")
    windows = [r for r in results.records if r.ok and r.problem.mask == "sliding_window_causal" and r.problem.seqlen == 8192]
    assert {record.problem.pass_ for record in windows} == {Pass.FWD, Pass.BWD}
    for record in windows:
        mask = results.masks[record.built.digest, record.problem.mask].rebuilt()
        limit, pass_ = of_record(record, results), record.problem.pass_
        assert mask is not None
        assert limit is not None
        case = record.problem.case(mask, "cuda", pass_ is Pass.BWD)
        wanted = of_mask(mask, case, pass_, "NVIDIA H200").tile_flops
        assert limit.tile_flops == pytest.approx(wanted)
        assert TileWork(results.masks, [record]).of_record(record) == pytest.approx(wanted)
        assert wanted > 1.02 * record.flops


@pytest.mark.parametrize("journal", ["h200/paper-kernel", "h200/paper-sparse"])
def test_no_measured_time_is_below_the_limit(journal: str) -> None:
    results = read(RESULTS / journal)
    limits = [(record, of_record(record, results)) for record in results.records if record.ok]
    assert all(limit is not None and limit.limit_ms is not None for _, limit in limits)
    assert [record.key for record, limit in limits if limit and limit.limit_ms and record.times.median < limit.limit_ms] == []


def test_a_device_is_known_by_its_longest_name() -> None:
    assert [bandwidth(name) for name in ("NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "a CPU")] == [3.94, 3.35, 4.8, None]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"device": "h200", "tiles": "128"}, "--tiles '128' is not understood"),
        ({"device": "h200", "tiles": "0x8"}, "--tiles '0x8' is not understood"),
        ({"device": "h200", "dtype": "fp8"}, "unknown dtype 'fp8'"),
        ({"device": "h200", "heads": "7:2"}, "7:2: the number of query heads"),
    ],
)
def test_a_limit_of_nonsense_is_one_sentence(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(longca.BadInput, match=sentence):
        longca.mask_limit("causal", 64, **settings)
