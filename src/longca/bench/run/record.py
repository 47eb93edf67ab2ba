"""Makes the record of a cell from its plan and its outcome."""

from __future__ import annotations

from msgspec.structs import asdict

from longca.bench.plan.cells import Planned
from longca.results import metrics
from longca.results.problem import Pass
from longca.results.record import SCHEMA, BuiltMask, Outcome, Record, Status

MEASURED = ("compile_ms", "timed", "memory", "energy", "over_ranks")  # exists only where something was measured


def make_record(planned: Planned, outcome: Outcome, environment: str) -> Record:
    cell, problem, mask = planned.cell, planned.cell.problem, planned.mask
    kernel, _, variant = cell.kernel.partition(":")
    fields = asdict(outcome)
    if outcome.status is not Status.OK:
        fields |= dict.fromkeys(MEASURED)
    fields["variant"] = outcome.variant or variant or None
    pairs = mask.area * problem.heads_q // problem.patterns
    return Record(
        **fields,
        schema=SCHEMA,
        key=planned.key,
        env=environment,
        level=cell.level,
        kernel=kernel,
        asked=cell.kernel,
        problem=problem,
        built=BuiltMask(mask.digest, mask.area, mask.seqlen_q, mask.seqlen_k, mask.params),
        flops=max(1, metrics.flops_of(pairs, problem.head_dim, problem.head_dim_v, problem.pass_)),
        versions=dict(planned.versions),
        split=cell.split,
        planned_grad=cell.grad and problem.pass_ is Pass.FWD,  # where the backward fails, `grad` is that of the forward alone
    )
