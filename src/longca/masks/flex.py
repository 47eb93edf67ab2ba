"""FlexAttention's forms of a mask, both ways: `mask_mod` functions and its BlockMask. torch is imported when one is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from longca.errors import BadInput
from longca.masks.blocks import BlockMask
from longca.masks.converters import of_rows, refuse_pairs
from longca.masks.mask import Mask
from longca.text import short

if TYPE_CHECKING:
    import torch

BLOCK = 128
CHUNK = 1 << 22  # pairs that are evaluated at a time


def mask_mod(mask: Mask, device: str = "cpu") -> Callable[..., torch.Tensor]:
    """Returns a function (batch, head, query, key) -> bool for FlexAttention: whether the query sees the key."""
    import torch

    starts, ends = (torch.from_numpy(np.ascontiguousarray(bounds)).to(device) for bounds in mask.row_intervals())
    if len(starts) == 1:  # the second interval is empty: one function for all masks with up to two
        starts, ends = (x.expand(2, -1).contiguous() for x in (starts, ends))
        starts[1] = ends[1]
    if len(starts) == 2:
        start, end, second_start, second_end = starts[0], ends[0], starts[1], ends[1]

        def two_intervals(batch: Any, head: Any, row: Any, key: Any) -> torch.Tensor:
            seen: torch.Tensor = ((key >= start[row]) & (key < end[row])) | ((key >= second_start[row]) & (key < second_end[row]))
            return seen

        return two_intervals

    def many_intervals(batch: Any, head: Any, row: Any, key: Any) -> torch.Tensor:
        seen: torch.Tensor = (key >= starts[0][row]) & (key < ends[0][row])
        for place in range(1, len(starts)):
            seen = seen | ((key >= starts[place][row]) & (key < ends[place][row]))
        return seen

    return many_intervals


def blocks_mod(mask: BlockMask, heads: int, device: str = "cpu") -> Callable[..., torch.Tensor]:
    """Returns such a function for a block pattern and that many query heads."""
    import torch

    group = _group(mask, heads)
    kept = torch.from_numpy(np.ascontiguousarray(mask.kept)).to(device)
    blocks = (np.repeat(np.arange(len(edges) - 1, dtype=np.int32), np.diff(edges)) for edges in (mask.row_edges, mask.col_edges))
    row_block, key_block = (torch.from_numpy(block).to(device) for block in blocks)

    def kept_blocks(batch: Any, head: Any, row: Any, key: Any) -> torch.Tensor:
        return kept[head // group, row_block[row], key_block[key]]

    if mask.band is None:
        return kept_blocks
    on_top = mask_mod(mask.band, device)

    def kept_and_shown(batch: Any, head: Any, row: Any, key: Any) -> torch.Tensor:
        return kept_blocks(batch, head, row, key) & on_top(batch, head, row, key)

    return kept_and_shown


def block_mask(mask: Mask | BlockMask, function: Callable[..., torch.Tensor], device: str, block_size: int, heads: int) -> Any:
    """Returns FlexAttention's BlockMask with this mask_mod, made from tile lists. Lists are as wide as the mask has tiles, so that all
    masks of one length share one compiled kernel."""
    import torch
    from torch.nn.attention.flex_attention import BlockMask as FlexBlocks

    tiles, group = mask.tiles(block_size, block_size).by_row(), _group(mask, heads)
    columns = max(1, -(-mask.seqlen_k // block_size))

    def padded(ptr: NDArray[np.int32], idx: NDArray[np.int32]) -> tuple[torch.Tensor, torch.Tensor]:
        count = np.diff(ptr).astype(np.int32)
        index = np.zeros((len(count), columns), np.int32)
        index[np.arange(columns) < count[:, None]] = idx
        return of_heads(count), of_heads(index)

    def of_heads(array: NDArray[np.int32]) -> torch.Tensor:
        """Lists of all row tiles, pattern by pattern, as [1, heads, row tiles, ...]."""
        lists: torch.Tensor = torch.from_numpy(array).to(device).unflatten(0, (mask.heads, -1))
        return lists.repeat_interleave(group, 0)[None]

    return FlexBlocks.from_kv_blocks(
        *padded(tiles.partial_ptr, tiles.partial_idx),
        *padded(tiles.full_ptr, tiles.full_idx),
        BLOCK_SIZE=block_size,
        mask_mod=function,
        seq_lengths=(mask.seqlen_q, mask.seqlen_k),
    )


def _group(mask: Mask | BlockMask, heads: int) -> int:
    """How many query heads share a pattern."""
    if heads < 1 or heads % mask.heads:
        raise BadInput(f"the query heads must be a multiple of the {mask.heads} patterns of this mask, not {heads}.")
    return heads // mask.heads


def from_mask_mod(
    function: Callable[..., torch.Tensor],
    seqlen_q: int,
    seqlen_k: int | None = None,
    *,
    batch: int = 1,
    heads: int = 1,
    device: str = "cpu",
) -> Mask:
    """Returns the mask of FlexAttention's mask_mod, exact up to 16K x 16K pairs: every pair is looked at, for each batch entry and head.

    The function runs on `device`, where its own tensors must be.
    """
    seqlen_k = seqlen_q if seqlen_k is None else seqlen_k
    _refuse_numbers(seqlen_q=seqlen_q, seqlen_k=seqlen_k, batch=batch, heads=heads)
    refuse_pairs("from_mask_mod", seqlen_q, seqlen_k)
    shown = (chunk for chunk, _ in _evaluated(function, (batch, heads, seqlen_q, seqlen_k), device))
    return _of_all(shown, seqlen_q, seqlen_k)


def from_block_mask(given: Any) -> Mask:
    """Returns the mask of FlexAttention's BlockMask: its full blocks, and of its partial blocks the pairs that its mask_mod shows. It is
    exact up to 16K x 16K pairs."""
    from torch.nn.attention.flex_attention import BlockMask as FlexBlocks

    if not isinstance(given, FlexBlocks):
        raise BadInput(f"from_block_mask takes the BlockMask of FlexAttention, not {type(given).__name__}.")
    batch, heads = given.kv_num_blocks.shape[:2]
    seqlen_q, seqlen_k = given.seq_lengths
    refuse_pairs("from_block_mask", seqlen_q, seqlen_k)
    rows, keys = (np.arange(length) // size for length, size in zip((seqlen_q, seqlen_k), given.BLOCK_SIZE, strict=True))
    tiles = (-(-seqlen_q // given.BLOCK_SIZE[0]), -(-seqlen_k // given.BLOCK_SIZE[1]))
    partial = _listed(given.kv_num_blocks, given.kv_indices, tiles)
    full = np.zeros_like(partial)
    if given.full_kv_num_blocks is not None and given.full_kv_indices is not None:
        full = _listed(given.full_kv_num_blocks, given.full_kv_indices, tiles)

    def shown() -> Iterator[NDArray[np.bool_]]:
        shape = (batch, heads, seqlen_q, seqlen_k)
        for chunk, first in _evaluated(given.mask_mod, shape, given.kv_num_blocks.device):
            row = rows[first : first + chunk.shape[2]]
            yield (chunk & partial[:, :, row][..., keys]) | full[:, :, row][..., keys]

    return _of_all(shown(), seqlen_q, seqlen_k)


def _refuse_numbers(**numbers: Any) -> None:
    """Raises BadInput for lengths and counts that are none."""
    for name, number in numbers.items():
        if not isinstance(number, int | np.integer) or number < 0:
            raise BadInput(f"{name} must be a whole number of 0 or more, not {number!r}.")


def _of_all(chunks: Iterator[NDArray[np.bool_]], seqlen_q: int, seqlen_k: int) -> Mask:
    """The mask of chunks of rows [batch, heads, rows, keys], which must be the same for all batch entries and heads."""

    def first_of(chunk: NDArray[np.bool_]) -> NDArray[np.bool_]:
        if (chunk != chunk[:1, :1]).any():
            raise BadInput("this mask differs between batch entries or heads, and a mask of bands is the same for all; make one for each.")
        return np.asarray(chunk[0, 0])

    return of_rows(map(first_of, chunks), seqlen_q, seqlen_k)


def _evaluated(function: Any, shape: tuple[int, int, int, int], device: Any) -> Iterator[tuple[NDArray[np.bool_], int]]:
    """What a mask_mod says of some rows at a time, [batch, heads, rows, keys], and the first of these rows."""
    import torch
    from torch.nn.attention.flex_attention import create_mask

    batch, heads, seqlen_q, seqlen_k = shape
    rows = max(1, CHUNK // max(1, batch * heads * seqlen_k))
    for first in range(0, seqlen_q, rows):

        def moved(entry: Any, head: Any, row: Any, key: Any, first: int = first) -> Any:
            return function(entry, head, row + first, key)

        try:
            chunk = create_mask(moved, batch, heads, min(rows, seqlen_q - first), seqlen_k, device)
        except Exception as error:  # anything may go wrong in somebody's function
            raise BadInput(f"the mask_mod fails at the rows from {first} on: {short(f'{type(error).__name__}: {error}', 120)}") from error
        if chunk.dtype != torch.bool:
            raise BadInput(f"a mask_mod must return bool, whether a query sees a key, not {chunk.dtype}; a score_mod is no mask.")
        yield chunk.cpu().numpy(), first


def _listed(count: torch.Tensor, index: torch.Tensor, tiles: tuple[int, int]) -> NDArray[np.bool_]:
    """Lists of key tiles as bools [batch, heads, row tiles, key tiles]."""
    counts, indices = count.cpu().numpy(), index.cpu().numpy()
    listed = np.zeros((*counts.shape[:2], *tiles), bool)
    entry, head, row, place = np.nonzero(np.arange(indices.shape[-1]) < counts[..., None])
    listed[entry, head, row, indices[entry, head, row, place]] = True
    return listed
