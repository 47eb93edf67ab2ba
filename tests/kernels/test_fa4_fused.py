"""What `fa4:fused` needs and no GPU: places of dQ in memory, how many key tiles add to a query tile, memory between calls, refusals."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longca import masks
from longca.kernels import lower, registry
from longca.kernels.backends.fa4 import _chunks, kernel
from longca.kernels.backends.fa4._fused import FusedBands, repeated
from longca.kernels.backends.fa4._sums import HALVES, SCALE_FLOATS, Sums, Tiling, Window, heads_to_join, heavy_first
from longca.kernels.base import Case, No, Yes
from longca.masks import Mask

CASE = Case(512, 512, 8, 2, 128, 128, "bf16", "cuda")


def chunk_of_a_warp_group() -> np.ndarray:
    """The values 64 * row + column, where a warp group puts them: its threads 16 bytes each at a time, register by register."""
    chunk = np.full(64 * 64, -1)
    for thread in range(128):
        for register in range(32):
            row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (register // 2 % 2)
            column = 8 * (register // 4) + 2 * (thread % 4) + register % 2
            chunk[512 * (register // 4) + 4 * thread + register % 4] = 64 * row + column
    return chunk


def test_one_warp_reads_a_chunk_as_rows() -> None:
    chunk, written = chunk_of_a_warp_group(), np.full((64, 64), -1)
    for lane in range(32):
        turn = _chunks.turn_of(lane)
        for row_step in range(_chunks.STEPS):
            for column_step in range(_chunks.STEPS):
                places = [_chunks.first_place(lane) + _chunks.distance(row_step, column_step, (turn + k) % 4) for k in range(4)]
                pairs = [tuple(chunk[place : place + 2]) for place in places]
                values = np.concatenate(_chunks.in_order(pairs, turn, lambda moves, yes, no: yes if moves else no))
                row, column = _chunks.row_of(lane, row_step), _chunks.column_of(lane, column_step)
                written[row, column : column + 8] = values
    assert (written == np.arange(64 * 64).reshape(64, 64)).all()


def test_a_half_warp_reads_from_all_banks() -> None:
    for half in (range(16), range(16, 32)):
        for k in range(4):
            places = [_chunks.first_place(lane) + _chunks.distance(0, 0, (_chunks.turn_of(lane) + k) % 4) for lane in half]
            assert sorted(place % 32 // 2 for place in places) == list(range(16))


def visible(cu_q: np.ndarray, cu_k: np.ndarray, window: Window) -> np.ndarray:
    """Every pair of query and key, from the words of the window."""
    seen = np.zeros((cu_q[-1], cu_k[-1]), bool)
    for q0, q1, k0, k1 in zip(cu_q, cu_q[1:], cu_k, cu_k[1:], strict=False):
        place = np.arange(k1 - k0) - np.arange(q1 - q0)[:, None] - ((k1 - k0) - (q1 - q0))
        inside = np.ones(place.shape, bool)
        if window.left is not None:
            inside &= place >= -window.left
        if window.right is not None:
            inside &= place <= window.right
        seen[q0:q1, k0:k1] = inside
    return seen


LENGTHS = st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), min_size=1, max_size=5)
BOUND = st.none() | st.integers(0, 60)


@given(lengths=LENGTHS, left=BOUND, right=BOUND)
def test_counts_are_the_key_tiles_that_a_query_tile_sees(lengths: list[tuple[int, int]], left: int | None, right: int | None) -> None:
    cu_q, cu_k = (np.concatenate([[0], np.cumsum(side)]) for side in zip(*lengths, strict=True))
    window, (rows, keys) = Window(left, right), (8, 16)
    tiling = Tiling(cu_q, cu_k, rows, keys)
    counts, seen = tiling.counts(window), visible(cu_q, cu_k, window)
    used = np.zeros(tiling.places, bool)
    for first, q0, q1, k0, k1 in zip(tiling.first_tiles, cu_q, cu_q[1:], cu_k, cu_k[1:], strict=False):
        for m, row in enumerate(range(q0, q1, rows)):
            touched = [seen[row : min(row + rows, q1), key : min(key + keys, k1)].any() for key in range(k0, k1, keys)]
            assert counts[first + m] == sum(touched), "the library multiplies only tiles that touch the mask"
            assert not used[first + m], "documents share no tile"
            used[first + m] = True
    assert not counts[~used].any()
    missing = tiling.rows_of_none(counts)
    assert not seen[missing].any()
    assert len(np.intersect1d(missing, np.flatnonzero(seen.any(1)))) == 0


@pytest.mark.parametrize("name", masks.names())
def test_counts_of_tile_lists(name: str) -> None:
    mask = masks.build(name, 700, seed=5)
    lists, dense = mask.tiles(64, 128).by_col(), lower.dense(mask, "cpu").numpy()
    counts = np.bincount(np.concatenate([lists.full_idx, lists.partial_idx]), minlength=11)
    touched = [sum(dense[row : row + 64, key : key + 128].any() for key in range(0, 700, 128)) for row in range(0, 700, 64)]
    assert counts.tolist() == touched


def test_lists_of_joined_heads() -> None:
    mask = masks.build("share_question", 640, seed=5)
    tiles = mask.tiles(64, 128)
    twice = np.concatenate([lower.dense(mask, "cpu").numpy()] * 2)  # the queries of two heads in one sequence
    lists = repeated(tiles.by_col(), 2, 10)
    for key in range(5):
        full, partial = (index[ptr[key] : ptr[key + 1]] for ptr, index in (lists[:2], lists[2:]))
        for tile in range(20):
            shown = twice[64 * tile : 64 * tile + 64, 128 * key : 128 * key + 128]
            assert (tile in full, tile in partial) == (shown.all(), shown.any() and not shown.all())


def test_joined_heads_share_a_kv_head_and_follow_each_other() -> None:
    attention = FusedBands.__new__(FusedBands)
    attention.heads = 2
    given = torch.arange(3 * 8).reshape(3, 8, 1)  # value 8 * token + head
    joined = attention._joined(given)
    assert joined.shape == (6, 4, 1)
    assert all(joined[3 * (head % 2) + token, head // 2] == 8 * token + head for token in range(3) for head in range(8))
    outermost = torch.empty(8, 3, 1).transpose(0, 1)
    assert attention._joined(outermost).data_ptr() == outermost.data_ptr(), "nothing is copied"


def test_heavy_tiles_come_first_and_equal_ones_stay_in_order() -> None:
    work = np.array([1, 64, 3, 64, 70, 0, 200])
    order = heavy_first(work)
    assert sorted(order) == list(range(7))
    assert order.tolist() == [6, 1, 3, 4, 2, 0, 5]


@pytest.mark.parametrize(("tiles", "heads"), [([18] * 256, 8), ([300, *[2] * 255], 1), ([20, *[10] * 255], 4), ([60, *[10] * 255], 2)])
def test_heads_are_joined_while_the_longest_block_stays_short(tiles: list[int], heads: int) -> None:
    assert heads_to_join(np.array(tiles), heads_q=64, group=8) == heads


def made_sums(keeps: bool = True) -> Sums:
    return Sums(np.array([3, 0, 1], np.int32), heads=2, tile_floats=8, scale=0.25, device="cpu", keeps=keeps)


def test_memory_behind_the_sums() -> None:
    sums = made_sums()
    with sums.lent() as lent:
        assert lent.shape == (2, 24)
        assert not lent.any()
        memory = sums.buffers[0].memory
        assert lent.data_ptr() == memory.data_ptr(), "the kernel finds the rest behind the sums"
    behind = memory[48:]
    assert behind[0] == 0.25
    words = behind[SCALE_FLOATS:].view(torch.int32)
    assert words[:3].tolist() == [3, 0, 1]
    assert words[3:].tolist() == [0] * (2 * 3 * HALVES)


def test_sums_are_kept_after_a_call_and_cleared_after_an_aborted_one() -> None:
    sums = made_sums()
    with sums.lent() as lent:
        lent[0, 0] = 7.0  # a kernel would have left 0: the 7 shows that nobody clears
    with sums.lent() as lent:
        assert lent[0, 0] == 7.0
    abort(sums)
    with sums.lent() as lent:
        assert not lent.any()
        assert sums.buffers[0].memory[-1] == 0.0


def abort(sums: Sums) -> None:
    """A call that leaves the last counter at 5 and raises."""
    with suppress(KeyboardInterrupt), sums.lent():
        sums.buffers[0].memory[-1] = 5.0
        raise KeyboardInterrupt


def test_sums_that_are_not_kept_are_always_cleared() -> None:
    sums = made_sums(keeps=False)
    for _ in range(2):
        with sums.lent() as lent:
            assert not lent.any()
            lent.fill_(1.0)


def fused(monkeypatch: pytest.MonkeyPatch, version: str = "4.0.0b36") -> kernel.Fa4:
    monkeypatch.setattr(kernel, "installed_version", lambda package: version)
    return kernel.Fa4("fused")


@pytest.mark.parametrize("name", masks.names())
def test_takes_every_mask_but_is_never_chosen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mask = masks.build(name, 512, seed=2)
    assert isinstance(fused(monkeypatch).supports(mask, CASE), Yes)
    assert "fa4:fused" not in {each.label for each in registry.preferred("cuda")}
    assert registry.default_for_methods("cuda") != "fa4:fused"
    first = next(each for each in registry.choices("fa4") if each.supports(mask, CASE))
    assert first.variant != "fused"


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (replace(CASE, head_dim=96, head_dim_v=96), "takes head sizes 64 and 128"),
        (replace(CASE, deterministic=True), "no deterministic backward"),
        (replace(CASE, dtype="fp32"), "not fp32"),
    ],
)
def test_refused_cases(monkeypatch: pytest.MonkeyPatch, case: Case, words: str) -> None:
    answer = fused(monkeypatch).supports(masks.causal(512), case)
    assert isinstance(answer, No)
    assert words in answer.reason


@pytest.mark.parametrize("version", ["4.0.0b37", ""])
def test_refuses_other_versions(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    answer = fused(monkeypatch, version).supports(masks.causal(512), CASE)
    assert isinstance(answer, No)
    assert "4.0.0b36" in answer.reason


def test_refuses_block_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = fused(monkeypatch).supports(masks.uniform_block(512, b=128, ratio=0.5, heads=1, seed=1), CASE)
    assert isinstance(answer, No)
    assert "fa4:blocks" in answer.reason


def test_many_intervals_are_refused_like_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    stripes = Mask.of(4, 1024, [(0, 4, key, 0, key + 1, 0) for key in range(0, 1024, 4)])
    case = replace(CASE, seqlen_q=4, seqlen_k=1024)
    assert fused(monkeypatch).supports(stripes, case) == kernel.supports_bands(stripes)
