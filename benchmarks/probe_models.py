"""Tiny models of plain torch for `probe_stacks.py`, and what they share a sequence over ranks with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

SEQLEN, DOCUMENTS, VOCAB = 512, [153, 59, 120, 16, 164], 64  # FlexAttention under context parallelism takes multiples of 256 on two ranks
POSITIONS = torch.cat([torch.arange(length) for length in DOCUMENTS])[None]
HEADS, HEAD_DIM, LAYERS = 4, 16, 2
EXACT = {"FLOAT32_PRECISION": "'ieee'"}  # FlexAttention's Triton kernels would compute fp32 as tf32, which hides small effects


def own_device() -> torch.device:
    """The GPU of this rank, or the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def mesh() -> Any:
    return init_device_mesh(own_device().type, (dist.get_world_size(),), mesh_dim_names=("cp",))


class Layer(nn.Module):
    """Attention with a residual. `attend` takes and returns [1, heads, tokens, head_dim]."""

    def __init__(self, attend: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        width = HEADS * HEAD_DIM
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.attend = attend

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(2, (HEADS, HEAD_DIM)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, 2))
        result: torch.Tensor = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return result


class Tiny(nn.Module):
    """A language model in fp32, the same on all ranks: from ids and positions [1, tokens] to logits [1, tokens, vocab]."""

    def __init__(self, attend: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        width = HEADS * HEAD_DIM
        self.embedding, self.places = nn.Embedding(VOCAB, width), nn.Embedding(SEQLEN, width)
        self.layers = nn.ModuleList(Layer(attend) for _ in range(LAYERS))
        self.head = nn.Linear(width, VOCAB)
        self.to(own_device())

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids) + self.places(positions)
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(x)
        return logits


def with_plan(mask: Any, kernel: str) -> Callable[..., Any]:
    """A tiny model whose attention is that of a plan of LongCA, and its loss."""
    from longca import parallel

    cp = parallel.Group()
    plan = cp.plan(mask, heads=(HEADS, HEADS), head_dim=HEAD_DIM, kernel=kernel)
    model = Tiny(lambda q, k, v: plan.attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2))

    def run(ids: torch.Tensor) -> Any:
        batch = plan.shard({"ids": ids[None], "positions": POSITIONS.to(ids.device), "labels": ids[None]}, axis=1)
        logits = model(batch["ids"], batch["positions"])
        losses = nn.functional.cross_entropy(logits[0], batch["shift_labels"][0], reduction="none")
        return logits[0], plan.rows, plan.mean(losses).detach()

    run.embedding = model.embedding  # type: ignore[attr-defined]
    return run


def with_sdpa() -> Callable[..., Any]:
    """A tiny model inside torch's context_parallel. SDPA gets is_causal and no mask, as accelerate calls it for packed documents, too."""
    from torch.distributed.tensor.experimental import context_parallel
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):  # the only fused one with fp32, which shows small effects
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    model, ranks, entered = Tiny(attend), mesh(), ExitStack()

    def run(ids: torch.Tensor) -> Any:
        entered.close()  # only now: torch wants backward passes inside the context as well
        own, positions, rows = ids[None].clone(), POSITIONS.to(ids.device, copy=True), torch.arange(SEQLEN, device=ids.device)
        buffers = [own, positions, rows]
        entered.enter_context(context_parallel(ranks, buffers=buffers, buffer_seq_dims=[1, 1, 0], no_restore_buffers=set(buffers)))
        return model(own, positions)[0], rows

    run.embedding = model.embedding  # type: ignore[attr-defined]
    return run


def with_flex() -> Callable[..., Any]:
    """A tiny model with FlexAttention and what torch has for its context parallelism, on which torchtitan's is built."""
    from torch.distributed.tensor.experimental._attention import _context_parallel_shard, _ContextParallel, _HeadTailLoadBalancer
    from torch.distributed.tensor.parallel import parallelize_module
    from torch.nn.attention.flex_attention import create_block_mask

    device, ranks = own_device(), mesh()
    attention = flex_module()
    rows, positions = torch.arange(SEQLEN, device=device)[None], POSITIONS.to(device)
    document = torch.repeat_interleave(torch.arange(len(DOCUMENTS)), torch.tensor(DOCUMENTS)).to(device)

    def visible(_: Any, __: Any, row: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (row >= key) & (document[row] == document[key])

    mask = create_block_mask(visible, None, None, SEQLEN, SEQLEN, device=device)
    balancer = _HeadTailLoadBalancer(SEQLEN, ranks.size(), device)
    if ranks.size() > 1:
        rows, positions, mask = _context_parallel_shard(ranks, [rows, positions, mask], [1, 1, 2], balancer)
        parallelize_module(attention, ranks, _ContextParallel(seq_dim=2, attention_type=_ContextParallel.AttentionType.FLEX))
    model = Tiny(lambda q, k, v: attention(q, k, v, mask))

    def run(ids: torch.Tensor) -> Any:
        return model(ids[rows], positions)[0], rows[0]

    if device.type == "cuda":  # FlexAttention has no backward on a CPU
        run.embedding = model.embedding  # type: ignore[attr-defined]
    return run


def with_torchtitan() -> Callable[..., Any]:
    """A tiny model with torchtitan's attention, masks and context parallelism, which run with older torch than its models do."""
    from torch.nn.attention.flex_attention import and_masks, create_block_mask
    from torchtitan.distributed.context_parallel import apply_cp_to_forward, prepare_context_parallel_input
    from torchtitan.models.common.attention import FlexAttention, get_causal_mask_mod, get_document_mask_mod

    device, ranks = own_device(), mesh()
    replace_compiled(FlexAttention)
    attention = FlexAttention(FlexAttention.Config())
    rows, positions = torch.arange(SEQLEN, device=device)[None], POSITIONS.to(device)
    visible = and_masks(get_causal_mask_mod(), get_document_mask_mod(positions))
    extra = {"positions": positions, "attention_masks": create_block_mask(visible, 1, None, SEQLEN, SEQLEN, device=device)}
    if ranks.size() > 1:
        apply_cp_to_forward([attention], ranks)
        rows, _, extra = prepare_context_parallel_input(rows, rows, extra, ranks, device, "headtail")

    def attend(*q_k_v: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = attention(*(x.transpose(1, 2) for x in q_k_v), attention_masks=extra["attention_masks"])
        return result.transpose(1, 2)

    model = Tiny(attend)

    def run(ids: torch.Tensor) -> Any:
        return model(ids[rows], extra["positions"])[0], rows[0]

    if device.type == "cuda":
        run.embedding = model.embedding  # type: ignore[attr-defined]
    return run


def replace_compiled(attention: Any) -> None:
    """torchtitan's FlexAttention tries hundreds of kernels when it compiles; here it takes the usual one."""
    for name in [name for name in vars(attention) if "compiled" in name]:
        setattr(attention, name, staticmethod(flex()))


def flex_module() -> nn.Module:
    """FlexAttention as a module, compiled on GPUs."""
    attend = flex()

    class Flex(nn.Module):
        def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any) -> torch.Tensor:
            result: torch.Tensor = attend(query, key, value, block_mask=mask)
            return result

    return Flex()


def flex() -> Callable[..., Any]:
    """FlexAttention in full fp32: compiled on GPUs, where torch has no other good one, and plain on CPUs."""
    from torch.nn.attention.flex_attention import flex_attention

    if own_device().type == "cpu":
        return flex_attention
    compiled = torch.compile(flex_attention, dynamic=False)

    def attend(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs | {"kernel_options": EXACT})

    return attend
