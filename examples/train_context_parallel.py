"""Trains a small transformer on one rank, then with the sequence shared by two ranks, and prints both losses: they are the same.

python examples/train_context_parallel.py            # both runs, one after the other
torchrun --nproc-per-node 2 examples/train_context_parallel.py   # only the second, as in a job of your own
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

import longca
from longca import masks, parallel

STEPS, SEQLEN, WIDTH, HEADS, WORDS = 5, 331, 32, 4, 50
METHOD = os.environ.get("METHOD", "usp")
# three documents of lengths that no number of ranks divides, each seeing only itself
MASK = masks.causal_document(SEQLEN, documents=[150, 1, 180])

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Layer(nn.Module):
    """Attention and a perceptron, on as many tokens as it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.perceptron = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor, attend: Attend) -> torch.Tensor:
        q, k, v = self.qkv(self.before(x)).view(len(x), 3, HEADS, -1).unbind(1)
        x = x + self.out(attend(q, k, v).flatten(1))
        return x + self.perceptron(self.between(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(SEQLEN, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor, places: torch.Tensor, attend: Attend) -> torch.Tensor:
        x = self.words(words) + self.places(places)
        for layer in self.layers:
            x = layer(x, attend)
        return self.head(x)


def train(ranks: int, rank: int) -> list[float]:
    """The losses of a few steps; every rank has its own tokens and the same weights."""
    torch.manual_seed(0)
    model = Model()
    text = torch.randint(WORDS, (SEQLEN + 1,))
    words, wanted, places = text[:-1], text[1:], torch.arange(SEQLEN)
    if ranks > 1:
        owned = parallel.shards(MASK, HEADS, method=METHOD, ranks=ranks)
        words, wanted, places = (parallel.shard(x, owned, rank) for x in (words, wanted, places))

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if ranks > 1:
            return parallel.attention(q, k, v, MASK, method=METHOD)
        return longca.attention(q, k, v, MASK, kernel="torch:chunked")

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        # a part of the mean over all tokens, so that losses and gradients of the ranks add up
        loss = nn.functional.cross_entropy(model(words, places, attend), wanted, reduction="sum") / SEQLEN
        loss.backward()
        total = loss.detach().clone()
        if ranks > 1:
            dist.all_reduce(total)
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        losses.append(float(total))
    return losses


def main() -> None:
    if "RANK" in os.environ:  # started by torchrun
        dist.init_process_group("gloo")
        losses = train(dist.get_world_size(), dist.get_rank())
        if dist.get_rank() == 0:
            print(json.dumps(losses))
        dist.destroy_process_group()
        return
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
    # two ranks on one machine need no more than its own address
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"} if sys.platform == "linux" else dict(os.environ)
    alone = train(1, 0)
    print("1 rank ", " ".join(f"{loss:.6f}" for loss in alone))
    answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    shared = json.loads(answer.strip().splitlines()[-1])
    print("2 ranks", " ".join(f"{loss:.6f}" for loss in shared))
    print(f"largest difference {max(abs(a - b) for a, b in zip(alone, shared, strict=True)):.1e}")


if __name__ == "__main__":
    main()
