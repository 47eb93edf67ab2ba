"""What tests of transformers under context parallelism have the ranks of a pool do."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from longca import parallel
from longca.errors import LongcaError
from longca.integrations.transformers import prepare_batch, register
from longca.parallel.comm.distributed import TorchComm

SHAPE: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "qwen3": {},
    "qwen3 with a window": {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    "gpt_oss": {
        "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    },
    "gemma2": {"sliding_window": 8, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 24},
    "mistral": {"sliding_window": 12},
}  # fmt: skip
LENGTHS = (17, 1, 22)


def model(name: str, attention: str, **more: Any) -> Any:
    """A tiny model in training mode."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.for_model(name.partition(" ")[0], **SHAPE, **OWN[name], **more)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).train()


def whole_batch(form: str) -> dict[str, Any]:
    """A packed batch as DataCollatorWithFlattening makes it, or a batch with two entries of one document."""
    from transformers import DataCollatorWithFlattening

    ids = torch.randint(0, 64, (2, 40), generator=torch.Generator().manual_seed(3))
    if form == "entries":
        return {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}
    features = [{"input_ids": text} for text in ids[0].split(LENGTHS)]
    return dict(DataCollatorWithFlattening(return_flash_attn_kwargs=form == "edges", return_position_ids=True)(features))


def loss_and_gradients(comm: TorchComm, name: str, form: str, method: str | None = None, recompute: bool = False) -> dict[str, Any]:
    """The loss of one rank and of all ranks together, and the largest difference of gradients."""
    register()
    merges = name == "gpt_oss"  # with eager attention it merges documents; prefix sums reach LongCA's attention in every layer
    alone = model(name, "longca" if merges else "eager")
    right = alone(**whole_batch("edges" if merges else form), use_cache=False).loss
    right.backward()
    with parallel.Group() as cp:
        register(cp=cp)
        shared = model(name, "longca")
        if recompute:
            shared.gradient_checkpointing_enable()
        own = prepare_batch(whole_batch(form), shared.config, cp.planner if recompute else cp, method=method)
        loss = shared(**own).loss
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total)
        worst = 0.0
        for one, other in zip(shared.parameters(), alone.parameters(), strict=True):
            if other.grad is not None:
                dist.all_reduce(one.grad)
                worst = max(worst, float((one.grad / cp.size - other.grad).abs().max()))
        return {"alone": right.item(), "shared": total.item() / cp.size, "gradients": worst, "summary": own["longca_plan"].summary}


def misuse(comm: TorchComm) -> dict[str, str]:
    """What wrong calls are told."""
    config = model("qwen3", "eager").config
    batch = whole_batch("entries")
    padded, mixed = batch["attention_mask"].clone(), torch.arange(40).repeat(2, 1)
    padded[0, :3], mixed[1, 20:] = 0, torch.arange(20)
    heard = {}
    with parallel.Group() as cp:
        for case, given, settings in (
            ("padding", batch | {"attention_mask": padded}, {}),
            ("documents", batch | {"position_ids": mixed}, {}),
            ("edges", {"input_ids": batch["input_ids"][:1], "cu_seq_lens_q": torch.tensor([0, 30])}, {}),
            ("no ids", {}, {}),
            ("heads", batch, {"tensor_parallel": 3}),
        ):
            try:
                prepare_batch(given, config, cp, **settings)
            except LongcaError as error:
                heard[case] = str(error)
    return heard
