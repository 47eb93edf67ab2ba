"""How other projects give tokens to ranks, as methods: their shards, with LongCA's transfers of the same kind."""

from __future__ import annotations

import numpy as np

from longca.kernels.base import Answer, Case, No
from longca.masks import AnyMask, Mask
from longca.parallel.cuts import TILE
from longca.parallel.grid import Grid
from longca.parallel.method import Plan
from longca.parallel.methods.ring_allgather import RingAllgather
from longca.parallel.methods.ring_p2p import RingP2P
from longca.parallel.ranges import Shards, as_array, joined, part
from longca.parallel.sharding import contiguous, zigzag_documents

NO_BLOCKS = "it takes static masks, not block patterns"


class TorchHeadTail(RingAllgather):
    name = "torch_head_tail"
    about = "shards of torch's head-tail balancer: the r-th chunk of 2R from the front and from behind; K and V by all-gather"
    order, balancer, no_blocks = 300, True, NO_BLOCKS

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return zigzag_documents(np.array([0]), np.array([mask.seqlen_q]), grid.ranks)


class TorchPerDocument(RingAllgather):
    name = "torch_per_document"
    about = "shards of torch's per-document balancer: chunks are reordered inside documents, and the whole is cut; K and V by all-gather"
    order, balancer, no_blocks = 300, True, NO_BLOCKS

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        """Each document's chunks stand as head-tail orders them, document after document; so a rank still gets neighbouring documents."""
        lengths, chunks = np.asarray(mask.documents or (mask.seqlen_q,)), 2 * grid.ranks
        edges = (np.cumsum(lengths) - lengths)[:, None] + lengths[:, None] * np.arange(chunks + 1) // chunks
        order = np.stack([np.arange(grid.ranks), chunks - 1 - np.arange(grid.ranks)], 1).ravel()
        reordered = as_array(np.stack([edges[:, order], edges[:, order + 1]], 2).reshape(-1, 2))
        cuts = [mask.seqlen_q * rank // grid.ranks for rank in range(grid.ranks + 1)]
        return tuple(joined(part(reordered, cuts[rank], cuts[rank + 1])) for rank in range(grid.ranks))

    def describe(self, plan: Plan) -> list[str]:
        return padding(plan)


class TorchPtrr(RingAllgather):
    name = "torch_ptrr"
    about = "shards of torch's PTRR balancer: blocks of 128 rows, sorted by visible key blocks and dealt to and fro; K and V by all-gather"
    order, balancer, no_blocks = 300, True, NO_BLOCKS

    def supports(self, mask: AnyMask, case: Case, ranks: int, grid: Grid) -> Answer:
        least = TILE * (ranks - 1) + 1
        if mask.seqlen_q < least:
            return No(f"it gives each of {ranks} ranks a block of {TILE} rows, which takes {least} tokens or more; use torch_head_tail")
        return super().supports(mask, case, ranks, grid)

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        assert isinstance(mask, Mask)  # block patterns are refused
        starts = np.arange(0, mask.seqlen_q, TILE)
        blocks = np.stack([starts, np.minimum(starts + TILE, mask.seqlen_q)], 1)
        runs = mask.tiles(TILE, TILE).runs
        order = np.argsort(-np.bincount(runs.row, runs.end - runs.start, len(blocks)), kind="stable")
        turn, place = np.divmod(np.arange(len(order)), grid.ranks)
        owner = np.where(turn % 2, grid.ranks - 1 - place, place)
        return tuple(joined(as_array(blocks[np.sort(order[owner == rank])])) for rank in range(grid.ranks))


class RingFlashLlama3(RingAllgather):
    name = "ring_flash_llama3"
    about = "shards of ring-flash-attn's llama3_flash_attn_varlen: equal contiguous parts; K and V by all-gather"
    order, balancer, no_blocks = 300, True, NO_BLOCKS

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return contiguous(mask.seqlen_q, grid.ranks)


class RingFlashZigzag(RingP2P):
    name = "ring_flash_zigzag"
    about = "shards of ring-flash-attn's zigzag_ring_flash_attn_varlen: each document in 2R chunks; K and V travel a ring"
    order, balancer = 300, True

    def describe(self, plan: Plan) -> list[str]:
        return padding(plan)


class MegatronP2P(RingP2P):
    name = "megatron_p2p"
    about = "shards of Megatron's context parallelism (THD, cp_comm_type p2p): each document in 2R chunks; K and V travel a ring"
    order, balancer = 300, True

    def describe(self, plan: Plan) -> list[str]:
        return padding(plan)


def padding(plan: Plan) -> list[str]:
    """What the original adds to documents that do not divide, which is not counted here."""
    lengths, multiple = np.asarray(plan.mask.documents or (plan.mask.seqlen_q,)), 2 * plan.ranks
    more = int((-lengths % multiple).sum())
    return [f"the original pads documents to multiples of {multiple}: {more / plan.mask.seqlen_q:.1%} more tokens"] if more else []
