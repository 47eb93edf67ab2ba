"""Probes context parallelism of other projects and of LongCA on two gloo ranks: `python benchmarks/probe_stacks.py`.

It needs transformers, torchtitan and megatron-core (`make frameworks` installs the last two to .venv/frameworks). Each stack below is a
function that makes a model for `longca probe benchmarks/probe_stacks.py:STACK --ranks 2`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

OUT = Path("results/probe/stacks.jsonl")
SEQLEN, DOCUMENTS, VOCAB = 512, [153, 59, 120, 16, 164], 64  # torchtitan takes multiples of 256 tokens on two ranks
POSITIONS = torch.cat([torch.arange(length) for length in DOCUMENTS])[None]
PACKAGES = {"torch": "torch", "longca": "transformers", "torchtitan": "torchtitan", "megatron": "megatron-core"}


def mesh() -> Any:
    return init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("cp",))


def _qwen3(attention: str) -> Any:
    from longca.integrations.tiny_models import tiny_model

    return tiny_model("qwen3", attention, DOCUMENTS, 2, VOCAB).module


def longca_plan() -> Callable[..., Any]:
    """A model of transformers whose layers follow a plan, and its loss."""
    from longca import parallel
    from longca.integrations.transformers import prepare_batch, register

    cp = parallel.Group()
    model = _qwen3("longca")
    register(cp=cp)

    def run(ids: torch.Tensor) -> Any:
        batch = prepare_batch({"input_ids": ids[None], "labels": ids[None], "position_ids": POSITIONS}, model.config, cp)
        answer = model(**batch)
        loss = answer.loss.detach() / cp.size
        dist.all_reduce(loss)
        return answer.logits[0], batch["longca_plan"].rows, loss

    run.embedding = model.get_input_embeddings()  # type: ignore[attr-defined]
    return run


def torch_context_parallel() -> Callable[..., Any]:
    """transformers with sdpa inside torch's context_parallel, as accelerate uses it: the mask is removed, and is_causal is set."""
    from torch.distributed.tensor.experimental import context_parallel

    model, ranks = _qwen3("sdpa"), mesh()

    def run(ids: torch.Tensor) -> Any:
        own, places, rows = ids[None].clone(), POSITIONS.clone(), torch.arange(SEQLEN)
        causal_only = torch.zeros(1, 1, 1, 1)  # four axes: transformers leaves it as it is, and the hook below removes it
        with context_parallel(ranks, buffers=[own, places, rows], buffer_seq_dims=[1, 1, 0], no_restore_buffers={own, places, rows}):
            logits = model(input_ids=own, position_ids=places, attention_mask=causal_only, use_cache=False).logits
        return logits[0], rows

    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(_without_mask, with_kwargs=True)
    run.embedding = model.get_input_embeddings()  # type: ignore[attr-defined]
    return run


def _without_mask(_: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return args, kwargs | {"attention_mask": None, "is_causal": True}


def torchtitan_flex() -> Callable[..., Any]:
    """torchtitan's Llama 3 with its own context parallelism of FlexAttention, which is not compiled here."""
    from torch.nn.attention.flex_attention import flex_attention
    from torchtitan.distributed.context_parallel import apply_cp_to_forward, prepare_context_parallel_input
    from torchtitan.models.common.attention import FlexAttention
    from torchtitan.models.llama3 import llama3_configs

    torch.manual_seed(0)
    config = llama3_configs["debugmodel"](attn_backend="flex")
    config.layers = config.layers[:2]
    model = config.build()
    model.init_states()
    for name in [name for name in vars(FlexAttention) if "compiled" in name]:
        setattr(FlexAttention, name, staticmethod(flex_attention))
    ranks = mesh()
    if dist.get_world_size() > 1:
        apply_cp_to_forward([layer.attention.inner_attention for layer in model.layers.values()], ranks)

    def run(ids: torch.Tensor) -> Any:
        rows, masks = torch.arange(SEQLEN)[None], model.get_attention_masks(POSITIONS)
        extra = {"positions": POSITIONS.clone(), "attention_masks": masks}
        own = ids[None].clone()
        if dist.get_world_size() > 1:
            own, rows, extra = prepare_context_parallel_input(own, rows, extra, ranks, torch.device("cpu"), "headtail")
        return model(own, extra["positions"], extra["attention_masks"])[0, :, :VOCAB], rows[0]

    return run  # without an embedding: FlexAttention has no backward on a CPU


def megatron_core() -> Callable[..., Any]:
    """The attention that Megatron-Core has without Transformer Engine, on two ranks."""
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(num_layers=1, hidden_size=64, num_attention_heads=4, context_parallel_size=2)
    attention: Callable[..., Any] = DotProductAttention(config, 1, AttnMaskType.causal, "self")
    return attention


CASES = [
    ("longca_plan", "causal_document"),
    ("torch_context_parallel", "causal"),
    ("torchtitan_flex", "causal_document"),
    ("megatron_core", "causal_document"),
]


def probe(stack: str, mask: str) -> list[dict[str, Any]]:
    """One row per finding, or one that says that there is none or what prevented the probe."""
    import longca
    from longca.errors import LongcaError

    row: dict[str, Any] = {"stack": stack, "mask": mask, "seqlen": SEQLEN, "documents": DOCUMENTS, "layers": 2}
    for package in ("torch", PACKAGES[stack.split("_")[0]]):
        try:
            row[package] = version(package)
        except PackageNotFoundError:
            row[package] = None
    settings: dict[str, Any] = {"documents": DOCUMENTS} if mask == "causal_document" else {}
    try:
        probed = longca.probe(f"{__file__}:{stack}", mask, SEQLEN, layers=2, ranks=2, vocab=VOCAB, **settings)
    except LongcaError as error:
        return [row | {"verdict": "not probed", "text": str(error)}]
    if probed.ok:
        return [row | {"ranks": result.ranks, "verdict": "honoured", "text": ""} for result in probed.results]
    return [row | {"ranks": found["ranks"], "verdict": found["finding"], "text": found["text"]} for found in probed.rows]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    rows = [row for case in CASES for row in probe(*case)]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for row in rows:
        print(f"{row['stack']:28} {row.get('ranks', ''):1} {row['verdict']:10} {row['text'][:400]}")
