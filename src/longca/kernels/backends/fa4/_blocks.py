"""Block patterns in FlashAttention-4: blocks that are tiles need lists alone, one per head; a band mask on top cuts tiles, which are
then partial ones and masked by its intervals."""

from __future__ import annotations

from typing import Any

from longca.kernels.backends.fa4._bands import ListedAttention, backward_rows, forward_tile
from longca.kernels.base import Case
from longca.kernels.block_lists import tile_lists
from longca.masks import BlockMask


class BlockAttention(ListedAttention):
    def __init__(self, mask: BlockMask, case: Case) -> None:
        super().__init__(case)
        fine = any((edges[:-1] % 128).any() for edges in (mask.row_edges, mask.col_edges))
        tile = (64, 64) if fine else forward_tile(case)  # FA4 takes the tile that the lists are made for
        self.forward_options = self._options(mask, tile) | dict(pack_gqa=mask.heads == 1 and case.group > 1)
        if case.backward:
            rows = backward_rows(case)
            chosen = self.library._tile_size_bwd_sm90(case.head_dim, case.head_dim_v, False, False, sparse_block_size_q=rows)
            tile = rows, chosen.n_block_size
            self.backward_options = self._options(mask, tile, of_keys=True, anchors_are_keys=chosen.SdP_swapAB)
            if mask.band is None and mask.seqlen_k % tile[1] == 0:
                self.backward_options["aux_tensors"] = self.cute.no_bounds(case.device)

    def _options(self, mask: BlockMask, tile: tuple[int, int], of_keys: bool = False, anchors_are_keys: bool = False) -> dict[str, Any]:
        case = self.case
        lists = tile_lists(mask, case.device, tile, of_keys=of_keys)
        if mask.heads > 1:
            lists = [per_head.repeat_interleave(case.group, 0) for per_head in lists]
        tensors = self.cute.TileListTensors(*(tensor[None] for tensor in lists), block_size=tile)
        on_top = {} if mask.band is None else self._intervals(mask.band, tile, anchors_are_keys=anchors_are_keys)
        return on_top | dict(block_sparse_tensors=tensors, softmax_scale=case.softmax_scale)
