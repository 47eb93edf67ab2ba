"""Any band mask in FlashAttention-4: lists of full and partial tiles, and the intervals that mask the partial ones.

Letters in names: M tiles of queries, N tiles of keys, G query heads of one KV head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from longca.errors import Refused
from longca.kernels import lower
from longca.kernels.base import Attention, Case

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from longca.kernels.base import Gradients
    from longca.masks import Mask
    from longca.masks.tiles import TileLists

FORWARD_TILE = {64: (192, 128), 96: (192, 128), 128: (128, 128), 192: (128, 112), 256: (128, 80)}  # FA4's own choice for dense attention
FEW_PARTIAL_TILES = 0.05  # of all tiles: below, finer lists skip nothing and cost the host time
LARGEST_LIST = 1 << 22  # entries of a padded list: larger ones take too long to build


@dataclass(frozen=True)
class Tuning:
    """Options to tune; None leaves the choice to this adapter."""

    forward_tile: tuple[int, int] | None = None
    backward_rows: int | None = None  # queries per tile of the backward pass: 64, 80 or 128 at head size 128
    packed_lists: bool | None = None  # a list per tile of packed heads (tile_m / G queries) instead of per tile_m queries
    pack_gqa: bool | None = None  # one tile holds all query heads of a KV head
    heavy_first: bool | None = None  # hand out the last queries first, where they see more than the first ones
    overlap: bool | None = None  # softmax of one tile beside the products of the next, within a warp group
    per_fragment: bool = True  # mask a fragment at once, not a score at a time
    skip_ends: bool = True  # where the keys fill their last tile, full tiles of the backward pass are not tested for the end
    descending: bool = False  # list partial tiles from the last to the first


class ListedAttention(Attention):
    """FA4 with a list of tiles for each tile of queries (forward) and of keys (backward)."""

    def __init__(self, case: Case, tuning: Tuning | None = None) -> None:
        from flash_attn.cute import interface

        from longca.kernels.backends.fa4 import _intervals

        if interface._get_device_arch() // 10 != 9:
            raise Refused("fa4's tile lists are written for Hopper here; on other devices use fa4:native or fa4:varlen.")
        _intervals.install()
        self.library, self.cute, self.case, self.tuning = interface, _intervals, case, tuning or Tuning()
        self.forward_options: dict[str, Any] = {}
        self.backward_options: dict[str, Any] = {}

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse, *_ = self.library._flash_attn_fwd(q_LHD[None], k_LHD[None], v_LHD[None], return_lse=True, **self.forward_options)
        return out[0], lse[0]

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        assert lse_HL is not None
        tensors = (tensor[None] for tensor in (q_LHD, k_LHD, v_LHD, out_LHD, dout_LHD, lse_HL))
        dq, dk, dv = self.library._flash_attn_bwd(*tensors, **self.backward_options)
        return dq[0], dk[0], dv[0]

    def _intervals(
        self, mask: Mask, tile: tuple[int, int], *, anchors_are_keys: bool = False, last_tile_first: bool = False
    ) -> dict[str, Any]:
        starts, ends = lower.intervals(mask.transpose() if anchors_are_keys else mask, self.case.device)
        mask_function = self.cute.Intervals(len(starts), anchors_are_keys, self.tuning.per_fragment, last_tile_first)
        ends_with_a_tile = self.tuning.skip_ends and anchors_are_keys and mask.seqlen_k % tile[1] == 0
        bounds = self.cute.bounds_tensors(starts, ends, tile[anchors_are_keys], ends_with_a_tile)
        return dict(mask_mod=mask_function, aux_tensors=bounds, softmax_scale=self.case.softmax_scale)


class BandAttention(ListedAttention):
    def __init__(self, mask: Mask, case: Case, tuning: Tuning) -> None:
        super().__init__(case, tuning)
        self.forward_options = self._lower_forward(mask)
        if case.backward:
            self.backward_options = self._lower_backward(mask)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with self.cute.compiling(self.forward_options["mask_mod"]):
            return super().forward(q_LHD, k_LHD, v_LHD)

    def _lower_forward(self, mask: Mask) -> dict[str, Any]:
        case, tuning = self.case, self.tuning
        tile = tuning.forward_tile or forward_tile(case)
        packs = case.group > 1 and tile[0] % case.group == 0 and tuning.pack_gqa is not False
        lists, packed = forward_lists(mask, tile, case.group if packs else 1, tuning.packed_lists)
        options = self._intervals(mask, tile, last_tile_first=ends_heavier(lists) if tuning.heavy_first is None else tuning.heavy_first)
        options["block_sparse_tensors"] = self._lists(lists, tile, packed)
        return options | dict(pack_gqa=packs, tile_mn=tuning.forward_tile, intra_wg_overlap=tuning.overlap)

    def _lower_backward(self, mask: Mask) -> dict[str, Any]:
        case = self.case
        rows = self.tuning.backward_rows or backward_rows(case)
        chosen = self.library._tile_size_bwd_sm90(case.head_dim, case.head_dim_v, False, False, sparse_block_size_q=rows)
        tile = rows, chosen.n_block_size
        options = self._intervals(mask, tile, anchors_are_keys=chosen.SdP_swapAB)
        options["block_sparse_tensors"] = self._lists(mask.tiles(*tile).by_col(), tile, packed=False)
        return options

    def _lists(self, lists: TileLists, block_size: tuple[int, int], packed: bool) -> Any:
        index = descending(lists.partial_ptr, lists.partial_idx) if self.tuning.descending else lists.partial_idx
        partial = lower.padded(lists.partial_ptr, index, self.case.device)
        full = lower.padded(lists.full_ptr, lists.full_idx, self.case.device)  # must ascend: FA4 looks for the last keys at the end
        kind = self.cute.PackedTileLists if packed else self.cute.TileListTensors
        return kind(*(tensor[None, None] for tensor in (*partial, *full)), block_size=block_size)


def descending(ptr: NDArray[np.int32], index: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the lists of a CSR, each from its last entry to its first."""
    mirror = np.repeat(ptr[:-1] + ptr[1:] - 1, np.diff(ptr))
    return index[mirror - np.arange(len(index))]


def ends_heavier(lists: TileLists) -> bool:
    """Whether the last eighth of the lists is clearly longer than the first: begun first, it leaves no stragglers."""
    length = np.diff(lists.full_ptr) + np.diff(lists.partial_ptr)
    part = max(1, len(length) // 8)
    return bool(length[-part:].sum() > 1.5 * length[:part].sum())


def forward_tile(case: Case) -> tuple[int, int]:
    if case.head_dim == 192 and case.head_dim_v <= 128:
        return 128, 128
    return next(tile for size, tile in sorted(FORWARD_TILE.items()) if case.head_dim <= size)


def forward_lists(mask: Mask, tile: tuple[int, int], group: int, packed: bool | None) -> tuple[TileLists, bool]:
    """Returns tile lists by query, and whether there is one for each tile of packed heads.

    Such a tile holds only tile_m / group queries; a list of its own leaves out tiles that only its neighbours need.
    """
    tile_m, tile_n = tile
    coarse = mask.tiles(tile_m, tile_n)
    has_edges = coarse.partial > FEW_PARTIAL_TILES * (coarse.full + coarse.partial)
    if group > 1 and (packed or (packed is None and has_edges)):
        fine = mask.tiles(tile_m // group, tile_n).by_row()
        widest = max(int(np.diff(ptr).max(initial=0)) for ptr in (fine.full_ptr, fine.partial_ptr))
        if packed or widest * len(fine.full_ptr) <= LARGEST_LIST:
            return fine, True
    return coarse.by_row(), False


def backward_rows(case: Case) -> int:
    """Returns queries per tile, as the library's table for each head size allows; of the two at head size 128, 64 beat 80 on all masks."""
    return 128 if case.head_dim <= 64 else 64
