"""Calls of FlexAttention. A fallback to eager mode, or compiling in every call, would make its times wrong; both are errors here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention.flex_attention import flex_attention

from longca.errors import LongcaError
from longca.kernels.backends.flex import _blocks
from longca.kernels.backends.flex._settings import ChangedSettings
from longca.kernels.backends.flex.kernel import BLOCK
from longca.kernels.base import AutogradAttention, Case
from longca.masks import AnyMask, BlockMask

if TYPE_CHECKING:
    from torch import Tensor

    from longca.kernels.base import Gradients, GradientsWithSinks

MOST_COMPILATIONS = 64  # shapes in one process; more would mean that something recompiles for every call


class FlexAttention(AutogradAttention):
    def __init__(self, mask: AnyMask, case: Case) -> None:
        self.options: dict[str, Any] = {}
        self.compiling: AbstractContextManager[None] = nullcontext()
        if isinstance(mask, BlockMask):
            self.block_mask = _blocks.block_mask(mask, case)
            if case.device == "cuda" and _blocks.own_block(mask) % BLOCK > 0:
                self.options, self.compiling = {"kernel_options": _blocks.FORWARD_TILE}, _blocks.tiles_of_64()
        else:
            self.block_mask = mask.block_mask(case.device, BLOCK)
        self.with_lse = case.device != "cpu"
        self.options |= dict(scale=case.softmax_scale, enable_gqa=case.group > 1, return_lse=self.with_lse)
        if case.softcap:
            self.options["score_mod"] = softcap_function(case.softcap)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        q, k, v = (x.transpose(0, 1)[None] for x in (q_LHD, k_LHD, v_LHD))
        with self.compiling:
            result = _compiled()(q, k, v, block_mask=self.block_mask, **self.options)
        out, lse = result if self.with_lse else (result, None)
        return out[0].transpose(0, 1), None if lse is None else lse[0]

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        with self.compiling:  # torch may put off compiling the backward until now
            return super().backward(dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD, lse_HL)

    def backward_with_sinks(
        self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None, sinks_H: Tensor
    ) -> GradientsWithSinks:
        with self.compiling:
            return super().backward_with_sinks(dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD, lse_HL, sinks_H)


@cache
def _compiled() -> Callable[..., Any]:
    settings: dict[Any, dict[str, Any]] = {
        torch._dynamo.config: {
            "cache_size_limit": MOST_COMPILATIONS,
            "accumulated_cache_size_limit": MOST_COMPILATIONS,
            "fail_on_recompile_limit_hit": True,  # instead of running in eager mode silently
        },
        torch._functorch.config: {"donated_buffer": False},  # the graph is kept, so that backward can be timed alone
    }
    during_call = ChangedSettings(settings)
    compiled = torch.compile(flex_attention, fullgraph=True, dynamic=False)

    def call(*args: Any, **options: Any) -> Any:
        try:
            with during_call:
                return compiled(*args, **options)
        except torch._dynamo.exc.FailOnRecompileLimitHit as error:
            raise LongcaError(f"flex was compiled {MOST_COMPILATIONS} times in one process and would now run uncompiled.") from error

    return call


@cache
def softcap_function(softcap: float) -> Callable[..., torch.Tensor]:
    """Returns FlexAttention's score_mod: softcap * tanh(score / softcap), for scores that are scaled already."""

    def cap(score: Any, batch: Any, head: Any, row: Any, key: Any) -> torch.Tensor:
        return softcap * torch.tanh(score / softcap)

    return cap
