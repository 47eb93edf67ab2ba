"""torch_cp: the ring of torch.distributed.tensor.experimental.context_parallel."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from longca.parallel.peers import ZigzagPeer

if TYPE_CHECKING:
    import torch

    from longca.parallel.comm.base import Comm
    from longca.parallel.method import Plan
    from longca.parallel.primitives.program import Gradients, Program, Saved


class TorchCp(ZigzagPeer):
    name = "torch_cp"
    about = "torch's own ring (context_parallel), with the kernel of the plan; keys rotate by all-to-all"
    needs = "torch 2.9 or newer; tokens that divide by twice the ranks; the mask causal"
    modules = ("torch.distributed.tensor.experimental._context_parallel",)
    package = "torch>=2.9"

    def program(self, plan: Plan, comm: Comm) -> Program:
        from longca.parallel.primitives.peer import StepKernel, process_group
        from longca.parallel.primitives.program import Program, Saved

        library: Any = importlib.import_module("torch.distributed.tensor.experimental._context_parallel._attention")
        group, steps = process_group(comm, self.name), StepKernel(plan.local_kernel(comm))
        library._cp_options.rotate_method = library._RotateMethod.ALL_TO_ALL
        library._cp_options.enable_load_balance = True

        def turned(*tensors: torch.Tensor) -> Any:
            """[1, H, L, D] as [1, L, H, D], and back."""
            return (x.transpose(1, 2) for x in tensors)

        def attend(query: Any, key: Any, value: Any, is_causal: bool) -> tuple[torch.Tensor, ...]:
            q, k, v = turned(query, key, value)
            out, lse = steps.forward(q, k, v, is_causal)
            return *turned(out), lse

        def gradients(*, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, is_causal: bool, grad_out: Any) -> Any:
            dout, q, k, v, out = turned(grad_out, query, key, value, out)
            return turned(*steps.backward(dout, q, k, v, out, logsumexp, is_causal))

        class TorchRing(Program):
            kernel, rows, heads = steps.kernel, plan.rows(comm.rank), (0, plan.case.heads_q)

            def forward(
                self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None = None
            ) -> tuple[torch.Tensor, Saved]:
                assert sinks_H is None  # sinks are refused
                q, k, v = (x.transpose(0, 1)[None].contiguous() for x in (q_LHD, k_LHD, v_LHD))
                out, lse, *_ = library._templated_ring_attention(group, 2, attend, q, k, v, is_causal=True)
                return out[0].transpose(0, 1), Saved(q, k, v, out, lse[0])

            def backward(self, dout_LHD: torch.Tensor, saved: Saved) -> Gradients:
                dout = dout_LHD.transpose(0, 1)[None].contiguous()
                assert saved.lse is not None
                given = (saved.q, saved.k, saved.v, saved.out, saved.lse[None])
                found = library._templated_ring_attention_backward(group, 2, gradients, dout, "grad_out", *given, True)
                dq, dk, dv = (x[0].transpose(0, 1) for x in found[:3])
                return dq, dk, dv

        return TorchRing()
