"""The least GPU memory that a cell over many ranks needs, known before anything is started."""

from __future__ import annotations

from functools import lru_cache

from longca import devices, masks
from longca.bench.plan.cell import Cell
from longca.errors import Refused
from longca.kernels.base import BYTES, Case
from longca.parallel.method import Method, Plan, make_plan
from longca.parallel.ranges import count
from longca.results.metrics import GIB


def refuse_what_does_not_fit(cell: Cell, plan: Plan) -> None:
    """Raises Refused with the estimate. What a kernel itself takes for its work comes on top and is not known here; of other projects'
    methods nothing is."""
    memory = _gpu_bytes()
    if memory is None or plan.method.peer:
        return
    plan_key = (plan.case, plan.ranks, str(plan.grid), plan.kernel, tuple(plan.options.items()))
    if _is_even(plan) and _under_a_full_mask(type(plan.method), *plan_key) <= memory:
        return
    needed = least_bytes(plan)
    if needed > memory:
        problem = cell.problem
        shape = f"{problem.seqlen} tokens and {problem.heads_q}:{problem.heads_kv} heads"
        raise Refused(
            f"{plan.method.name} on {problem.mask} with {shape} over {plan.ranks} ranks "
            f"needs at least {needed / GIB:.1f} GiB on a GPU, and these have {memory / GIB:.1f} GiB; "
            "use shorter --seqlens or GPUs with more memory."
        )


def least_bytes(plan: Plan) -> int:
    """Whichever is more of the rank with the most tokens: all that its program holds at once, inputs, results and gradients included,
    or its inputs and all tokens, from which the first rank makes the reference of the check."""
    from longca.parallel.recording import record

    case = plan.case
    rank = max(range(plan.ranks), key=lambda rank: count(plan.shards[rank]))
    token = (case.heads_q + case.heads_kv) * (case.head_dim + case.head_dim_v) * BYTES[case.dtype]  # q, k, v, dout
    return max(record(plan, rank).peak, token * (count(plan.shards[rank]) + case.seqlen_q))


def _is_even(plan: Plan) -> bool:
    """Whether no rank has more tokens than under a full mask; a method that refuses that one is asked about each mask."""
    return plan.method.takes_every_mask and max(map(count, plan.shards)) <= 1.01 * plan.case.seqlen_q / plan.ranks + 2


@lru_cache(maxsize=256)
def _under_a_full_mask(method: type[Method], case: Case, ranks: int, grid: str, kernel: str, options: tuple[tuple[str, int], ...]) -> int:
    """No mask needs more than this one where tokens are even, and it is the same for all masks of a suite."""
    from longca.parallel.grid import Grid

    return least_bytes(make_plan(method(), masks.full(case.seqlen_q), case, ranks, Grid.parse(grid), kernel, options=dict(options)))


def _gpu_bytes() -> int | None:
    """Of the smallest GPU; None where there is none, or it does not say."""
    found = [gpu["memory.total"] for gpu in devices.gpus()]
    return min(int(mib) for mib in found) << 20 if found and all(mib.isdecimal() for mib in found) else None
