"""hybrid_dcp: every document on as many ranks as its work needs, a ring inside each group of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from longca.masks import AnyMask, Mask
from longca.parallel.document_groups import Group, groups_of
from longca.parallel.grid import Grid
from longca.parallel.method import IN_STEPS, Method, Plan
from longca.parallel.ranges import Shards, as_array, count, joined
from longca.text import plural

if TYPE_CHECKING:
    from longca.parallel.comm.base import Comm
    from longca.parallel.primitives.program import Program


class HybridDcp(Method):
    name = "hybrid_dcp"
    about = "short documents on one rank alone, long ones on groups of 2, 4, 8, ... or all ranks with a ring inside; groups in rounds"
    needs = "nothing of heads; without documents it is one ring"
    order = 65
    takes_sinks = True
    no_blocks = IN_STEPS
    takes_any_shards = False

    def shards(self, mask: AnyMask, grid: Grid) -> Shards:
        assert isinstance(mask, Mask)  # block patterns are refused
        groups = groups_of(mask, grid.ranks)
        owned = [[group.shards[rank - group.first] for group in groups if rank in group.ranks] for rank in range(grid.ranks)]
        return tuple(joined(np.concatenate([as_array([]), *shards])) for shards in owned)

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.primitives.in_turn import InTurn
        from longca.parallel.primitives.local import Local
        from longca.parallel.primitives.ring import Ring

        assert isinstance(plan.mask, Mask)
        kernel, heads = plan.local_kernel(comm), (0, plan.case.heads_q)
        programs: list[Program] = []
        for group in groups_of(plan.mask, plan.ranks):
            if comm.rank in group.ranks and group.size > 1:
                programs.append(Ring(kernel, comm.sub(group.ranks), plan.mask, group.shards, heads))
            elif comm.rank in group.ranks:
                programs.append(Local(kernel, plan.mask, group.shards[0], heads))
        return programs[0] if len(programs) == 1 else InTurn(programs, kernel, comm, plan.rows(comm.rank), heads)

    def describe(self, plan: Plan) -> list[str]:
        assert isinstance(plan.mask, Mask)
        groups = groups_of(plan.mask, plan.ranks)
        if len(groups) == 1:
            return []
        lines = [f"ranks {group.first} to {group.ranks[-1]}: {_size([group])}" for group in groups if group.size > 1]
        alone = [group for group in groups if group.size == 1]
        return lines + ([f"one rank each: {_size(alone)}"] if alone else [])


def _size(groups: Sequence[Group]) -> str:
    documents = sum(len(group.documents) for group in groups)
    return f"{plural(documents, 'document')}, {sum(count(shard) for group in groups for shard in group.shards)} tokens"
