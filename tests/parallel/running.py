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
from longca.parallel.comm.trace import TraceComm
from longca.parallel.grid import Grid
from longca.parallel.method import Plan, make_plan
from longca.parallel.primitives.program import Program
from longca.parallel.ranges import tokens

SETTINGS: dict[str, dict[str, int]] = {
    "sliding_window": {"w": 37},
    "sliding_window_causal": {"w": 37},
    "global_sliding_window": {"g": 19, "w": 23},
    "block_causal_document": {"B": 16},
}
DOCUMENTS = (53, 1, 97, 2, 3, 41)  # that divide by nothing


class Results(NamedTuple):
    out: torch.Tensor
    lse: torch.Tensor
    dq: torch.Tensor
    dk: torch.Tensor
    dv: torch.Tensor


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
    exact = replace(case, dtype="fp64")
    attention = kernels.get("torch:chunked").prepare(mask, exact)
    q, k, v, dout = (x.double() for x in data)
    out, lse = attention.forward(q, k, v)
    assert lse is not None
    return Results(out, lse, *attention.backward(dout, q, k, v, out, lse))


STATIC = [name for name in registry.names() if not registry.get(name).takes_blocks_alone]  # methods that take static masks
InputsOf = Callable[[Case, list[tuple[int, int]], Any], Sequence[torch.Tensor]]  # (case, a rank's tokens, memory order) -> q, k, v, dout


def plain_inputs(case: Case, ranges: list[tuple[int, int]], layout: Any) -> Sequence[torch.Tensor]:
    return [inputs.tokens(which, case, ranges, 0, layout) for which in ("q", "k", "v", "dout")]


def step(program: Program, plan: Plan, rank: int, layout: Any, inputs_of: InputsOf = plain_inputs) -> tuple[torch.Tensor, ...]:
    """Forward and backward of one rank on its own tokens."""
    q, k, v, dout = inputs_of(plan.case, [(int(first), int(last)) for first, last in plan.rows(rank)], layout)
    out, kept = program.forward(q, k, v)
    return out, kept.lse, *program.backward(dout, kept)


def assemble(plan: Plan, programs: list[Program], parts: list[tuple[torch.Tensor, ...]]) -> Results:
    """The ranks' rows put together."""
    case = plan.case
    like = {"out": (case.heads_q, case.head_dim_v), "dq": (case.heads_q, case.head_dim), "dk": (case.heads_kv, case.head_dim)}
    like["dv"] = (case.heads_kv, case.head_dim_v)
    whole = {name: torch.full((case.seqlen_q, *shape), float("nan"), dtype=torch.float64) for name, shape in like.items()}
    lse = torch.full((case.heads_q, case.seqlen_q), float("nan"), dtype=torch.float64)
    for rank, (out, lse_part, *grads) in enumerate(parts):
        own = torch.from_numpy(tokens(plan.rows(rank)))
        for name, part in zip(("out", "dq", "dk", "dv"), (out, *grads), strict=True):
            assert part.dtype == inputs.DTYPES[case.dtype]
            whole[name][own] = part.double().cpu()
        rows = torch.from_numpy(tokens(programs[rank].rows))
        lse[slice(*programs[rank].heads), rows] = lse_part.double().cpu()
    return Results(whole["out"], lse, whole["dq"], whole["dk"], whole["dv"])


def plan_of(method: str, mask: AnyMask, case: Case, ranks: int, grid: str = "", kernel: str = "torch:chunked", **more: Any) -> Plan:
    return make_plan(registry.get(method), mask, case, ranks, Grid.parse(grid) if grid else None, kernel, **more)


def plan_if_taken(method: str, mask: AnyMask, case: Case, ranks: int, grid: str = "", kernel: str = "torch:chunked") -> Plan | None:
    """The plan, or None where a method that does not take every mask refuses this one and says what to use."""
    try:
        return plan_of(method, mask, case, ranks, grid, kernel)
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

        compare(run_local(plan, inputs_of)._asdict(), truth, data_set, plan.case, verdict)
    return verdict


def trace(plan: Plan, rank: int) -> tuple[TraceComm, int]:
    """The recording of one rank's forward and backward, and at which event backward begins."""
    comm = TraceComm(rank, plan.ranks, own_collectives=plan.case.device == "cuda")
    program = plan.program(comm)
    case, length = plan.case, len(tokens(plan.rows(rank)))
    dtype = inputs.DTYPES[case.dtype]
    shapes = [
        (case.heads_q, case.head_dim),
        (case.heads_kv, case.head_dim),
        (case.heads_kv, case.head_dim_v),
        (case.heads_q, case.head_dim_v),
    ]
    q, k, v, dout = (comm.empty((length, *shape), dtype) for shape in shapes)
    _, kept = program.forward(q, k, v)
    turn = len(comm.events)
    program.backward(dout, kept)
    return comm, turn


def rms(error: torch.Tensor) -> float:
    return float(error.double().pow(2).mean().sqrt())


def assert_right(results: Results, exact: Results, tolerance: float = 2e-5) -> None:
    """Every value near the fp64 one, relative to the largest; rows that see nothing exactly 0 and -inf."""
    for name, got, wanted in zip(Results._fields, results, exact, strict=True):
        blind = torch.isneginf(wanted)
        assert torch.equal(torch.isneginf(got), blind), f"{name}: -inf in other places"
        got, wanted = got.masked_fill(blind, 0), wanted.masked_fill(blind, 0)
        worst = float((got - wanted).abs().max())
        assert worst <= tolerance * max(1.0, float(wanted.abs().max())), f"{name} is off by {worst}"
    unseen = torch.isneginf(exact.lse).T.unsqueeze(-1)
    assert (results.out.masked_select(unseen) == 0).all()
    assert (results.dq.masked_select(unseen) == 0).all()
