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
DOCUMENTS = (150, 1, 180)
MASK = masks.causal_document(SEQLEN, documents=DOCUMENTS)

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


def train(cp: parallel.Group | None = None) -> list[float]:
    """Returns the losses of a few steps; every rank of a group has its own tokens and the same weights."""
    torch.manual_seed(0)
    model, text = Model(), torch.randint(WORDS, (SEQLEN,))
    batch = {"words": text, "places": torch.arange(SEQLEN), "labels": text}
    if cp is not None:
        plan = cp.plan(MASK, heads=(HEADS, HEADS), head_dim=WIDTH // HEADS, method=METHOD)
        batch, attend, mean = plan.shard(batch), plan.attention, plan.mean  # labels become shift_labels
    else:
        attend, mean = attend_alone, mean_alone
        batch["shift_labels"] = text.roll(-1).index_fill(0, torch.tensor(DOCUMENTS).cumsum(0) - 1, -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        logits = model(batch["words"], batch["places"], attend)
        loss = mean(nn.functional.cross_entropy(logits, batch["shift_labels"], reduction="none"))
        optimizer.zero_grad()
        loss.backward()
        if cp is not None:  # gradients are averaged over ranks, as FSDP and DDP do
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= cp.size
        optimizer.step()
        losses.append(loss.item())
    return losses


def attend_alone(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return longca.attention(q, k, v, MASK, kernel="torch:chunked")


def mean_alone(losses: torch.Tensor) -> torch.Tensor:
    return losses.sum() / (SEQLEN - len(DOCUMENTS))  # the last token of a document has no label


def main() -> None:
    if "RANK" in os.environ:  # started by torchrun
        dist.init_process_group("gloo")
        with parallel.Group() as cp:
            losses = train(cp)
        if dist.get_rank() == 0:
            print(json.dumps(losses))
        dist.destroy_process_group()
        return
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
    # two ranks on one machine need no more than its own address
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"} if sys.platform == "linux" else dict(os.environ)
    alone = train()
    print("1 rank ", " ".join(f"{loss:.6f}" for loss in alone))
    answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    shared = json.loads(answer.strip().splitlines()[-1])
    print("2 ranks", " ".join(f"{loss:.6f}" for loss in shared))
    print(f"largest difference {max(abs(a - b) for a, b in zip(alone, shared, strict=True)):.1e}")


if __name__ == "__main__":
    main()
