"""FlexAttention on block patterns: its own lists and mask function show the pattern, and compiled on a CPU it is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.stand_ins import checked
from longca import masks
from longca.kernels import block_selection
from longca.kernels.backends.flex import _blocks
from longca.kernels.base import Case
from longca.masks import BlockMask

PATTERNS: list[tuple[str, int, dict[str, Any]]] = [
    ("uniform_block", 256, {"b": 64, "heads": 2}),
    ("uniform_block", 300, {"b": 64, "heads": 2}),
    ("uniform_block", 300, {"b": 128, "heads": 1}),
    ("uniform_block", 300, {"b": 48, "heads": 2}),
    ("variable_block", 300, {"avg": 50, "least": 9, "heads": 2}),
]


@pytest.mark.parametrize(("name", "length", "params"), PATTERNS)
def test_lists_and_mask_function_show_the_pattern(name: str, length: int, params: dict[str, Any]) -> None:
    mask = masks.build(name, length, seed=2, ratio=0.4, **params)
    assert isinstance(mask, BlockMask)
    case = Case(length, length, 4, 2, 16, 16)
    for shown in (mask, BlockMask(mask.row_edges, mask.col_edges, mask.kept, band=masks.causal(length))):
        _shows(shown, case)


def _shows(mask: BlockMask, case: Case) -> None:
    length, made = mask.seqlen_q, _blocks.block_mask(mask, case)
    right = torch.from_numpy(mask.dense()).repeat_interleave(4 // mask.heads, 0)
    head, row, key = (torch.arange(n).view(shape) for n, shape in ((4, (4, 1, 1)), (length, (1, -1, 1)), (length, (1, 1, -1))))
    assert torch.equal(made.mask_mod(torch.tensor(0), head, row, key), right)
    size = _blocks.own_block(mask)
    full, partial = (_tokens(*lists, size, length) for lists in _lists(made))
    assert not (full & partial).any()
    assert torch.equal(full | (partial & right), right)


@pytest.mark.slow
def test_compiled_forward_is_right() -> None:
    case = Case(300, 300, 4, 2, 16, 16, "fp32", backward=False)
    shapes: list[tuple[str, dict[str, Any]]] = [
        ("uniform_block", {"b": 128, "heads": 2}),
        ("variable_block", {"avg": 100, "least": 9, "heads": 2}),
    ]
    for name, params in shapes:  # the same number of blocks, so that one compilation serves both
        for source in ("random", "nsa"):
            mask = block_selection.build(name, 300, source, block_selection.Heads(4, 2, 16), seed=6, **params)
            checked("flex", mask, case)


def _lists(made: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(made.full_kv_num_blocks[0], made.full_kv_indices[0]), (made.kv_num_blocks[0], made.kv_indices[0])]


def _tokens(count: torch.Tensor, index: torch.Tensor, size: int, length: int) -> torch.Tensor:
    listed = torch.arange(index.shape[-1]) < count[..., None]
    blocks = torch.zeros(index.shape, dtype=torch.int32).scatter_add_(-1, index.long(), listed.int())
    return blocks.bool().repeat_interleave(size, 1).repeat_interleave(size, 2)[:, :length, :length].expand(4, -1, -1)


def test_tiles_of_64_are_chosen_inside_the_context_alone_and_in_every_thread() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from torch._inductor.choices import InductorChoices

    def tile() -> tuple[int, int]:
        (chosen,) = InductorChoices().get_flex_attention_bwd_configs(128, torch.bfloat16, "cpu")
        return chosen.block_m1, chosen.block_n1

    with ThreadPoolExecutor(1) as other:
        with _blocks.tiles_of_64():
            assert tile() == other.submit(tile).result() == (64, 64)
        assert tile() == other.submit(tile).result() != (64, 64)
