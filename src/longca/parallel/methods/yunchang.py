"""yunchang_ulysses and yunchang_usp: the layers UlyssesAttention and LongContextAttention of the yunchang package."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from longca.parallel.peers import UlyssesPeer, ZigzagPeer
from longca.parallel.sharding import zigzag

if TYPE_CHECKING:
    import torch

    from longca.parallel.comm.base import Comm
    from longca.parallel.method import Plan
    from longca.parallel.primitives.peer import StepKernel
    from longca.parallel.primitives.program import Program


class YunchangUlysses(UlyssesPeer):
    name = "yunchang_ulysses"
    about = "yunchang's UlyssesAttention, with the kernel of the plan"
    needs = "yunchang; tokens and heads that divide by the ranks"
    modules, package = ("yunchang",), "yunchang"

    def layer(self, group: Any, device: str, attend: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        library = importlib.import_module("yunchang")
        moved: Any = library.UlyssesAttention(group, attn_type=library.kernels.AttnType.TORCH_FLASH)
        moved.attn_fn = attend
        return cast("Callable[..., torch.Tensor]", moved)


class YunchangUsp(ZigzagPeer):
    name = "yunchang_usp"
    about = "yunchang's LongContextAttention (heads and a zigzag ring), with the kernel of the plan"
    needs = "yunchang; a grid UxR; tokens that divide by twice the ranks, heads that divide by U; the mask causal; bf16 or fp16"
    modules, package = ("yunchang",), "yunchang"
    splits_heads = True
    wrong_in_fp32 = "its gradients are wrong in fp32, because it adds into a buffer that it uses again"

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.head_split import HeadSplit
        from longca.parallel.primitives.peer import DifferentiableLayer, StepKernel, process_group

        process_group(comm, self.name)
        grid, split = plan.grid, HeadSplit.of(plan.case, plan.grid.heads)
        place, ring = grid.head_position(comm.rank), grid.ring_position(comm.rank)
        kernel = plan.local_kernel(comm, split.case(plan.case, place))
        library, steps = importlib.import_module("yunchang"), StepKernel(kernel)
        groups = library.globals.PROCESS_GROUP
        groups.ULYSSES_PG, groups.RING_PG = _groups(comm, grid.heads, grid.ring)
        layer = library.LongContextAttention(ring_impl_type="zigzag", attn_type=library.kernels.AttnType.TORCH_FLASH)
        scale = plan.case.softmax_scale

        def call(*tensors: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = layer(*tensors, softmax_scale=scale, causal=True)
            return out

        return DifferentiableLayer(call, kernel, zigzag(plan.mask, grid.ring)[ring], split.queries[place], _selecting(steps))


@cache
def _groups(comm: Comm, heads: int, ring: int) -> tuple[Any, Any]:
    """yunchang's groups for a grid; every call of its own function would make new ones."""
    library = importlib.import_module("yunchang")
    library.set_seq_parallel_pg(heads, ring, comm.rank, comm.size)
    return library.globals.PROCESS_GROUP.ULYSSES_PG, library.globals.PROCESS_GROUP.RING_PG


def _selecting(steps: StepKernel) -> Callable[[], None]:
    """A function that makes yunchang's ring select the kernel of this plan; its backward selects when it is called, too."""
    module: Any = importlib.import_module("yunchang.ring.zigzag_ring_flash_attn")

    def forward(q: Any, k: Any, v: Any, dropout_p: float, softmax_scale: float, causal: bool, **_: Any) -> Any:
        return steps.forward(q, k, v, causal)

    def backward(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, dq: Any, dk: Any, dv: Any, *rest: Any, **_: Any) -> None:
        causal = rest[2]  # behind the dropout and the scale
        for target, gradient in zip((dq, dk, dv), steps.backward(dout, q, k, v, out, lse, causal), strict=True):
            target.copy_(gradient)

    def select() -> None:
        module.select_flash_attn_impl = lambda kind, stage, attn_processor=None: forward if stage == "fwd-only" else backward

    return select
