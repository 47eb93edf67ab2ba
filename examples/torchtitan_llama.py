"""Trains torchtitan's Llama 3 (tiny, packed documents) with its sequence shared by ranks, and prints the losses of one rank beside them.

    pip install torchtitan && torchrun --nproc-per-node 4 examples/torchtitan_llama.py

Two things change: `inner_attention` in the configuration of the model, and the batch, which a plan cuts. The plan goes to the layers as
`attention_masks`; no layer reads lengths back from a GPU. torchtitan's own context parallelism refuses its varlen attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torchtitan.models.llama3 import llama3_configs
from torchtitan.protocols.module import Module

import longca
from longca import masks, parallel

STEPS, DOCUMENTS = 5, (53, 19, 40, 16)
MASK = masks.causal_document(sum(DOCUMENTS), documents=DOCUMENTS)


class LongcaAttention(Module):
    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):
        pass

    def __init__(self, config: Config) -> None:
        super().__init__()

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, attention_masks: Any, scale: float | None, **_: Any) -> Any:
        if isinstance(attention_masks, parallel.Plan):
            return attention_masks.attention(q, k, v, scale=scale or 0.0)
        return longca.attention(q, k, v, attention_masks, scale=scale or 0.0)


def train(cp: parallel.Group, masks_of_layers: Any = None) -> list[float]:
    """Returns the loss of each step; every rank has the same weights."""
    config = llama3_configs["debugmodel"](attn_backend="varlen")
    config.layers = config.layers[:2]
    for layer in config.layers:
        layer.attention.inner_attention = LongcaAttention.Config()
    heads = config.layers[0].attention.n_heads
    torch.manual_seed(0)
    model = config.build()
    model.init_states()
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=2e-3, eps=1e-5), list[float]()
    ids = (7 * torch.arange(MASK.seqlen_q) % 96)[None]
    positions = torch.cat([torch.arange(length) for length in DOCUMENTS])[None]
    plan = cp.plan(MASK, heads=(heads, heads), head_dim=config.dim // heads)
    batch = plan.shard({"ids": ids, "positions": positions, "labels": ids})  # labels become shift_labels
    for _ in range(STEPS):
        logits = model(batch["ids"], batch["positions"], masks_of_layers or plan)
        loss = plan.mean(cross_entropy(logits.flatten(0, 1), batch["shift_labels"].flatten(), reduction="none")[None])
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():  # as FSDP averages gradients over ranks
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    dist.init_process_group("gloo")
    own = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    with parallel.Group() as together, parallel.Group(own) as alone:
        losses = {1: train(alone, MASK), together.size: train(together)}
    if dist.get_rank() == 0:
        for ranks, values in losses.items():
            print(f"{ranks} rank(s)", *(f"{loss:.6f}" for loss in values))
        one, other = losses.values()
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) < 1e-5
    dist.destroy_process_group()
