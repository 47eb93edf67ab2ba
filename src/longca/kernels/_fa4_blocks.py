"""Block patterns in FlashAttention-4: blocks that are tiles need lists alone, one per head; a band mask on top cuts tiles, which are
then partial ones and masked by its intervals."""

from __future__ import annotations

from typing import Any

from longca.kernels import lower
from longca.kernels._fa4_bands import ListedAttention, forward_tile
from longca.kernels.base import Case
from longca.masks import BlockMask
from longca.masks.tiles import TileLists


class BlockAttention(ListedAttention):
    def __init__(self, mask: BlockMask, case: Case) -> None:
        super().__init__(case)
        tile = forward_tile(case)
        self.forward_options = self._options(mask, mask.tiles(*tile).by_row(), tile) | dict(pack_gqa=mask.heads == 1 and case.group > 1)
        if case.backward:
            chosen = self.library._tile_size_bwd_sm90(case.head_dim, case.head_dim_v, False, False, sparse_block_size_q=tile[0])
            tile = tile[0], chosen.n_block_size
            self.backward_options = self._options(mask, mask.tiles(*tile).by_col(), tile, anchors_are_keys=chosen.SdP_swapAB)
            if mask.band is None and mask.seqlen_k % tile[1] == 0:
                self.backward_options["aux_tensors"] = self.cute.no_bounds(case.device)

    def _options(self, mask: BlockMask, lists: TileLists, tile: tuple[int, int], anchors_are_keys: bool = False) -> dict[str, Any]:
        case, tensors = self.case, []
        for ptr, index in ((lists.partial_ptr, lists.partial_idx), (lists.full_ptr, lists.full_idx)):
            for tensor in lower.padded(ptr, index, case.device):
                per_head = tensor.unflatten(0, (mask.heads, -1))
                tensors.append((per_head.repeat_interleave(case.group, 0) if mask.heads > 1 else per_head)[None])
        on_top = {} if mask.band is None else self._intervals(mask.band, tile, anchors_are_keys=anchors_are_keys)
        return on_top | dict(block_sparse_tensors=self.cute.TileListTensors(*tensors, block_size=tile), softmax_scale=case.softmax_scale)
