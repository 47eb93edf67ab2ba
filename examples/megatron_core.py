"""Trains a tiny GPT of Megatron-Core on packed documents that its context parallel ranks share; prints losses beside one rank's.

    pip install megatron-core && torchrun --nproc-per-node 4 examples/megatron_core.py

Two things change: `core_attention` in the specification of a layer, and the batch, which a plan cuts. The plan goes to the layers with
`packed_seq_params`; no layer reads prefix sums back from a GPU. Megatron's own attention without Transformer Engine has no context
parallelism. Positions are learned here, as Megatron makes rotary ones on GPUs alone. Those are right where a plan has Megatron's order
of tokens: method="ring_p2p", with lengths of documents that are multiples of twice the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_config import TransformerConfig

from longca import masks, parallel

STEPS, DOCUMENTS = 5, (53, 19, 40, 16)
MASK = masks.causal_document(sum(DOCUMENTS), documents=DOCUMENTS)


@dataclass
class Packed(PackedSeqParams):
    attend: Callable[..., torch.Tensor] | None = None


class LongcaAttention(MegatronModule):
    def __init__(self, config: TransformerConfig, layer_number: int, *_: Any, **__: Any) -> None:
        super().__init__(config)
        self.scale = config.softmax_scale or 0.0

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, packed_seq_params: Packed, **__: Any) -> torch.Tensor:
        return packed_seq_params.attend(q, k, v, scale=self.scale).flatten(1)  # [tokens, heads, head size]


def attend_alone(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    heads_first = (x.transpose(0, 1) for x in (q, k, v))
    visible = torch.from_numpy(MASK.dense())
    return torch.nn.functional.scaled_dot_product_attention(*heads_first, visible, enable_gqa=True).transpose(0, 1)


def train(plan: parallel.Plan, attend: Callable[..., torch.Tensor]) -> list[float]:
    """Returns the loss of each step; every rank has the same weights."""
    config = TransformerConfig(
        num_layers=2, hidden_size=64, num_attention_heads=4, num_query_groups=2, context_parallel_size=dist.get_world_size(),
        use_cpu_initialization=True, hidden_dropout=0.0, attention_dropout=0.0, bias_dropout_fusion=False,
    )  # fmt: skip
    spec = get_gpt_layer_local_spec()
    spec.submodules.self_attention.submodules.core_attention = LongcaAttention
    torch.manual_seed(0)
    model = GPTModel(config, spec, vocab_size=96, max_sequence_length=128, position_embedding_type="learned_absolute")
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=2e-3, eps=1e-5), list[float]()
    ids = (7 * torch.arange(MASK.seqlen_q) % 96)[None]
    positions = torch.cat([torch.arange(length) for length in DOCUMENTS])[None]
    batch = plan.shard({"ids": ids, "positions": positions, "labels": ids})  # labels become shift_labels
    packed = Packed(qkv_format="thd", attend=attend)
    for _ in range(STEPS):
        labels = batch["shift_labels"]
        tokens = model(batch["ids"], batch["positions"], None, labels=labels.clamp(min=0), packed_seq_params=packed)
        loss = plan.mean(tokens.masked_fill(labels < 0, 0))
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():  # as Megatron averages gradients over ranks
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(context_parallel_size=dist.get_world_size())
    own = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    with parallel.Group(parallel_state.get_context_parallel_group()) as cp, parallel.Group(own) as alone:
        shared = cp.plan(MASK, heads=(4, 2), head_dim=16)
        losses = {1: train(alone.plan(MASK, heads=(4, 2), head_dim=16), attend_alone), cp.size: train(shared, shared.attention)}
    if dist.get_rank() == 0:
        for ranks, values in losses.items():
            print(f"{ranks} rank(s)", *(f"{loss:.6f}" for loss in values))
        one, other = losses.values()
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) < 1e-5
    dist.destroy_process_group()
