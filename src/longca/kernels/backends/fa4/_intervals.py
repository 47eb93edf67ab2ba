"""Interval masks for FlashAttention-4: one load per bound and row, one 32-bit word per 32 scores.

FA4 calls a mask function once per score and tests sequence ends beside it. A tensor-core fragment holds, per thread, few rows of
one side of the tile (the *anchors*) and many of the other; so it is enough to load the interval of each anchor, turn it into a
bit per score and let FA4's own predicate trick apply the bits, as its causal mask does. Anchors are queries in the forward pass
and keys in the backward pass of the head sizes that compute the transposed scores there.

This file imports the library at the top and is itself imported only when a kernel is prepared. It has no postponed annotations:
the library's compiler reads them.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call,untyped-decorator"

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar

import cutlass
import cutlass.cute as cute
import flash_attn.cute.block_sparse_utils as sparse_loops
import flash_attn.cute.interface as interface
import flash_attn.cute.mask as library_mask
import flash_attn.cute.utils as library_utils
import torch
from flash_attn.cute.block_sparsity import (
    BlockSparseTensorsTorch,
    NormalizedBlockSparseConfig,
    get_block_sparse_broadcast_pattern,
)
from flash_attn.cute.tile_scheduler import SingleTileScheduler
from quack import layout_utils

SOURCE = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
TileListTensors = BlockSparseTensorsTorch
_last_tile_first: ContextVar[bool] = ContextVar("last_tile_first", default=False)
PER_TILE_LISTS = 0  # a value of FA4's "list rows per tile" that it never uses itself: one list per tile of packed heads


class Intervals:
    """A mask function over an auxiliary tensor [2K, anchors]: start and end of K intervals for each anchor.

    Called by FA4 like any mask function (one score at a time); on Hopper `apply` masks a whole fragment instead.
    """

    def __init__(self, count: int, anchors_are_keys: bool, per_fragment: bool, last_tile_first: bool = False) -> None:
        self.count = count
        self.last_tile_first = last_tile_first
        self.anchors_are_keys = anchors_are_keys
        self.per_fragment = per_fragment
        # FA4's key of the compiled kernel, which it may keep on disk: another version of this file must not find it
        self.__cute_hash__ = f"longca-intervals-{SOURCE}-{count}-{anchors_are_keys}-{per_fragment}-{last_tile_first}"

    def __call__(self, batch: Any, head: Any, q_idx: Any, kv_idx: Any, seqlen_info: Any, aux_tensors: Any) -> Any:
        anchor, other = (kv_idx, q_idx) if self.anchors_are_keys else (q_idx, kv_idx)
        bounds, keep = aux_tensors[0], None
        for k in range(self.count):
            start = library_utils.scalar_to_ssa(bounds[2 * k, anchor[0]], cutlass.Int32)
            end = library_utils.scalar_to_ssa(bounds[2 * k + 1, anchor[0]], cutlass.Int32)
            inside = (other >= start) & (other < end)
            keep = inside if keep is None else keep | inside
        return keep

    def apply(self, mask: Any, acc_S: Any, m_block: Any, n_block: Any, thr_mma: Any, aux_data: Any) -> None:
        """Masks the fragment `acc_S` of tile (m_block, n_block)."""
        scores = layout_utils.reshape_acc_to_mn(acc_S)
        row_size, column_size = (mask.tile_n, mask.tile_m) if mask.swap_AB else (mask.tile_m, mask.tile_n)
        row_tile, column_tile = (n_block, m_block) if mask.swap_AB else (m_block, n_block)
        place = layout_utils.reshape_acc_to_mn(thr_mma.partition_C(cute.make_identity_tensor((row_size, column_size))))
        first_column = column_tile * column_size + place[0][1]
        for r in range(cute.size(place.shape[0])):
            anchor = row_tile * row_size + place[r, 0][0]
            if mask.qhead_per_kvhead_packgqa != 1:
                anchor = anchor // mask.qhead_per_kvhead_packgqa
            library_mask.mask_r2p_lambda(scores[r, None], self._bits(aux_data.tensors[0], anchor, first_column), rank1=True)

    def _bits(self, bounds: Any, anchor: Any, first_column: Any) -> Callable[[int], Any]:
        ends = []
        for k in range(2 * self.count):
            column = bounds[k, anchor] - first_column
            ends.append(library_mask.sm90_col_to_r2p_idx(column))

        def word(chunk: int) -> Any:
            keep = None
            for start, end in zip(ends[::2], ends[1::2], strict=True):
                inside = library_mask.r2p_bitmask_below(end, chunk) & library_mask.r2p_bitmask_above(start, chunk)
                keep = inside if keep is None else keep | inside
            return keep

        return word


class PackedTileLists(BlockSparseTensorsTorch):
    """Tile lists with one row per tile of packed heads: `tile_m / group` queries, where FA4 asks for `tile_m`."""

    __slots__ = ()


class _Patches:
    """Replaces functions of the library by ones that accept the types above and are otherwise unchanged."""

    installed: ClassVar[bool] = False

    @classmethod
    def install(cls) -> None:
        if cls.installed:
            return
        cls.installed = True
        library_mask.AttentionMask.apply_mask = _with_intervals(library_mask.AttentionMask.apply_mask)
        interface.normalize_block_sparse_config = _with_packed_lists(interface.normalize_block_sparse_config)
        sparse_loops.sparse_tensor_m_block = _with_row_per_tile(sparse_loops.sparse_tensor_m_block)
        SingleTileScheduler.create = staticmethod(_with_order(SingleTileScheduler.create))


install = _Patches.install


def _with_intervals(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_mask(self: Any, acc_S: Any, *args: Any, **kwargs: Any) -> None:
        mask_mod, aux_data = kwargs.get("mask_mod"), kwargs.get("aux_data")
        if isinstance(mask_mod, Intervals) and mask_mod.per_fragment:
            mask_mod.apply(self, acc_S, kwargs["m_block"], kwargs["n_block"], kwargs["thr_mma"], aux_data)
        elif mask_mod is not None or not _ends_with_a_tile(aux_data):
            original(self, acc_S, *args, **kwargs)

    return apply_mask


def _with_order(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(params: Any, *args: Any, **kwargs: Any) -> Any:
        scheduler = original(params, *args, **kwargs)
        if _last_tile_first.get():
            tile, head, batch = scheduler._blk_coord
            scheduler._blk_coord = (params.num_block - 1 - tile, head, batch)
        return scheduler

    return create


@contextmanager
def compiling(mask_function: Intervals) -> Iterator[None]:
    """Kernels that FA4 compiles inside this context schedule tiles in the order of this mask: the scheduler does not get the mask."""
    token = _last_tile_first.set(mask_function.last_tile_first)
    try:
        yield
    finally:
        _last_tile_first.reset(token)


def _ends_with_a_tile(aux_data: Any) -> bool:
    """Whether full tiles need no test of the sequence's end: `bounds_tensors` says so by giving the bounds twice."""
    return aux_data is not None and aux_data.tensors is not None and len(aux_data.tensors) == 2


def _with_packed_lists(original: Callable[..., Any]) -> Callable[..., Any]:
    def normalize(tensors: Any, **kwargs: Any) -> Any:
        if not isinstance(tensors, PackedTileLists):
            return original(tensors, **kwargs)
        if kwargs["block_size"] != tensors.block_size:
            raise ValueError(f"lists of packed tiles {tensors.block_size} do not fit FA4's tile {kwargs['block_size']}; choose that tile.")
        heads = kwargs["num_head"]
        lists = TileListTensors(*(t.expand(-1, heads, *t.shape[2:]) for t in tensors[:4]), block_size=tensors.block_size)
        return NormalizedBlockSparseConfig(lists, get_block_sparse_broadcast_pattern(lists), PER_TILE_LISTS, 1)

    return normalize


def _with_row_per_tile(original: Callable[..., Any]) -> Callable[..., Any]:
    def sparse_tensor_m_block(m_block: Any, qhead_per_kvhead: int, q_subtile_factor: int) -> Any:
        return m_block if q_subtile_factor == PER_TILE_LISTS else original(m_block, qhead_per_kvhead, q_subtile_factor)

    return sparse_tensor_m_block


def bounds_tensors(starts: torch.Tensor, ends: torch.Tensor, multiple: int, ends_with_a_tile: bool) -> list[torch.Tensor]:
    """Returns [K, n] starts and ends as one [2K, n rounded up] tensor; anchors behind the end see nothing, so that no test is needed.

    The same tensor once more tells the compiler that the keys fill their last tile (the number of tensors is part of FA4's key).
    """
    count, anchors = starts.shape
    bounds = torch.zeros((2 * count, -(-anchors // multiple) * multiple), dtype=torch.int32, device=starts.device)
    bounds[0::2, :anchors] = starts
    bounds[1::2, :anchors] = ends
    bounds.__leading_dim__ = 1  # type: ignore[attr-defined]  # FA4 reads these two: a known stride makes the loads cheaper
    bounds.__assumed_align__ = 4  # type: ignore[attr-defined]
    return [bounds, bounds] if ends_with_a_tile else [bounds]


def no_bounds(device: str) -> list[torch.Tensor]:
    """Returns the auxiliary tensors for lists of full tiles alone, where keys fill their last tile: two tensors mean nothing to mask."""
    nothing = torch.zeros((2, 1), dtype=torch.int32, device=device)
    return bounds_tensors(nothing[:1], nothing[1:], multiple=1, ends_with_a_tile=True)
