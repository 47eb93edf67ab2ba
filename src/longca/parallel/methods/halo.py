"""halo: contiguous tokens, and every rank gets the keys next to its own that its rows see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longca.kernels.base import Answer, Case, No
from longca.masks import AnyMask, Mask
from longca.parallel.grid import Grid
from longca.parallel.method import Method, Plan
from longca.parallel.options import STAGES
from longca.parallel.ranges import Shards, count, joined, seen_keys
from longca.parallel.sharding import contiguous

if TYPE_CHECKING:
    from longca.parallel.comm.base import Comm
    from longca.parallel.primitives.program import Program


class Halo(Method):
    name = "halo"
    about = "contiguous tokens; each rank receives the neighbouring keys that its rows see and returns their gradients"
    needs = "a local mask, such as a sliding window or documents: no rank may see the keys of all others"
    order = 70
    takes_sinks = True
    takes_every_mask = False
    options = (STAGES,)
    no_blocks = "it sends each rank the keys next to its own, and scattered blocks are not that"

    def supports(self, mask: AnyMask, case: Case, ranks: int, grid: Grid) -> Answer:
        answer = super().supports(mask, case, ranks, grid)
        if isinstance(answer, No) or not isinstance(mask, Mask):
            return answer
        for rank, shard in enumerate(self.shards(mask, grid)):
            held = count(joined(np.concatenate([shard, seen_keys(mask, shard)])))
            if count(shard) < held == mask.seqlen_k:
                return No(f"the rows of rank {rank} see the keys of all other ranks under this mask; use magi, ring_p2p or ring_allgather")
        return answer

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        return contiguous(mask.seqlen_q, grid.ranks)

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.primitives.group_cast import GroupCast

        assert isinstance(plan.mask, Mask)  # block patterns are refused
        return GroupCast(plan.local_kernel(comm), comm, plan.mask, plan.shards, (0, plan.case.heads_q), plan.options["stages"])
