"""What is refused before ranks start: plans that cannot be made, calls that the kernel cannot do, and too little memory on the GPUs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from longca import devices
from longca.bench.many_devices.grids import plan_of
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import mask_of
from longca.errors import Refused, Unavailable
from longca.kernels.base import BYTES
from longca.parallel.method import Plan
from longca.parallel.ranges import count
from longca.results.metrics import GIB

if TYPE_CHECKING:
    from longca.parallel.recording import RankProgram

MOST_RANKS = 8  # whose programs are recorded: of many ranks, the one with the most tokens and some others


@lru_cache(maxsize=4096)
def refusal_of(job: Cell, dry: bool = False) -> Refused | Unavailable | None:
    """Why no rank is asked to do a job; None where they are. A dry run asks for the plan alone, without torch."""
    try:
        plan = plan_of(job, mask_of(job.problem), job.grad)
        own = type(plan.method).__module__.startswith("longca.")  # others may do anything, and their ranks have deadlines
        if own and not (dry or plan.method.peer):
            _refuse(job, plan)
    except (Refused, Unavailable) as error:
        return error
    return None


def _refuse(job: Cell, plan: Plan) -> None:
    from longca.parallel.kernel_requirements import refuse_calls
    from longca.parallel.recording import distinct_calls

    programs = recorded(plan)
    refuse_calls(plan, distinct_calls(programs))
    sharing = job.problem.sharing
    memory = _gpu_bytes(sharing.ranks if sharing else 1) if job.device == "cuda" else None
    if memory is not None and (needed := least_bytes(plan, programs)) > memory:
        problem = job.problem
        raise Refused(
            f"{plan.method.name} on {problem.mask} with {problem.seqlen} tokens and {problem.heads_q}:{problem.heads_kv} heads "
            f"over {plan.ranks} ranks needs at least {needed / GIB:.1f} GiB on a GPU, and these have {memory / GIB:.1f} GiB; "
            "use shorter --seqlens or GPUs with more memory."
        )


def recorded(plan: Plan) -> list[RankProgram]:
    """The programs of the rank with the most tokens and of some others; ranks that do the same on other heads count once."""
    from longca.parallel.recording import record, twin_of

    twins = list(dict.fromkeys(twin_of(plan, rank) for rank in range(plan.ranks)))
    most = max(twins, key=lambda rank: count(plan.shards[rank]))
    return [record(plan, rank) for rank in dict.fromkeys([most, *twins[:: -(-len(twins) // MOST_RANKS)], twins[-1]])]


def least_bytes(plan: Plan, programs: list[RankProgram]) -> int:
    """Whichever is more: all that a rank's program holds at once, inputs, results and gradients included, or the inputs of a rank and all
    tokens, from which the first rank makes the reference of the check. What a kernel itself takes for its work comes on top."""
    case = plan.case
    token = (case.heads_q + case.heads_kv) * (case.head_dim + case.head_dim_v) * BYTES[case.dtype]  # q, k, v, dout
    return max(max(program.peak for program in programs), token * (max(map(count, plan.shards)) + case.seqlen_q))


def _gpu_bytes(ranks: int) -> int | None:
    """Of the smallest GPU the part of one of its ranks; None where there is none, or it does not say."""
    found = [gpu["memory.total"] for gpu in devices.gpus()]
    return (min(int(mib) for mib in found) << 20) // ranks if found and all(mib.isdecimal() for mib in found) else None
