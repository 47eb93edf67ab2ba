"""Trains a tiny gpt-oss-like model with the Trainer of transformers on tokens that ranks share; prints losses beside one rank's.

    pip install 'longca[transformers]' accelerate && torchrun --nproc-per-node 4 examples/huggingface.py

Texts of different lengths are packed without padding. A DataLoader worker plans each batch and cuts it: layers with a window and layers
without share one partition of the tokens, and no layer waits for a plan.
"""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from transformers import DataCollatorWithFlattening, GptOssConfig, GptOssForCausalLM, Trainer, TrainingArguments

from longca import parallel
from longca.integrations.transformers import prepare_batch, register

STEPS, RATE = 6, 2e-3
TEXTS = [{"input_ids": [(start + 7 * place) % 96 for place in range(length)]} for start, length in enumerate((53, 19, 40, 16) * STEPS)]
CONFIG = GptOssConfig(
    vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    num_local_experts=4, num_experts_per_tok=2, sliding_window=16, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)  # fmt: skip
PACKED = DataCollatorWithFlattening(return_flash_attn_kwargs=True)


def make_model() -> GptOssForCausalLM:
    torch.manual_seed(0)
    return GptOssForCausalLM._from_config(CONFIG, attn_implementation="longca").train()


def shared_batch(features: list[Any], planner: parallel.Planner) -> dict[str, Any]:
    return prepare_batch(PACKED(features), CONFIG, planner)


class ContextParallelTrainer(Trainer):
    cp: parallel.Group

    def get_train_dataloader(self) -> DataLoader:
        """All ranks of a group get the same texts, and each keeps its own tokens."""
        return DataLoader(TEXTS, 4, collate_fn=partial(shared_batch, planner=self.cp.planner), num_workers=1)


def train_together() -> list[float]:
    with parallel.Group() as cp, tempfile.TemporaryDirectory() as folder:
        register(cp=cp)
        settings = dict(
            max_steps=STEPS, learning_rate=RATE, lr_scheduler_type="constant", max_grad_norm=0.0, weight_decay=0.0, adam_epsilon=1e-5
        )
        told = dict(logging_steps=1, report_to="none", disable_tqdm=True, save_strategy="no", use_cpu=True)
        trainer = ContextParallelTrainer(make_model(), TrainingArguments(folder, **settings, **told), train_dataset=TEXTS)
        trainer.cp = cp
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def train_alone() -> list[float]:
    register()
    model, losses = make_model(), list[float]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, eps=1e-5, weight_decay=0)
    for batch in DataLoader(TEXTS, 4, collate_fn=PACKED):
        loss = model(**batch, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    dist.init_process_group("gloo")
    alone, together = train_alone(), train_together()
    if dist.get_rank() == 0:
        print("1 rank ", *(f"{loss:.6f}" for loss in alone))
        print(f"{dist.get_world_size()} ranks", *(f"{loss:.6f}" for loss in together))
        assert max(abs(one - other) for one, other in zip(alone, together, strict=True)) < 1e-5
    dist.destroy_process_group()
