"""Makes the record of a cell from its plan and its outcome."""

from __future__ import annotations

from msgspec.structs import asdict

from longca import masks
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import Planned
from longca.results import metrics
from longca.results.record import SCHEMA, Given, Outcome, Pass, Record, Status

KNOWN_BEFORE = ("status", "reason", "variant", "backward_kind", "chose", "grad", "check", "build_ms", "plan_ms")  # kept where a cell failed
MEASURED = tuple(name for name in Outcome.__struct_fields__ if name not in KNOWN_BEFORE)  # exists only where something was measured


def make_record(planned: Planned, outcome: Outcome, environment: str) -> Record:
    cell, mask = planned.cell, planned.mask
    kernel, _, variant = cell.kernel.partition(":")
    fields = asdict(outcome)
    if outcome.status is not Status.OK:
        fields |= dict.fromkeys(MEASURED)
    fields["variant"] = outcome.variant or variant or None
    split = {} if cell.split is None else asdict(cell.split) | {"options": cell.split.options or None}
    return Record(
        **fields,
        **split,
        schema=SCHEMA,
        key=planned.key,
        env=environment,
        level=cell.level,
        kernel=kernel,
        asked=cell.kernel,
        mask=cell.mask,
        params=mask.params,
        source=cell.source if masks.has_blocks(cell.mask) else None,
        mask_digest=mask.digest,
        seed=cell.seed,
        seqlen=cell.seqlen,
        seqlen_q=mask.seqlen_q,
        seqlen_k=mask.seqlen_k,
        heads_q=cell.heads_q,
        heads_kv=cell.heads_kv,
        head_dim=cell.head_dim,
        head_dim_v=cell.head_dim_v,
        dtype=cell.dtype,
        deterministic=cell.deterministic,
        softcap=cell.softcap,
        sinks=cell.sinks,
        scale=cell.scale,
        pass_=cell.pass_,
        given=given(cell),
        area=mask.area,
        flops=max(1, metrics.flops_of(mask.area * cell.heads_q // cell.patterns, cell.head_dim, cell.head_dim_v, cell.pass_)),
        versions=dict(planned.versions),
    )


def given(cell: Cell) -> Given:
    """What was asked for and no other field says."""
    return Given(
        params=dict(cell.params),
        distribution=cell.distribution,
        packing=cell.packing,
        documents=cell.documents is not None,
        grad=cell.grad and cell.pass_ is Pass.FWD,  # where the backward fails, the record's own `grad` is that of the forward alone
    )
