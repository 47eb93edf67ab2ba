"""Masks from the forms of other libraries: each converter against the form's own definition, and there and back for random masks."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask

from forms import pairs_of_columns, pairs_of_slices, pairs_of_varlen
from longca import masks
from longca.errors import BadInput, Refused
from longca.masks import Mask
from strategies import Dense, assert_is, documents_of, patterns, random_masks

MASKS = random_masks()
Drawn = tuple[Mask, Dense]


@given(MASKS)
def test_every_form_and_back(drawn: Drawn) -> None:
    mask, dense = drawn
    assert masks.from_dense(torch.from_numpy(dense)[None, None]).table == mask.table
    assert masks.from_slices(*mask.slices(), mask.seqlen_q, mask.seqlen_k) == mask
    with suppress(Refused):
        varlen = mask.varlen()
        assert masks.from_cu_seqlens(varlen.cu_q, varlen.cu_k, window=(varlen.left, varlen.right)) == mask
    with suppress(Refused):
        columns = mask.column_intervals()
        assert masks.from_column_intervals(torch.from_numpy(columns.rows)[None, None], causal=columns.causal) == mask


@given(st.integers(0, 9), st.integers(0, 9), st.data())
def test_any_matrix_is_a_mask(rows: int, keys: int, data: st.DataObject) -> None:
    bits = data.draw(st.lists(st.booleans(), min_size=rows * keys, max_size=rows * keys))
    dense = np.array(bits, bool).reshape(rows, keys)
    assert_is(masks.from_dense(dense), dense)


@st.composite
def varlen_of(draw: st.DrawFn) -> tuple[list[int], list[int], int, int]:
    count = draw(st.integers(1, 4))
    cu_q, cu_k = ([0, *np.cumsum(draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))).tolist()] for _ in range(2))
    return cu_q, cu_k, draw(st.integers(-1, 7)), draw(st.integers(-1, 7))


@given(varlen_of(), st.booleans())
def test_cu_seqlens_mean_what_flash_attention_says(drawn: tuple[list[int], list[int], int, int], causal: bool) -> None:
    cu_q, cu_k, left, right = drawn
    mask = masks.from_cu_seqlens(torch.tensor(cu_q, dtype=torch.int32), cu_k, window=(left, right), causal=causal)
    assert_is(mask, pairs_of_varlen(cu_q, cu_k, left, 0 if causal else right))


@given(st.integers(1, 30).flatmap(documents_of), st.integers(-1, 8), st.booleans())
def test_position_ids_and_back(documents: list[int], window: int, causal: bool) -> None:
    positions = torch.cat([torch.arange(length) for length in documents])
    mask = masks.from_position_ids(positions[None], window=window, causal=causal)
    cu = np.cumsum([0, *documents])
    assert_is(mask, pairs_of_varlen(cu, cu, window, 0 if causal else window))
    assert mask.documents == tuple(documents)
    varlen = mask.varlen()
    assert masks.from_position_ids(mask.position_ids(), window=(varlen.left, varlen.right), causal=False) == mask


@given(st.integers(0, 3), *(st.integers(0, 9) for _ in range(4)))
def test_slices_mean_what_magi_attention_says(kind: int, q0: int, rows: int, k0: int, keys: int) -> None:
    given = [[q0, q0 + rows]], [[k0, k0 + keys]], [kind], 20, 20
    assert_is(masks.from_slices(*given), pairs_of_slices(*given) > 0)


@given(st.integers(1, 8), st.sampled_from([(True, 1), (True, 2), (False, 2), (False, 4)]), st.data())
def test_column_intervals_mean_what_flashmask_says(length: int, form: tuple[bool, int], data: st.DataObject) -> None:
    causal, count = form
    rows = np.array([[data.draw(st.integers(0, length)) for _ in range(count)] for _ in range(length)])
    assert_is(masks.from_column_intervals(rows, causal=causal), pairs_of_columns(rows, causal, length))


@settings(max_examples=12)
@given(MASKS)
def test_mask_mods_and_back(drawn: Drawn) -> None:
    mask, dense = drawn
    if not dense.size:
        return
    function = mask.mask_mod()
    np.testing.assert_array_equal(create_mask(function, 1, 1, *dense.shape, device="cpu")[0, 0].numpy(), dense)
    assert masks.from_mask_mod(function, *dense.shape) == mask


@settings(max_examples=12)
@given(patterns(), st.sampled_from([8, 16]))
def test_block_masks_and_back(drawn: Drawn, size: int) -> None:
    mask, dense = drawn
    made = mask.block_mask(block_size=size)
    assert made.seq_lengths == dense.shape
    assert masks.from_block_mask(made) == mask
    theirs = create_block_mask(mask.mask_mod(), None, None, *dense.shape, device="cpu", BLOCK_SIZE=size)
    np.testing.assert_array_equal(made.to_dense().numpy(), theirs.to_dense().numpy())
    assert masks.from_block_mask(theirs) == mask


@settings(max_examples=12)
@given(patterns(), st.integers(0, 3), st.booleans())
def test_block_patterns_as_flex_takes_them(drawn: Drawn, seed: int, on_top: bool) -> None:
    mask, dense = drawn
    blocks = masks.uniform_block(len(dense), b=5, ratio=0.5, heads=2, seed=seed)
    blocks, shown = (blocks & mask, blocks.dense() & dense) if on_top else (blocks, blocks.dense())
    of_heads = shown.repeat(2, axis=0)
    made = create_mask(blocks.mask_mod(heads=4), 1, 4, *dense.shape, device="cpu")[0]
    np.testing.assert_array_equal(made.numpy(), of_heads)
    theirs = create_block_mask(blocks.mask_mod(heads=4), 1, 4, *dense.shape, device="cpu", BLOCK_SIZE=8)
    np.testing.assert_array_equal(blocks.block_mask(block_size=8, heads=4).to_dense().numpy(), theirs.to_dense().numpy())
    with pytest.raises(BadInput, match="a multiple of the 2 patterns of this mask, not 3"):
        blocks.mask_mod(heads=3)


def test_lists_of_blocks_hide_what_they_do_not_name() -> None:
    def causal(b: Any, h: Any, q: Any, k: Any) -> torch.Tensor:
        return q >= k

    whole = create_block_mask(causal, None, None, 48, 48, device="cpu", BLOCK_SIZE=16)
    diagonal = BlockMask.from_kv_blocks(whole.kv_num_blocks, whole.kv_indices, BLOCK_SIZE=16, mask_mod=causal, seq_lengths=(48, 48))
    assert masks.from_block_mask(whole) == masks.causal(48)
    assert masks.from_block_mask(diagonal) == masks.causal_document(48, documents=[16] * 3)


def test_a_mask_mod_is_evaluated_in_chunks_and_for_every_head(monkeypatch: pytest.MonkeyPatch) -> None:
    from longca.masks import flex

    monkeypatch.setattr(flex, "CHUNK", 100)
    owner = torch.arange(40) // 7
    assert masks.from_mask_mod(lambda b, h, q, k: owner[q] == owner[k], 40, heads=2) == masks.full_document(40, documents=[7] * 5 + [5])
    with pytest.raises(BadInput, match="differs between batch entries or heads"):
        masks.from_mask_mod(lambda b, h, q, k: q - k <= h, 40, heads=2)
    with pytest.raises(BadInput, match="the mask_mod fails at the rows from 0 on: IndexError"):
        masks.from_mask_mod(lambda b, h, q, k: owner[q + 100] == owner[k], 40)


@pytest.mark.slow
def test_what_is_too_large_is_refused_with_the_limit() -> None:
    flat = np.broadcast_to(np.array(True), (1 << 15, 1 << 14))
    with pytest.raises(
        BadInput, match="from_dense looks at every pair, of 16K x 16K at most, not of 32K x 16K; write a longer mask as bands"
    ):
        masks.from_dense(flat)
    with pytest.raises(BadInput, match="from_mask_mod looks at every pair, of 16K x 16K at most, not of 32K x 32K"):
        masks.from_mask_mod(lambda b, h, q, k: q >= k, 1 << 15)
    with pytest.raises(BadInput, match="from_block_mask looks at every pair"):
        masks.from_block_mask(masks.causal(1 << 15).block_mask(block_size=1024))
    checkers = np.indices((4096, 4096)).sum(0) % 2 == 0
    with pytest.raises(BadInput, match=r"the first 4096 rows have \d+ intervals of visible keys; masks are found with up to 4194304"):
        masks.from_dense(checkers)


BAD: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("from_cu_seqlens", ([1, 2],), {}, r"cu_q must be prefix sums of document lengths, such as \[0, 353, 8192\], not \[1, 2\]"),
    ("from_cu_seqlens", ([0, 5], [0, 2, 5]), {}, "as many entries, not 2 and 3"),
    ("from_cu_seqlens", ([0, 5],), {"window": None}, r"window must be one number of keys, or \(left, right\), -1 for no limit, not None"),
    ("from_cu_seqlens", ([0, 5],), {"window": (1.5, 2)}, r"not \(1.5, 2\)"),
    ("from_position_ids", ([[0, 1], [0, 1]],), {}, r"one row of positions, not of shape \(2, 2\); make a mask for each row"),
    ("from_dense", (np.zeros((3, 3)),), {}, r"a bool matrix \[queries, keys\], not float64 of shape \(3, 3\); of an additive mask"),
    ("from_dense", (torch.zeros(3, 3, dtype=torch.bfloat16),), {}, "from_dense cannot be torch.bfloat16"),
    ("from_mask_mod", (lambda b, h, q, k: q - k, 16), {}, "a mask_mod must return bool, whether a query sees a key, not torch.int64"),
    ("from_block_mask", ("causal",), {}, "takes the BlockMask of FlexAttention, not str"),
    ("from_slices", ([[0, 2]], [[0, 2], [2, 4]]), {}, "as many q_ranges, k_ranges and types, not 1, 2 and 1"),
    ("from_slices", ([[0, 2]], [[0, 2]], [4]), {}, "the type of a slice must be 0, 1, 2 or 3, not 4"),
    ("from_slices", ([0, 2], [0, 2]), {}, r"q_ranges must be pairs \[start, end\], not of shape \(2,\)"),
    ("from_column_intervals", (np.zeros((4, 3), int),), {}, r"must be \[keys, 2 or 4\] where causal is False, not of shape \(4, 3\)"),
    ("from_column_intervals", (np.full((4, 1), 5),), {"causal": True}, "rows from 0 to 4, the number of keys"),
    ("from_column_intervals", (np.arange(8).reshape(2, 1, 4, 1) % 5,), {"causal": True}, "differ between batch entries or heads"),
]


@pytest.mark.parametrize(("converter", "args", "options", "problem"), BAD)
def test_bad_input_is_one_sentence(converter: str, args: tuple[Any, ...], options: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadInput, match=problem) as caught:
        getattr(masks, converter)(*args, **options)
    assert str(caught.value).count(". ") == 0
