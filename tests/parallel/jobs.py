"""What tests have the ranks of a pool do."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import pytest
import torch

from longca.kernels import block_selection
from longca.kernels import registry as kernels
from longca.kernels.block_selection import Heads
from longca.parallel import registry
from longca.parallel.comm.base import Comm
from longca.parallel.comm.distributed import TorchComm
from longca.parallel.comm.links import Link
from longca.parallel.recording import record
from parallel.running import case_of, mask_of, own_tokens, plan_of, reference, step

SMALL: dict[str, dict[str, Any]] = {"uniform_block": {"b": 8, "top": 3}, "variable_block": {"avg": 20, "least": 7, "ratio": 0.2}}


def worst_error(
    comm: TorchComm,
    method: str,
    mask: str,
    seqlen: int,
    heads: list[int],
    grid: str,
    kernel: str = "torch:chunked",
    dtype: str = "fp32",
    allow_fp32: bool = False,
    own: bool = False,
    options: dict[str, int] | None = None,
    source: str = "",
) -> dict[str, Any]:
    """Run a method on real ranks; each compares its own rows with the fp64 reference. `allow_fp32`: also where a peer refuses it.
    `own`: with the backend's own collectives. `source` is that of a block pattern."""
    comm = TorchComm(comm.group, own_collectives=True) if own else comm
    case = case_of(seqlen, (heads[0], heads[1]), dtype, device=comm.device.type)
    cut = block_selection.build(mask, seqlen, source, Heads(*heads, 8), heads=heads[1], **SMALL[mask]) if source else mask_of(mask, seqlen)
    with pytest.MonkeyPatch.context() as patch:
        if allow_fp32:
            patch.setattr(registry.classes()[method], "wrong_in_fp32", "")
        plan = plan_of(method, cut, case, comm.size, grid, kernel, options=options)
    program = plan.program(comm)
    comm.traffic.reset()
    out, _, *grads = step(program, plan, comm.rank, kernels.choices(kernel)[0].layout)
    own, exact = own_tokens(plan, comm.rank), reference(cut, case)
    wanted = [x[own] for x in (exact.out, exact.dq, exact.dk, exact.dv)]
    errors = [float((got.double() - want).abs().max() / want.abs().max()) for got, want in zip((out, *grads), wanted, strict=True)]
    return {"error": max(errors), "sent": comm.traffic.sent_bytes}


def collectives(comm: Comm) -> list[list[float]]:
    """Uneven all-gather, all-to-all and reduce-scatter: rank r has r+1 numbers."""
    mine = torch.full((comm.rank + 1,), float(comm.rank))
    gathered = [torch.empty(rank + 1) for rank in range(comm.size)]
    comm.all_gather([mine], [[x] for x in gathered]).wait()
    swapped = [torch.empty(comm.rank + 1) for _ in range(comm.size)]
    comm.all_to_all([[torch.full((rank + 1,), 10.0 * comm.rank + rank)] for rank in range(comm.size)], [[x] for x in swapped]).wait()
    total = torch.empty(comm.rank + 1)
    comm.reduce_scatter([[torch.full((rank + 1,), float(rank))] for rank in range(comm.size)], [total]).wait()
    comm.barrier()
    return [torch.cat(gathered).tolist(), torch.cat(swapped).tolist(), total.tolist()]


def own_collectives(comm: TorchComm) -> dict[str, Any]:
    """Results and bytes of pairs and of the backend's own collectives, and how often the backend was asked."""
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        for name, call in (("all_gather", Link.all_gather), ("reduce_scatter", Link.reduce_scatter)):
            patch.setattr(Link, name, lambda *args, name=name, call=call: (asked.append(name), call(*args))[1])
        answers = [_results_and_bytes(TorchComm(comm.group, own_collectives=own)) for own in (False, True)]
    return {"pairs": answers[0], "own": answers[1], "asked": asked}


def _results_and_bytes(comm: TorchComm) -> list[Any]:
    together, apart = torch.empty(comm.size, 3), [torch.empty(2, 5) for _ in range(comm.size)]
    mine = torch.arange(3.0) + comm.rank, torch.full((2, 5), float(comm.rank))
    comm.all_gather(mine, [[together[rank], apart[rank]] for rank in range(comm.size)]).wait()
    total, rounded = torch.empty(3), torch.empty(4)
    comm.reduce_scatter([[torch.full((3,), 2.0**-20 * comm.rank + rank)] for rank in range(comm.size)], [total]).wait()
    comm.reduce_scatter([[torch.full((4,), 1 + 2.0**-7 * comm.rank).bfloat16()] for _ in range(comm.size)], [rounded]).wait()
    comm.barrier()
    tensors = [together, *apart, total, rounded, *map(torch.tensor, collectives(comm))]
    return [[x.flatten().tolist() for x in tensors], comm.traffic.sent_bytes, comm.traffic.messages]


def sums_over_nodes(comm: TorchComm, method: str, grid: str, seqlen: int, own: bool, options: dict[str, int]) -> dict[str, Any]:
    """A step in bf16, with the backend's own collectives if `own`: the error, the types of the sums that the backend makes, and the bytes
    of this rank that were sent and that a recording of its program has."""
    types, scatter = list[torch.dtype](), Link.reduce_scatter
    args = dict(mask="causal", seqlen=seqlen, heads=[4, 4], grid=grid, dtype="bf16", own=own, options=options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Link, "reduce_scatter", lambda self, *args: (types.append(args[1].dtype), scatter(self, *args))[1])
        answer = worst_error(comm, method, **args)  # type: ignore[arg-type]
    case = case_of(seqlen, (4, 4), "bf16", device="cuda" if own else "cpu")  # NCCL has its own collectives, gloo is used without
    plan = plan_of(method, mask_of("causal", seqlen), case, comm.size, grid, options=options)
    return answer | {"types": [str(dtype) for dtype in types], "recorded": record(plan, comm.rank).sent_bytes}


def subgroups(comm: TorchComm) -> list[int]:
    """Some ranks make more subgroups than others before all make one together; each sums the ranks of all its subgroups."""
    sums = []
    for members in ([0, 1], [1, 2], [0, 1, 2], list(range(comm.size)), [2, 3]):
        if comm.rank in members:
            group = comm.subgroup(members)
            received = [torch.zeros(1, device=comm.device) for _ in members]
            group.all_gather([torch.full((1,), float(comm.rank), device=comm.device)], [[x] for x in received]).wait()
            sums.append(int(sum(received)))
    return sums


def die(comm: Comm, rank: int) -> str:
    if comm.rank == rank:
        print("the disk is full", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 9)
    comm.barrier()
    return "survived"


def hang(comm: Comm, rank: int) -> str:
    if comm.rank == rank:
        print("waiting for Godot", file=sys.stderr, flush=True)
        time.sleep(1000)
    return "done"


def fail(comm: Comm, rank: int) -> str:
    if comm.rank == rank:
        raise ValueError("seven is not prime enough")
    comm.barrier()
    return "done"


def greet(comm: Comm) -> list[int]:
    comm.barrier()
    return [comm.rank, os.getpid()]
