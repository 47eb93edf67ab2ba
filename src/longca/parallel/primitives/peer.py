"""What other projects' implementations are run with: the plan's kernel as they call one, and their layers as programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from longca import masks
from longca.errors import Refused
from longca.kernels.inputs import in_layout
from longca.masks import Mask
from longca.parallel.comm.base import Comm
from longca.parallel.comm.distributed import TorchComm
from longca.parallel.primitives.local import LocalKernel
from longca.parallel.primitives.program import Gradients, Program, Saved
from longca.parallel.ranges import Ranges

Tensors = tuple[torch.Tensor, ...]


def process_group(comm: Comm, name: str) -> Any:
    """The torch.distributed group of a communicator; refuses the kinds that have none."""
    if not isinstance(comm, TorchComm):
        raise Refused(f"{name} calls torch.distributed itself, so it runs on real ranks alone.")
    return comm.group


class StepKernel:
    """The plan's kernel for the steps of a ring: full or causal attention of [1, L, H, D] tensors, of whatever lengths they have."""

    def __init__(self, kernel: LocalKernel) -> None:
        self.kernel = kernel
        self._masks: dict[tuple[int, int, bool], Mask] = {}

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """out [1, L, H, D] and lse [1, H, L]."""
        prepared = self.kernel.prepare_mask(self._mask(q.shape[1], k.shape[1], causal))
        out, lse = prepared.attention.forward(*(in_layout(x[0], prepared.layout) for x in (q, k, v)))
        assert lse is not None  # kernels without lse are refused
        return out[None], lse[None]

    def backward(
        self,
        dout: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        causal: bool,
    ) -> Tensors:
        """dq, dk and dv as [1, L, H, D]."""
        prepared = self.kernel.prepare_mask(self._mask(q.shape[1], k.shape[1], causal))
        dout, q, k, v, out = (in_layout(x[0], prepared.layout) for x in (dout, q, k, v, out))
        return tuple(x[None] for x in prepared.attention.backward(dout, q, k, v, out, lse[0].contiguous()))

    def _mask(self, rows: int, keys: int, causal: bool) -> Mask:
        if (rows, keys, causal) not in self._masks:
            whole = masks.causal(rows) if causal else masks.full(max(rows, keys)).rows([(0, rows)]).cols([(0, keys)])
            self._masks[rows, keys, causal] = whole
        return self._masks[rows, keys, causal]


class DifferentiableLayer(Program):
    """A differentiable function of q, k, v as [1, L, H, D] as a program; its backward is autograd's, and it gives no lse.

    `select` is called before each call: it makes the library use this plan's kernel, where the library finds it by a global name.
    """

    def __init__(
        self,
        layer: Callable[..., torch.Tensor],
        kernel: LocalKernel,
        rows: Ranges,
        heads: tuple[int, int],
        select: Callable[[], None] = lambda: None,
    ) -> None:
        self.layer, self.kernel, self.rows, self.heads, self.select = layer, kernel, rows, heads, select

    def forward(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Saved]:
        assert sinks_H is None  # sinks are refused
        self.select()
        backward = self.kernel.case.backward
        q, k, v = (x.detach().contiguous().requires_grad_(backward) for x in (q_LHD, k_LHD, v_LHD))
        with torch.set_grad_enabled(backward):
            out = self.layer(q[None], k[None], v[None])[0]
        return out.detach(), Saved(q, k, v, out, None)

    def backward(self, dout_LHD: torch.Tensor, saved: Saved) -> Gradients:
        self.select()
        dq, dk, dv = torch.autograd.grad(saved.out, saved[:3], dout_LHD, retain_graph=True)
        return dq, dk, dv
