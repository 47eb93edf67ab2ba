"""torchtitan: LongCA's attention as the inner attention of its models, for packed documents, windows and any kernel of LongCA.

    pip install torchtitan && python examples/torchtitan_attention.py

What to replace is one entry of a model's configuration: `inner_attention` of its attention. The module below takes what torchtitan gives
its own `VarlenAttention` and `ScaledDotProductAttention`: q, k and v [batch, tokens, heads, head size], and the prefix sums of packed
documents, or no masks for plain causal attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torchtitan.models.common.attention import ScaledDotProductAttention, VarlenMetadata
from torchtitan.protocols.module import Module

import longca
from longca import masks
from longca.integrations.visibility import Rule, segments_mask


@lru_cache(maxsize=64)
def mask_of(edges: tuple[int, ...], window: int | None) -> masks.Mask:
    """Causal documents between these prefix sums; `window` counts the keys that a token sees, its own included."""
    return segments_mask(list(pairwise(edges)), edges[-1], Rule(window=window))


class LongcaAttention(Module):
    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        kernel: str | None = None  # a kernel of `longca ls kernels`; None: the best one that is installed
        window: int | None = None

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.kernel, self.window = config.kernel, config.window

    def forward(
        self,
        q_BLNH: torch.Tensor,
        k_BLNH: torch.Tensor,
        v_BLNH: torch.Tensor,
        *,
        attention_masks: VarlenMetadata | None = None,
        scale: float | None = None,
        **_: Any,
    ) -> torch.Tensor:
        options: dict[str, Any] = {"kernel": self.kernel, "scale": scale or 0.0}
        if attention_masks is None:
            return longca.attention(q_BLNH, k_BLNH, v_BLNH, mask_of((0, q_BLNH.shape[1]), self.window), **options)
        mask = mask_of(tuple(attention_masks.cu_seq_q.tolist()), self.window)  # documents of all batch entries, one after the other
        out = longca.attention(*(x.flatten(0, 1) for x in (q_BLNH, k_BLNH, v_BLNH)), mask, **options)
        return out.unflatten(0, q_BLNH.shape[:2])


def main() -> None:
    """Compares it with torchtitan's own attention, and packed documents with each of them alone."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 32, heads, 16, generator=generator) for heads in (4, 2, 2))
    ours, theirs = LongcaAttention(LongcaAttention.Config()), ScaledDotProductAttention(ScaledDotProductAttention.Config())
    difference = (ours(q, k, v) - theirs(q, k, v, enable_gqa=True)).abs().max().item()
    edges = torch.tensor([0, 20, 32, 64], dtype=torch.int32)
    packed = ours(q, k, v, attention_masks=VarlenMetadata(cu_seq_q=edges, cu_seq_k=edges, max_q=32, max_k=32))
    alone = theirs(q[:1, 20:], k[:1, 20:], v[:1, 20:], enable_gqa=True)
    apart = (packed[:1, 20:] - alone).abs().max().item()
    print(f"LongCA and torchtitan differ by {difference:.1e} at most, a packed document by {apart:.1e}")
    assert max(difference, apart) < 1e-5


if __name__ == "__main__":
    main()
