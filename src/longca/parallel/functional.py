"""Context-parallel attention as a differentiable function, and the sharding that goes with it: for training scripts."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Sequence
from functools import cache, lru_cache
from operator import index
from typing import Any

import torch
import torch.distributed as dist

from longca.errors import BadInput, Refused
from longca.kernels import registry as kernels
from longca.kernels.base import Case
from longca.kernels.batches import masks_of
from longca.kernels.functional import DTYPE_NAMES, autocast_tensors, checked_sinks, no_autocast, refuse_numbers, refuse_tensors
from longca.kernels.inputs import in_layout
from longca.masks import AnyMask
from longca.parallel import joining, registry
from longca.parallel.comm.distributed import TorchComm
from longca.parallel.method import KERNEL, Plan
from longca.parallel.options import Options
from longca.parallel.primitives.program import Program
from longca.parallel.ranges import Shards, count, tokens


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: AnyMask,
    *,
    method: str = "usp",
    group: Any = None,
    grid: str = "",
    kernel: str = KERNEL,
    scale: float = 0.0,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    return_lse: bool = False,
    options: Options | None = None,
) -> Any:
    """Returns the attention of this rank's queries [L, Hq, D] over the keys of all ranks, under the mask of the whole sequence.
    Differentiable.

    Every rank of the torch.distributed group calls this function with its own tokens (see `shards` and `shard`), and gets their results [L,
    Hq, Dv]; with `return_lse` it gets (out, lse [Hq, L]). `kernel` is any kernel with a functional backward. With ulysses, or without
    gradients, it may be any kernel.

    `softcap` and `sinks` [Hq] are those of `longca.attention`. All ranks pass the same sinks, which are added once, after the merge. The
    gradient of the sinks is this rank's part; the sum over ranks is the full gradient, as for every parameter of a model with context
    parallelism. `options` are those of the method (`longca ls cp`), such as {"stages": 4}.
    """
    q, k, v = autocast_tensors(q, k, v)
    refuse_tensors(q, k, v)
    masks_of(mask, None)
    refuse_numbers(scale, softcap)
    group, sinks = _group(group), checked_sinks(sinks, q)
    shape, backward = (
        (q.shape[1], k.shape[1], q.shape[2], v.shape[2]),
        torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k, v, sinks)),
    )
    extras: dict[str, Any] = {"softcap": float(softcap), "sinks": sinks is not None}
    case = Case(mask.seqlen_q, mask.seqlen_k, *shape, DTYPE_NAMES[q.dtype], q.device.type, scale, backward, **extras)
    plan, program = _program(method, mask, case, group, grid, kernel, q.device, tuple(sorted((options or {}).items())))
    length = count(plan.rows(dist.get_rank(group)))
    if {len(q), len(k), len(v)} != {length}:
        raise BadInput(
            f"this rank owns {length} tokens under {method}, and got {len(q)}, {len(k)}, {len(v)}; cut them with parallel.shard."
        )
    out, lse = through(program, kernel, q, k, v, sinks, return_lse)
    return (out, lse) if return_lse else out


def through(
    program: Program,
    kernel: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None = None,
    return_lse: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns out and, where it is asked for, the lse of a rank's program, as a differentiable function."""
    layout = kernels.choices(kernel)[0].layout
    tensors = [in_layout(x, layout) for x in (q, k, v)]
    with no_autocast(q):
        out, lse = _Function.apply(program, layout, return_lse, *tensors, sinks)  # type: ignore[no-untyped-call]
    if return_lse and lse is None:
        raise Refused(f"{kernel} gives no lse here; take another kernel, or leave out return_lse.")
    return out, lse


def shards(mask: AnyMask, heads_q: int, *, method: str = "usp", ranks: int, grid: str = "", options: Options | None = None) -> Shards:
    """Returns the tokens of each rank, as ranges. The result is the same on every rank."""
    heads_q, ranks = _number("heads_q", heads_q), _number("ranks", ranks)
    heads_kv = mask.heads if mask.heads > 1 else heads_q
    case = Case(mask.seqlen_q, mask.seqlen_k, heads_q, heads_kv, 1, 1)
    return registry.plan(method, mask, case, ranks, grid, options=options).shards


def _number(name: str, given: Any) -> int:
    """Returns a whole number of 1 or more, also from one of numpy's; refuses anything else."""
    number = index(given) if hasattr(given, "__index__") else 0
    if number < 1:
        raise BadInput(f"{name} must be a whole number of 1 or more, not {given!r}.")
    return number


def shard(tensor: torch.Tensor, owned: Shards, rank: int) -> torch.Tensor:
    """Returns the tokens of a rank, from a tensor whose first axis has all tokens."""
    if not 0 <= rank < len(owned):
        raise BadInput(f"there is no rank {rank}: these shards are of {len(owned)} ranks, counted from 0.")
    if len(tensor) != (whole := sum(map(count, owned))):
        raise BadInput(f"these shards are of {whole} tokens, and the tensor has {len(tensor)}; give it whole, tokens first.")
    return tensor.index_select(0, torch.from_numpy(tokens(owned[rank])).to(tensor.device))


def unshard(pieces: list[torch.Tensor], owned: Shards) -> torch.Tensor:
    """Returns all tokens in order, from the pieces of all ranks."""
    if [len(piece) for piece in pieces] != (lengths := [count(ranges) for ranges in owned]):
        raise BadInput(
            f"the ranks own {lengths} tokens, and the pieces have {[len(piece) for piece in pieces]}; give every rank's, in order."
        )
    whole = torch.cat(pieces)
    order = torch.cat([torch.from_numpy(tokens(ranges)) for ranges in owned]).argsort()
    return whole.index_select(0, order.to(whole.device))


def gather(piece: torch.Tensor, owned: Shards, group: Any = None) -> torch.Tensor:
    """Returns all tokens in order on every rank, from the pieces that the ranks of a group hold. Not differentiable."""
    comm = _comm(_group(group), piece.device)
    pieces = [torch.empty((count(ranges), *piece.shape[1:]), dtype=piece.dtype, device=piece.device) for ranges in owned]
    comm.all_gather([piece.detach().contiguous()], [[buffer] for buffer in pieces]).wait()
    return unshard(pieces, owned)


def _group(given: Any) -> Any:
    """Returns the group object, for `None` the world's. Caches need the object: after a new init_process_group, `None` is another group."""
    if not dist.is_initialized():
        raise BadInput("context parallelism needs ranks; call torch.distributed.init_process_group first.")
    group = dist.group.WORLD if given is None else given
    if dist.get_rank(group) < 0:
        raise BadInput("this rank is no member of the group; call this on its members alone.")
    return group


@lru_cache(maxsize=8)
def _comm(group: Any, device: torch.device) -> TorchComm:
    return TorchComm(group, device)


@cache  # an entry that only some ranks still had would make the others wait
def _ranks_per_node(group: Any, device: torch.device) -> int:
    """Returns how many neighbours of the group share a node; 0 if that is not known, or not the same for all. All members call it: where
    nodes differ in size, they hear different numbers from torchrun, and programs of different options would not fit together."""
    comm, launch = _comm(group, device), joining.launched()
    mine = torch.tensor([neighbours(comm.members, launch.ranks_per_node) if launch else 0], device=device)
    of_all = [torch.empty_like(mine) for _ in comm.members]
    comm.all_gather([mine], [[number] for number in of_all]).wait()
    return int(mine) if len(set(map(int, of_all))) == 1 else 0


def neighbours(members: Sequence[int], ranks_per_node: int) -> int:
    """Returns n if every n members of a group, in order, share a node, the last ones maybe fewer; 0 if they are spread otherwise."""
    nodes = [member // ranks_per_node for member in members]
    n = nodes.count(nodes[0])
    runs = [set(nodes[start : start + n]) for start in range(0, len(nodes), n)]
    return n if all(len(run) == 1 for run in runs) and len(set(nodes)) == len(runs) else 0


@atexit.register
def _let_go() -> None:
    """gloo's threads must end before the interpreter does, so nothing here may hold a group by then: not even what refers to itself."""
    _program.cache_clear()
    _ranks_per_node.cache_clear()
    _comm.cache_clear()
    gc.collect()


@lru_cache(maxsize=32)
def _program(
    method: str, mask: AnyMask, case: Case, group: Any, grid: str, kernel: str, device: torch.device, options: tuple[tuple[str, int], ...]
) -> tuple[Plan, Program]:
    comm = _comm(group, device)
    node = _ranks_per_node(group, device)
    usual = registry.get(method).default_options(case.group, comm.size, node) if node else {}
    plan = registry.plan(method, mask, case, comm.size, grid, kernel, options=usual | dict(options))
    return plan, plan.program(comm)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, program: Program, layout: Any, with_lse: bool, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
        sinks: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
        out, kept = program.forward(q, k, v) if sinks is None else program.forward(q, k, v, sinks)
        ctx.program, ctx.layout, ctx.kept_type, ctx.sinks = program, layout, type(kept), sinks
        ctx.save_for_backward(*kept)
        lse = program.own_lse(kept) if with_lse else None
        if lse is not None:
            lse = lse.detach().clone()  # what backward needs must not be an output
            ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        dout = in_layout(grads[0], ctx.layout)
        with no_autocast(dout):
            dq, dk, dv, *dsinks = ctx.program.backward(dout, ctx.kept_type(*ctx.saved_tensors))
        return None, None, None, dq, dk, dv, whole_heads(ctx.program, dsinks[0], ctx.sinks) if dsinks else None


def whole_heads(program: Program, dsinks_H: torch.Tensor, sinks_H: torch.Tensor) -> torch.Tensor:
    """Returns a rank's part of dsinks of all query heads; 0 in heads that it does not compute."""
    whole = torch.zeros_like(sinks_H)
    whole[slice(*program.heads)] = dsinks_H
    return whole
