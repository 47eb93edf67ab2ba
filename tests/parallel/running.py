"""Running a method on ranks that are threads, and what a single rank in fp64 says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from longca import masks
from longca.bench.check import reference as references
from longca.bench.check.comparison import compare
from longca.bench.check.verdict import Verdict
from longca.errors import Refused
from longca.kernels import inputs
from longca.kernels import registry as kernels
from longca.kernels.base import Case, Layout
from longca.kernels.inputs import Inputs
from longca.masks import AnyMask, Mask
from longca.parallel import registry
from longca.parallel.comm.local import World
from longca.parallel.comm.trace import Event, TraceComm
from longca.parallel.grid import Grid
from longca.parallel.method import Plan, make_plan
from longca.parallel.primitives.program import Program
from longca.parallel.ranges import tokens
from longca.parallel.recording import record

SETTINGS: dict[str, dict[str, int]] = {
    "sliding_window": {"w": 37},
    "sliding_window_causal": {"w": 37},
    "global_sliding_window": {"g": 19, "w": 23},
    "block_causal_document": {"B": 16},
}
DOCUMENTS = (53, 1, 97, 2, 3, 41)  # that divide by nothing


class Results(NamedTuple):
    """Of all ranks together, or of one. What was not computed is None: gradients of a forward alone, dsinks without sinks."""

    out: torch.Tensor
    lse: torch.Tensor
    dq: torch.Tensor = None  # type: ignore[assignment]
    dk: torch.Tensor = None  # type: ignore[assignment]
    dv: torch.Tensor = None  # type: ignore[assignment]
    dsinks: torch.Tensor = None  # type: ignore[assignment]


@lru_cache(maxsize=64)
def mask_of(name: str, seqlen: int = 197) -> Mask:
    pattern = masks.PATTERNS[name]
    documents = (*DOCUMENTS[:-1], seqlen - sum(DOCUMENTS[:-1])) if pattern.has_documents and pattern.own_lengths is None else None
    return pattern(seqlen, seed=3, documents=documents, **SETTINGS.get(name, {}))


def case_of(
    seqlen: int, heads: tuple[int, int] = (4, 2), dtype: str = "fp32", head_dim: int = 8, head_dim_v: int = 0, device: str = "cpu"
) -> Case:
    return Case(seqlen, seqlen, *heads, head_dim, head_dim_v or head_dim, dtype, device, partial_backward=True)


@lru_cache(maxsize=64)
def reference(mask: AnyMask, case: Case) -> Results:
    """One rank, fp64, of the same (rounded) numbers."""
    data = inputs.make(case)
    attention = kernels.get("torch:chunked").prepare(mask, replace(case, dtype="fp64", backward=True))
    q, k, v, dout = (x.double() for x in data)
    if data.sinks is None:
        out, lse = attention.forward(q, k, v)
        assert lse is not None
        return Results(out, lse, *attention.backward(dout, q, k, v, out, lse))
    sinks = data.sinks.double()
    out, lse = attention.forward_with_sinks(q, k, v, sinks)
    return Results(out, lse, *attention.backward_with_sinks(dout, q, k, v, out, lse, sinks))


STATIC = [name for name in registry.names() if not registry.get(name).takes_blocks_alone]  # methods that take static masks
InputsOf = Callable[[Case, list[tuple[int, int]], Any], Sequence[torch.Tensor]]  # (case, a rank's tokens, memory order) -> q, k, v, dout


def plain_inputs(case: Case, ranges: list[tuple[int, int]], layout: Any) -> Sequence[torch.Tensor]:
    return [inputs.tokens(which, case, ranges, 0, layout) for which in ("q", "k", "v", "dout")]


def own_tokens(plan: Plan, rank: int) -> torch.Tensor:
    """The numbers of a rank's tokens in the whole sequence."""
    return torch.from_numpy(tokens(plan.rows(rank)))


def step(program: Program, plan: Plan, rank: int, layout: Any, inputs_of: InputsOf = plain_inputs) -> tuple[torch.Tensor, ...]:
    """Forward and, where the case has one, backward of one rank on its own tokens."""
    q, k, v, dout = inputs_of(plan.case, [(int(first), int(last)) for first, last in plan.rows(rank)], layout)
    out, kept = program.forward(q, k, v, inputs.make_sinks(plan.case))
    assert not out.requires_grad
    return out, kept.lse, *(program.backward(dout, kept) if plan.case.backward else ())  # type: ignore[return-value]


def assemble(plan: Plan, programs: list[Program], parts: list[tuple[torch.Tensor, ...]]) -> Results:
    """The ranks' rows put together."""
    case, whole = plan.case, dict[str, torch.Tensor]()
    for rank, (program, (out, lse, *gradients)) in enumerate(zip(programs, parts, strict=True)):
        own = own_tokens(plan, rank)
        names = ("out", "dq", "dk", "dv") if case.backward else ("out",)
        for name, part in zip(names, (out, *gradients[:3]), strict=True):
            assert part.dtype == inputs.DTYPES[case.dtype]
            whole.setdefault(name, _unknown(case.seqlen_q, *part.shape[1:]))[own] = part.double().cpu()
        if lse is not None:
            rows = torch.from_numpy(tokens(program.rows))
            whole.setdefault("lse", _unknown(case.heads_q, case.seqlen_q))[slice(*program.heads), rows] = lse.double().cpu()
        if case.sinks and gradients:
            whole.setdefault("dsinks", torch.zeros(case.heads_q, dtype=torch.float64))[slice(*program.heads)] += gradients[3]
    return Results(**{"lse": None} | whole)  # type: ignore[arg-type]


def _unknown(*shape: int) -> torch.Tensor:
    return torch.full(shape, float("nan"), dtype=torch.float64)


def plan_of(method: str, mask: AnyMask, case: Case, ranks: int, grid: str = "", kernel: str = "torch:chunked", **more: Any) -> Plan:
    return make_plan(registry.get(method), mask, case, ranks, Grid.parse(grid) if grid else None, kernel, **more)


def plan_if_taken(method: str, mask: AnyMask, case: Case, ranks: int, grid: str = "", **more: Any) -> Plan | None:
    """The plan, or None where a method that does not take every mask refuses this one and says what to use."""
    try:
        return plan_of(method, mask, case, ranks, grid, **more)
    except Refused as refused:
        reason, advice = str(refused).split("; ", 1)
        if registry.get(method).takes_every_mask or not reason.startswith(f"{method} cannot do this: ") or not advice.startswith("use "):
            raise
        return None


def run_local(plan: Plan, inputs_of: InputsOf = plain_inputs) -> Results:
    world = World(plan.ranks, plan.case.device)
    programs = [plan.program(comm) for comm in world.comms()]
    layout = kernels.choices(plan.kernel)[0].layout
    parts = world.run(lambda rank: step(programs[rank], plan, rank, layout, inputs_of))
    return assemble(plan, programs, parts)


@lru_cache(maxsize=64)
def known(mask: AnyMask, case: Case) -> references.Reference:
    return references.reference(mask, case, seed=0)


def verdict_of(plan: Plan, right: AnyMask | None = None) -> Verdict:
    """All ranks' results put together, both data sets, by the rule that comes before every clock; under the mask that is right."""
    truth, verdict = known(right or plan.mask, plan.case), Verdict()
    for data_set in references.DATA_SETS:

        def inputs_of(case: Case, own: list[tuple[int, int]], layout: Layout, data_set: str = data_set) -> Inputs:
            return references.data(case, truth.sampled, data_set, 0, layout, own)

        compare({name: x for name, x in run_local(plan, inputs_of)._asdict().items() if x is not None}, truth, data_set, plan.case, verdict)
    return verdict


def trace(plan: Plan, rank: int) -> TraceComm:
    """One rank's forward and backward, with what its buffers were: `recording.record` has the events alone."""
    comm = TraceComm(rank, plan.ranks)

    def shapes(case: Case, own: list[tuple[int, int]], layout: Any) -> list[torch.Tensor]:
        return [comm.empty(x.shape, x.dtype) for x in plain_inputs(case, own, layout)]

    step(plan.program(comm), plan, rank, "LHD", shapes)
    return comm


def sent(events: Sequence[Event]) -> int:
    return sum(event.bytes for event in events if event.kind == "post")


def sent_both_ways(plan: Plan, unit: int = 1) -> list[tuple[int, int]]:
    """Bytes, or units of so many, that each rank sends forward and backward."""
    programs = [record(plan, rank) for rank in range(plan.ranks)]
    assert all(sent(program.forward) + sent(program.backward) == program.sent_bytes for program in programs)
    return [(sent(program.forward) // unit, sent(program.backward) // unit) for program in programs]


def rms(error: torch.Tensor) -> float:
    return float(error.double().pow(2).mean().sqrt())


def assert_right(results: Results, exact: Results, tolerance: float = 2e-5) -> None:
    """Every value near the fp64 one, relative to the largest; rows that see nothing exactly 0 and -inf."""
    for name, got, wanted in zip(Results._fields, results, exact, strict=True):
        if got is None:
            continue
        blind = torch.isneginf(wanted)
        assert torch.equal(torch.isneginf(got), blind), f"{name}: -inf in other places"
        got, wanted = got.masked_fill(blind, 0), wanted.masked_fill(blind, 0)
        worst = float((got - wanted).abs().max())
        assert worst <= tolerance * max(1.0, float(wanted.abs().max())), f"{name} is off by {worst}"
    unseen = torch.isneginf(exact.lse).T.unsqueeze(-1)
    for part in (results.out, results.dq):
        assert part is None or (part.masked_select(unseen) == 0).all()
