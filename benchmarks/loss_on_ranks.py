"""Does context parallelism change the loss? Trains one small model several times, its attention each time computed in another way.

    PYTHONPATH=src python benchmarks/loss_on_ranks.py > results/cpu/loss_on_ranks.jsonl

Weights, data and their order are the same in all runs but "other weights". Attention is bf16, everything else fp32. Ranks are threads of
this process, so their arithmetic is that of real ranks. The text is random words.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longca import masks
from longca.kernels.base import Case
from longca.kernels.functional import attention
from longca.masks import AnyMask
from longca.parallel import ranges
from longca.parallel import registry as methods
from longca.parallel.comm.local import World
from longca.parallel.method import Plan, make_plan
from longca.parallel.primitives.program import Program, Saved

TOKENS, WORDS, LAYERS, STEPS, SEED = 512, 128, 2, 100, 0
HEADS, KV_HEADS, SIZE = 8, 2, 16
KERNEL = "torch:chunked"
Attend = Callable[[Tensor, Tensor, Tensor, AnyMask], Tensor]  # q, k, v [L, H, D] in bf16
RANKED = [("ulysses", 2), ("ring_p2p", 8), ("magi", 2), ("magi", 8), ("magi", 32)]


class Model(nn.Module):
    """A transformer whose attention is given."""

    def __init__(self) -> None:
        super().__init__()
        width = HEADS * SIZE
        self.embed = nn.Embedding(WORDS, width)
        nn.init.normal_(self.embed.weight, std=0.05)
        self.qkv = nn.ModuleList(nn.Linear(width, (HEADS + 2 * KV_HEADS) * SIZE) for _ in range(LAYERS))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(LAYERS))
        self.mlp = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(LAYERS))

    def forward(self, words: Tensor, mask: AnyMask, attend: Attend) -> Tensor:
        x = self.embed(words)
        for qkv, out, mlp in zip(self.qkv, self.out, self.mlp, strict=True):
            split = qkv(F.rms_norm(x, x.shape[-1:])).bfloat16().unflatten(-1, (-1, SIZE)).split([HEADS, KV_HEADS, KV_HEADS], 1)
            x = x + out(attend(*(part.contiguous() for part in split), mask).float().flatten(1))
            x = x + mlp(F.rms_norm(x, x.shape[-1:]))
        return F.linear(F.rms_norm(x, x.shape[-1:]), self.embed.weight)


class OnRanks(torch.autograd.Function):
    """The attention of a plan, of whole tensors."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, plan: Plan, world: World, programs: list[Program]) -> Tensor:
        own = [torch.from_numpy(ranges.tokens(plan.rows(rank))) for rank in range(plan.ranks)]

        @torch.no_grad()  # which each thread decides for itself
        def forward(rank: int) -> tuple[Tensor, Saved]:
            return programs[rank].forward(q[own[rank]], k[own[rank]], v[own[rank]])

        parts = world.run(forward)
        ctx.kept = world, programs, own, [saved for _, saved in parts]
        return _whole(own, [out for out, _ in parts])

    @staticmethod
    def backward(ctx: Any, *douts: Tensor) -> tuple[Tensor | None, ...]:
        world, programs, own, saved = ctx.kept
        dout = douts[0].contiguous()

        @torch.no_grad()
        def backward(rank: int) -> tuple[Tensor, ...]:
            return programs[rank].backward(dout[own[rank]], saved[rank])

        parts = world.run(backward)
        return *(_whole(own, list(gradients)) for gradients in zip(*parts, strict=True)), None, None, None


def _whole(own: list[Tensor], parts: list[Tensor]) -> Tensor:
    whole = torch.full((sum(map(len, own)), *parts[0].shape[1:]), float("nan"), dtype=parts[0].dtype)
    for tokens, part in zip(own, parts, strict=True):
        whole[tokens] = part
    return whole


def on_ranks(method: str, ranks: int) -> Attend:
    case = Case(TOKENS, TOKENS, HEADS, KV_HEADS, SIZE, SIZE, "bf16")

    @lru_cache(maxsize=1)  # all layers of a step share a plan
    def planned(mask: AnyMask) -> tuple[Plan, World, list[Program]]:
        plan, world = make_plan(methods.get(method), mask, case, ranks, None, KERNEL), World(ranks)
        return plan, world, [plan.program(comm) for comm in world.comms()]

    return lambda q, k, v, mask: OnRanks.apply(q, k, v, *planned(mask))  # type: ignore[no-any-return, no-untyped-call]


def in_one_call(kernel: str, dtype: torch.dtype = torch.bfloat16) -> Attend:
    return lambda q, k, v, mask: attention(q.to(dtype), k.to(dtype), v.to(dtype), mask, kernel=kernel).to(q.dtype)


def text(seed: int) -> Iterator[tuple[Tensor, AnyMask]]:
    """Packs of documents. Half of the words follow from the word before, and most others repeat the first word of their document, which
    only attention can find."""
    for step in range(STEPS):
        mask, rng, words = masks.causal_document(TOKENS, seed=step), Random(f"{seed}/{step}"), list[int]()
        for length in mask.documents or ():
            first = word = rng.randrange(WORDS)
            for _ in range(length):
                words.append(word)
                chance = rng.random()
                word = (3 * word + 1) % WORDS if chance < 0.5 else first if chance < 0.9 else rng.randrange(WORDS)
        yield torch.tensor(words), mask


def losses(attend: Attend, seed: int = SEED) -> list[float]:
    """Returns the loss of each step."""
    torch.manual_seed(seed)
    model, found = Model(), list[float]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for words, mask in text(SEED):
        loss = F.cross_entropy(model(words, mask, attend)[:-1], words[1:])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        found.append(loss.item())
    return found


def main() -> None:
    torch.set_num_threads(1)
    runs: dict[str, Callable[[], list[float]]] = {
        f"one call, {KERNEL}": lambda: losses(in_one_call(KERNEL)),
        "one call, sdpa:flash": lambda: losses(in_one_call("sdpa:flash")),
        "one call in fp32": lambda: losses(in_one_call(KERNEL, torch.float32)),
        "one call, other weights": lambda: losses(in_one_call(KERNEL), SEED + 1),
    }
    runs |= {f"{method} on {ranks} ranks": lambda m=method, r=ranks: losses(on_ranks(m, r)) for method, ranks in RANKED}  # type: ignore[misc]
    for name in sys.argv[1:] or runs:
        print(json.dumps({"run": name, "losses": [round(loss, 6) for loss in runs[name]()]}), flush=True)


if __name__ == "__main__":
    main()
