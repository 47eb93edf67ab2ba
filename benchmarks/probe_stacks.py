"""Probes context parallelism of other projects and of LongCA on two ranks: `python benchmarks/probe_stacks.py`.

With `--device cuda` these are NCCL ranks that share one GPU; rows of the other device stay in the file. It needs transformers, torchtitan
and megatron-core (`make frameworks` installs the last two to .venv/frameworks); a stack that cannot be imported gives a row that says so.
Each stack is a function that makes a model for `longca probe benchmarks/probe_stacks.py:STACK --ranks 2`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from probe_models import (
    DOCUMENTS,
    LAYERS,
    POSITIONS,
    SEQLEN,
    VOCAB,
    mesh,
    own_device,
    replace_compiled,
    with_flex,
    with_plan,
    with_sdpa,
    with_torchtitan,
)

OUT = Path("results/probe/stacks.jsonl")
RANKS = 2
PLACE = re.compile(r" \(/[^)]*\)")  # of a package on this machine
PACKAGES = {
    "torch": "torch",
    "longca": "transformers",
    "longca_plan_torch": "torch",
    "torchtitan": "torchtitan",
    "megatron": "megatron-core",
}


def _qwen3(attention: str) -> Any:
    from longca.integrations.tiny_models import tiny_model

    model = tiny_model("qwen3", attention, DOCUMENTS, LAYERS, VOCAB).module.to(own_device())
    return model if own_device().type == "cpu" else model.float()  # few kernels of GPUs have fp64


def longca_plan() -> Callable[..., Any]:
    """A model of transformers whose layers follow a plan, and its loss."""
    from longca import parallel
    from longca.integrations.transformers import prepare_batch, register

    cp = parallel.Group()
    model = _qwen3("longca")
    register(cp=cp)

    def run(ids: torch.Tensor) -> Any:
        batch = prepare_batch({"input_ids": ids[None], "labels": ids[None], "position_ids": POSITIONS.to(ids.device)}, model.config, cp)
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


def longca_plan_torch() -> Callable[..., Any]:
    """A model of plain torch with a plan."""
    from longca import masks

    return with_plan(masks.causal_document(SEQLEN, documents=DOCUMENTS), "torch")


torch_sdpa, torch_flex, torchtitan_attention = with_sdpa, with_flex, with_torchtitan


def torchtitan_flex() -> Callable[..., Any]:
    """torchtitan's Llama 3 with its own context parallelism of FlexAttention, which is not compiled on CPUs."""
    from torchtitan.distributed.context_parallel import apply_cp_to_forward, prepare_context_parallel_input
    from torchtitan.models.common.attention import FlexAttention
    from torchtitan.models.llama3 import llama3_configs

    torch.manual_seed(0)
    config = llama3_configs["debugmodel"](attn_backend="flex")
    config.layers = config.layers[:LAYERS]
    model, device = config.build(), own_device()
    model.init_states()
    model.to(device)
    replace_compiled(FlexAttention)
    rows, positions = torch.arange(SEQLEN, device=device)[None], POSITIONS.to(device)
    extra = {"positions": positions, "attention_masks": model.get_attention_masks(positions)}
    if dist.get_world_size() > 1:
        ranks = mesh()
        apply_cp_to_forward([layer.attention.inner_attention for layer in model.layers.values()], ranks)
        rows, _, extra = prepare_context_parallel_input(rows, rows, extra, ranks, device, "headtail")

    def run(ids: torch.Tensor) -> Any:
        return model(ids[rows], extra["positions"], extra["attention_masks"])[0, :, :VOCAB], rows[0]

    if device.type == "cuda":  # FlexAttention has no backward on a CPU
        run.embedding = model.tok_embeddings  # type: ignore[attr-defined]
    return run


def megatron_core() -> Callable[..., Any]:
    """The attention that Megatron-Core has without Transformer Engine, on two ranks."""
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(num_layers=1, hidden_size=64, num_attention_heads=4, context_parallel_size=2)
    attention: Callable[..., Any] = DotProductAttention(config, 1, AttnMaskType.causal, "self")
    return attention


CASES = {
    "cpu": [
        ("longca_plan", "causal_document"),
        ("torch_context_parallel", "causal"),
        ("torchtitan_flex", "causal_document"),
        ("megatron_core", "causal_document"),
    ],
    "cuda": [
        ("longca_plan_torch", "causal_document"),
        ("torch_sdpa", "causal"),
        ("torch_sdpa", "causal_document"),
        ("torch_flex", "causal_document"),
        ("torchtitan_attention", "causal_document"),
        ("longca_plan", "causal_document"),
        ("torchtitan_flex", "causal_document"),
        ("megatron_core", "causal_document"),
    ],
}


def probe(stack: str, mask: str, device: str) -> list[dict[str, Any]]:
    """One row per finding, or one that says that there is none or what prevented the probe."""
    import longca
    from longca.errors import LongcaError

    row: dict[str, Any] = {"stack": stack, "mask": mask, "device": device, "seqlen": SEQLEN, "documents": DOCUMENTS, "layers": LAYERS}
    for package in dict.fromkeys(("torch", PACKAGES.get(stack, PACKAGES[stack.split("_")[0]]))):
        try:
            row[package] = version(package)
        except PackageNotFoundError:
            row[package] = None
    settings: dict[str, Any] = {"documents": DOCUMENTS} if mask == "causal_document" else {}
    if device == "cuda":
        settings |= {"device": device, "ranks_per_gpu": RANKS}  # one GPU is enough
    try:
        probed = longca.probe(f"{__file__}:{stack}", mask, SEQLEN, layers=LAYERS, ranks=RANKS, vocab=VOCAB, **settings)
    except LongcaError as error:
        return [row | {"verdict": "not probed", "text": PLACE.sub("", str(error))}]
    if probed.ok:
        return [row | {"ranks": result.ranks, "verdict": "honoured", "text": ""} for result in probed.results]
    return [row | {"ranks": found["ranks"], "verdict": found["finding"], "text": found["text"]} for found in probed.rows]


def write(rows: list[dict[str, Any]], out: Path) -> None:
    """Replaces the rows of these stacks and their device."""
    known = [json.loads(line) for line in out.read_text().splitlines()] if out.is_file() else []
    new = {(row["device"], row["stack"]) for row in rows}
    others = [row for row in known if (row["device"], row["stack"]) not in new]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(json.dumps(row) + "\n" for row in sorted([*others, *rows], key=lambda row: str(row["device"]))))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=list(CASES), default="cpu")
    parser.add_argument("--stack", choices=sorted({stack for cases in CASES.values() for stack, _ in cases}), help="only this one")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help=f"rows as JSON lines (default {OUT})")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for stack, mask in CASES[args.device]:
        if args.stack in (None, stack):
            new = probe(stack, mask, args.device)
            rows += new
            write(rows, args.out)  # after each, so that a run that is stopped keeps its rows
            for row in new:
                print(f"{row['stack']:28} {row['mask']:16} {row.get('ranks', ''):1} {row['verdict']:10} {row['text'][:400]}", flush=True)
