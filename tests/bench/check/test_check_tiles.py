"""Mistakes at the edges of a kernel's tiles: the check must meet them whatever the seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import longca
from longca import masks
from longca.bench.check import check
from longca.bench.check.check import check_kernel
from longca.bench.check.reference import reference
from longca.bench.check.sampled_rows import ALL_ROWS, sample_rows
from longca.bench.check.verdict import Verdict
from longca.kernels import registry
from longca.kernels.base import Attention, Case
from longca.masks import Mask

KERNEL = registry.get("torch:chunked")
SEEDS = range(2)
MASKS: dict[str, Callable[[int], Mask]] = {
    "full": masks.full,
    "causal": masks.causal,
    "window": lambda length: masks.sliding_window_causal(length, w=length // 8),
}


@pytest.fixture(autouse=True)
def _no_later_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong kernel is not called again: here it is found or not in its first calls."""
    monkeypatch.setattr(check, "AGAIN", 0)


class DropsFirstKey(Attention):
    """Right, but for out in some rows, which are computed without the first key they see."""

    def __init__(self, mask: Mask, case: Case, rows: np.ndarray) -> None:
        self.inner, self.scale = KERNEL.prepare(mask, case), case.softmax_scale
        starts, ends = (bound[0] for bound in mask.row_intervals())
        self.seen = [(row, starts[row] + 1, ends[row]) for row in rows if ends[row] > starts[row] + 1]

    def forward(self, q, k, v):
        out, lse = self.inner.forward(q, k, v)
        for row, first, last in self.seen:
            p = (torch.einsum("hd,jhd->hj", q[row].float(), k[first:last].float()) * self.scale).softmax(-1)
            out[row] = torch.einsum("hj,jhd->hd", p, v[first:last].float()).to(out.dtype)
        return out, lse


def verdict_on(name: str, length: int, rows: np.ndarray, seed: int, dtype: str) -> Verdict:
    mask = MASKS[name](length)
    case = Case(length, length, 1, 1, 32, 32, dtype, backward=False)
    return check_kernel(KERNEL, DropsFirstKey(mask, case, rows), case, reference(mask, case, seed), seed)


@pytest.mark.parametrize(
    ("length", "seed"),
    [(512, 0), (512, 1), (1024, 0), (1024, 1), pytest.param(4096, 0, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("edge", [0, 127])
def test_a_key_dropped_at_an_edge_of_every_tile_is_caught(length: int, name: str, edge: int, seed: int) -> None:
    rows = np.arange(1, length)
    assert not verdict_on(name, length, rows[rows % 128 == edge], seed, "bf16").ok


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("length", [1024, 1500, 65536])
def test_both_edges_of_tiles_and_every_place_in_them_are_looked_at(length: int, seed: int) -> None:
    rows = sample_rows(masks.causal(length), seed).rows
    for tile in (64, 128):
        for met in (rows[rows % tile == 0], rows[rows % tile == tile - 1]):
            assert len(met) > length / tile / 4
    assert set(rows % 128) == set(range(128))
    assert len(rows) <= max(64, length / 64 + 2) + 128


def test_all_rows_are_compared_and_dumped_where_they_are_asked_for(tmp_path: Path) -> None:
    row = int(np.setdiff1d(np.arange(700), sample_rows(masks.causal(700)).rows)[9])

    @longca.kernel
    def wrong_in_a_row(q, k, v, mask, scale):
        out = longca.attention(q, k, v, mask, kernel="torch:plain", scale=scale)
        return torch.cat([out[:row], 2 * out[row : row + 1], out[row + 1 :]])

    for rows, ok in (("sampled", True), ("all", False)):
        shape = {"seqlens": 700, "dtypes": "fp32", "heads": "2:1", "head_dims": 16, "device": "cpu"}
        found = longca.verify(wrong_in_a_row, "causal", rows=rows, trials=False, progress=False, dump=tmp_path, **shape)
        assert found.ok == ok
        compared = len(sample_rows(masks.causal(700)).rows)
        assert found.notes == ([f"of 700 rows {compared} at most are compared; --rows all compares all"] if ok else [])
        assert len(found.dumped) == (not ok)
    (folder,) = found.dumped
    assert len(torch.load(folder / "plain.pt", weights_only=True)["rows"]) == 700
    script = (folder / "reproduce.py").read_text()
    assert "\nkernel = ...  # wrong_in_a_row is an object of a program: import or define it here\n" in script


def test_every_row_of_a_short_sequence_is_looked_at_and_some_rows_have_no_gradient() -> None:
    points = sample_rows(masks.causal(ALL_ROWS))
    assert (points.rows == np.arange(ALL_ROWS)).all()
    assert (points.with_gradient("loud") == points.rows).all()
    assert 64 <= len(points.with_gradient("plain")) < 80
    longer = sample_rows(masks.causal(ALL_ROWS + 1))
    assert len(longer.rows) < 80 + 128
    assert (longer.with_gradient("plain") == longer.rows).all()
