"""Trains two tiny Hugging Face models on a CPU, with their own attention and with LongCA's, and prints both losses.

    pip install 'longca[transformers]' && python examples/huggingface.py

Sequences of different lengths are packed into one batch entry. Every position_ids counts from 0 in its own sequence, and that is all that
keeps them apart: no padding is computed, and no token sees another sequence. The second model has a sliding window in every other layer
and a learned sink per head, as gpt-oss has.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import GptOssConfig, GptOssForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from longca.integrations.transformers import register

STEPS, LENGTHS = 8, (53, 19, 40, 16)
SHAPE = dict(
    vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16
)


def qwen3_like(attention: str) -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE, attn_implementation=attention))


def gpt_oss_like(attention: str) -> PreTrainedModel:
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    experts = dict(num_local_experts=4, num_experts_per_tok=2)
    return GptOssForCausalLM(GptOssConfig(**SHAPE, **experts, sliding_window=16, rope_parameters=rope, attn_implementation=attention))


def train(make_model: Callable[[str], PreTrainedModel], attention: str) -> list[float]:
    """Returns the loss of each step; the same weights and tokens whatever the attention."""
    torch.manual_seed(0)
    model = make_model(attention).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, eps=1e-5)  # a larger eps: noise of the last digit stays that small
    positions = torch.cat([torch.arange(length) for length in LENGTHS])[None]
    losses = []
    for step in range(STEPS):
        start = torch.randint(0, 96, (1, 1), generator=torch.Generator().manual_seed(step))
        tokens = (start + 7 * positions) % 96  # a sequence that can be learnt
        loss = model(input_ids=tokens, position_ids=positions, labels=tokens, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    register()
    for name, make_model in {"Qwen3-like": qwen3_like, "gpt-oss-like": gpt_oss_like}.items():
        eager, longca = (train(make_model, attention) for attention in ("eager", "longca"))
        for attention, losses in (("eager", eager), ("longca", longca)):
            print(f"{name:13} {attention:7}", *(f"{loss:.6f}" for loss in losses))
        difference = max(abs(one - other) for one, other in zip(eager, longca, strict=True))
        print(f"{name:13} differ by {difference:.1e} at most")
        assert difference < 1e-5, difference


if __name__ == "__main__":
    main()
