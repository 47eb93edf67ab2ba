"""Pictures are drawn from areas: right in every cell, at any length."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca import masks
from longca.cli import main
from longca.errors import BadInput
from longca.masks import Mask, draw
from longca.masks.draw_bands import write_bands
from strategies import random_masks


@given(random_masks(), st.integers(1, 12), st.integers(1, 12))
def test_shades_are_the_visible_part_of_each_cell(drawn: tuple[Mask, np.ndarray], rows: int, columns: int) -> None:
    mask, dense = drawn
    if not dense.size:
        return
    shades = draw.shades(mask, rows, columns)[0]
    assert shades.shape == (min(rows, mask.seqlen_q), min(columns, mask.seqlen_k))
    row_parts, column_parts = (
        np.arange(n + 1) * length // n for n, length in zip(shades.shape, (mask.seqlen_q, mask.seqlen_k), strict=True)
    )
    for i, j in np.ndindex(shades.shape):
        cell = dense[row_parts[i] : row_parts[i + 1], column_parts[j] : column_parts[j + 1]]
        assert shades[i, j] == pytest.approx(cell.mean())


def test_a_short_mask_is_drawn_token_by_token() -> None:
    picture = draw.terminal_picture(masks.causal(4)).splitlines()[:-1]
    inside = [line[1:-1] for line in picture[1:-1]]
    shade = inside[-1][0]
    assert inside == [(shade * 2 * (i + 1)).ljust(8) for i in range(4)]


@pytest.mark.parametrize("seqlen", [1, 2, 35, 36, 37, 71, 72, 73, 997, 1 << 20])
def test_a_terminal_picture_is_never_wider_than_asked(seqlen: int) -> None:
    lines = draw.terminal_picture(masks.sliding_window(seqlen, w=3), width=72).splitlines()
    frame = lines[:-1]
    assert len({len(line) for line in frame}) == 1
    assert len(frame[0]) <= 74
    assert lines[-1].startswith("sliding_window  ")
    assert f"area {masks.sliding_window(seqlen, w=3).area}" in lines[-1]


def test_block_masks_have_a_picture_per_head() -> None:
    lines = draw.terminal_picture(masks.uniform_block(1024, heads=3, ratio=0.1), width=78).splitlines()
    titles = [line for line in lines if line.startswith("head")]
    assert [title.split("  ")[0] for title in titles] == ["head 0", "head 2"]
    assert titles[0].endswith("head 1")
    assert max(map(len, lines[:-1])) <= 78
    pictures = [lines[place + 1 : place + 21] for place, line in enumerate(lines) if line.startswith("head")]
    half = len(pictures[0][0]) // 2
    assert [line[:half].strip() for line in pictures[0]] != [line[half:].strip() for line in pictures[0]]
    alone = draw.terminal_picture(masks.uniform_block(1024, heads=3, ratio=0.1).take_heads([2]), width=36).splitlines()[:-1]
    assert pictures[1] == alone


def test_terminals_without_shades_get_plain_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "_can_print", lambda characters: False)
    text = draw.terminal_picture(masks.prefix_lm_causal(997, seed=1))
    assert text.isascii()
    assert "#" in text


def test_bands_are_drawn_on_request(tmp_path: Path) -> None:
    path = tmp_path / "bands.png"
    assert main(["mask", "global_sliding_window & causal", "--seqlen", "64", "--set", "g=8,w=16", "--bands", "--png", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(BadInput, match="draws up to 2000 bands, and this mask has 3000"):
        write_bands(masks.full_document(6000, documents=[2] * 3000), path)
