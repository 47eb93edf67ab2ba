"""ring_flash_attn: the zigzag ring of the ring-flash-attn package."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import types
from typing import TYPE_CHECKING, Any

from longca.parallel.peers import ZigzagPeer

if TYPE_CHECKING:
    import torch

    from longca.parallel.comm.base import Comm
    from longca.parallel.method import Plan
    from longca.parallel.primitives.peer import StepKernel
    from longca.parallel.primitives.program import Gradients, Program, Saved


class RingFlashAttn(ZigzagPeer):
    name = "ring_flash_attn"
    about = "the zigzag ring of ring-flash-attn, with the kernel of the plan"
    needs = "ring-flash-attn; tokens that divide by twice the ranks; the mask causal; bf16 or fp16"
    modules, package = ("ring_flash_attn",), "ring-flash-attn"
    wrong_in_fp32 = "its gradients are wrong in fp32, because it adds into a buffer that it uses again"

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.primitives.peer import StepKernel, process_group
        from longca.parallel.primitives.program import Program, Saved

        group, steps, library = process_group(comm, self.name), StepKernel(plan.local_kernel(comm)), _library()
        scale = plan.case.softmax_scale

        class ZigzagRing(Program):
            kernel, rows, heads = steps.kernel, plan.rows(comm.rank), (0, plan.case.heads_q)

            def forward(
                self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None = None
            ) -> tuple[torch.Tensor, Saved]:
                assert sinks_H is None  # sinks are refused
                use(library, steps)
                q, k, v = (x.contiguous() for x in (q_LHD, k_LHD, v_LHD))
                out, lse = library.zigzag_ring_flash_attn_forward(group, q[None], k[None], v[None], scale)
                return out[0], Saved(q, k, v, out[0], lse[0])

            def backward(self, dout_LHD: torch.Tensor, saved: Saved) -> Gradients:
                use(library, steps)
                assert saved.lse is not None
                given = [x[None] for x in (dout_LHD.contiguous(), *saved[:4], saved.lse)]
                dq, dk, dv = library.zigzag_ring_flash_attn_backward(group, *given, scale)
                return dq[0], dk[0], dv[0]

        return ZigzagRing()


def use(library: Any, steps: StepKernel) -> None:
    """Makes the library call the kernel of this plan where it calls flash-attn."""

    def forward(q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: Any = None, causal: bool = False, **_: Any) -> Any:
        return *steps.forward(q, k, v, causal), None, None

    def backward(
        dout: Any, q: Any, k: Any, v: Any, out: Any, softmax_lse: Any, dq: Any, dk: Any, dv: Any, dropout_p: float = 0.0,
        softmax_scale: Any = None, causal: bool = False, **_: Any,
    ) -> None:  # fmt: skip
        for target, gradient in zip((dq, dk, dv), steps.backward(dout, q, k, v, out, softmax_lse, causal), strict=True):
            target.copy_(gradient)

    library._flash_attn_forward, library._flash_attn_backward = forward, backward
    library.get_default_args = lambda function: {name: None for name in inspect.signature(function).parameters if name != "_"}


def _library() -> Any:
    """The module of the zigzag ring. It imports flash-attn and transformers, which it needs for nothing here: where they are missing,
    empty modules take their place during the import."""
    name = "ring_flash_attn.zigzag_ring_flash_attn"
    if name in sys.modules:
        return sys.modules[name]
    empty: dict[str, tuple[str, ...]] = {"ring_flash_attn.adapters": ("substitute_hf_flash_attn", "update_ring_flash_attn_params")}
    if importlib.util.find_spec("flash_attn") is None:
        flash = [f"_flash_attn_{part}{way}" for part in ("", "varlen_") for way in ("forward", "backward")]
        empty |= {"flash_attn": (), "flash_attn.flash_attn_interface": tuple(flash)}
    for module, names in empty.items():
        stand_in = types.ModuleType(module)
        for attribute in names:
            setattr(stand_in, attribute, None)
        sys.modules[module] = stand_in
    try:
        return importlib.import_module(name)
    finally:
        for module in empty:
            del sys.modules[module]
