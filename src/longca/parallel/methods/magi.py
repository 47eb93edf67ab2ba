"""magi: equal tokens and even work for every rank, and every rank receives exactly the keys that its rows see, between nodes by relays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from longca.masks import AnyMask, Mask
from longca.parallel.balance import balanced, balanced_for, row_work
from longca.parallel.grid import Grid
from longca.parallel.method import Method, Plan
from longca.parallel.options import NODE, STAGES
from longca.parallel.ranges import Shards

if TYPE_CHECKING:
    from longca.parallel.comm.base import Comm
    from longca.parallel.primitives.program import Program


GROUP_FOR_ONE_CALL = 4  # query heads of a KV head, from which on simulations of one node favour one call over all keys


class Magi(Method):
    name = "magi"
    about = "tokens and work even; each rank receives the keys its rows see and returns their gradients, in stages, between nodes by relays"
    needs = "nothing of heads; any number of ranks"
    order = 60
    options = (STAGES, NODE)
    takes_sinks = True
    no_blocks = "it sends each rank the keys that its rows see as a few ranges, and scattered blocks are not that"

    def default_options(self, group: int, ranks: int, ranks_per_node: int) -> dict[str, int]:
        if ranks <= ranks_per_node:  # links are so fast that keys of a few KV heads come in less time than a merge of results takes
            return {STAGES.name: 0 if group >= GROUP_FOR_ONE_CALL else 1}
        return super().default_options(group, ranks, ranks_per_node)

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        assert isinstance(mask, Mask)  # block patterns are refused
        return balanced_for(mask, grid.ranks)

    def partition(self, masks: Sequence[tuple[AnyMask, int]], grid: Grid) -> Shards:
        """Balances the work of all layers together; which transfers are few is decided by the mask with the most work."""
        bands = [(mask, layers) for mask, layers in masks if isinstance(mask, Mask)]
        heaviest, _ = max(bands, key=lambda entry: entry[1] * entry[0].area)
        return balanced(heaviest, grid.ranks, work=np.sum([layers * row_work(mask) for mask, layers in bands], axis=0))

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.primitives.group_cast import GroupCast

        assert isinstance(plan.mask, Mask)  # block patterns are refused
        heads, options = (0, plan.case.heads_q), plan.options
        return GroupCast(plan.local_kernel(comm), comm, plan.mask, plan.shards, heads, options["stages"], options["node"])
