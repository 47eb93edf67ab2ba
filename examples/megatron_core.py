"""Megatron-Core: LongCA's attention as the core attention of a layer, for any mask, packed sequences, windows and learned sinks.

    pip install megatron-core && python examples/megatron_core.py

What to replace is one entry of the layer's specification: `core_attention`. The class below takes what Megatron gives its own
`DotProductAttention`: query, key and value [tokens, batch, heads, head size], and prefix sums where sequences are packed.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from megatron.core.transformer.dot_product_attention import DotProductAttention

import longca
from longca import masks
from longca.integrations.visibility import Rule, segments_mask


@lru_cache(maxsize=64)
def mask_of(edges: tuple[int, ...], before: int | None) -> masks.Mask:
    """Causal documents between these prefix sums; with a window, a token sees `before` keys before its own."""
    return segments_mask(list(pairwise(edges)), edges[-1], Rule(window=None if before is None else before + 1))


class LongcaAttention(DotProductAttention):
    """Keeps Megatron's scale, softmax offset (its name for sinks) and window, and computes attention with LongCA."""

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        attn_mask_type: Any = None,
        attention_bias: Any = None,
        packed_seq_params: Any = None,
    ) -> torch.Tensor:
        assert attention_bias is None
        assert self.attention_dropout.p == 0 or not self.training, "longca.attention has no dropout"
        window = None if self.scale_mask_softmax.window_size is None else int(self.scale_mask_softmax.window_size[0])
        options: dict[str, Any] = {"scale": self.softmax_scale, "sinks": self.softmax_offset}
        if packed_seq_params is not None:  # [tokens, heads, head size]
            edges = tuple(packed_seq_params.cu_seqlens_q.tolist())
            return longca.attention(query, key, value, mask_of(edges, window), **options).flatten(1)
        q, k, v = (x.transpose(0, 1) for x in (query, key, value))  # [batch, tokens, heads, head size]
        out = longca.attention(q, k, v, mask_of((0, q.shape[1]), window), **options)
        return out.transpose(0, 1).flatten(2).contiguous()


def main() -> None:
    """Compares both attentions on one rank of a CPU; in training, `get_gpt_layer_local_spec()` has the entry to replace."""
    import tempfile

    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.transformer_config import TransformerConfig

    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
        spec = get_gpt_layer_local_spec()
        spec.submodules.self_attention.submodules.core_attention = LongcaAttention  # that is all
        if torch.cuda.is_available():
            model_parallel_cuda_manual_seed(0)
        config = TransformerConfig(num_layers=1, hidden_size=64, num_attention_heads=4, num_query_groups=2, attention_dropout=0.0)
        made = (config, 1, AttnMaskType.causal, "self")
        theirs, ours = DotProductAttention(*made).eval(), LongcaAttention(*made).eval()
        generator = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(32, 2, heads, 16, generator=generator, requires_grad=True) for heads in (4, 2, 2))
        hidden = torch.triu(torch.ones(1, 1, 32, 32, dtype=torch.bool), 1)
        own = ours(q, k, v, hidden)
        right = reference(theirs, q, k, v, hidden)
        print(f"LongCA and Megatron differ by {(own - right).abs().max().item():.1e} at most")
        assert torch.allclose(own, right, atol=1e-5)
        torch.distributed.destroy_process_group()


def reference(theirs: DotProductAttention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Megatron's own result; where its buffers need a GPU, that of torch."""
    if torch.cuda.is_available():
        return theirs(q.cuda(), k.cuda(), v.cuda(), hidden.cuda()).cpu()
    heads_first = [x.permute(1, 2, 0, 3) for x in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True, scale=theirs.softmax_scale, enable_gqa=True)
    return out.permute(2, 0, 1, 3).flatten(2)


if __name__ == "__main__":
    main()
