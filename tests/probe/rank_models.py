"""Models that share a sequence over ranks by hand, each with a mistake that was seen in a framework."""

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather

VOCAB, WIDTH, SEQLEN = 24, 32, 96
DOCUMENTS = [29, 6, 11, 31, 19]


def own_keys():
    return _model(keys="own")


def mean_of_means():
    return _model(average="means")


def raises():
    raise RuntimeError("no such checkpoint")


def _model(keys="all", average="tokens"):
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(VOCAB, WIDTH, dtype=torch.float64)
    weights = torch.randn(4, WIDTH, WIDTH, dtype=torch.float64) / WIDTH**0.5
    head = torch.randn(WIDTH, VOCAB, dtype=torch.float64) / WIDTH**0.5
    rank, ranks = dist.get_rank(), dist.get_world_size()
    size = SEQLEN // ranks
    own = torch.arange(rank * size, (rank + 1) * size)
    document = torch.repeat_interleave(torch.arange(len(DOCUMENTS)), torch.tensor(DOCUMENTS))

    def run(ids):
        x = embedding(ids[own])
        normal = torch.nn.functional.layer_norm(x, (WIDTH,))
        q, k, v = (normal @ weight for weight in weights[:3])
        keys_of = torch.arange(SEQLEN)
        if keys == "own":
            keys_of = own
        else:
            k, v = torch.cat(all_gather(k)), torch.cat(all_gather(v))
        visible = (own[:, None] >= keys_of) & (document[own][:, None] == document[keys_of])
        out = x + torch.nan_to_num((q @ k.T / WIDTH**0.5).masked_fill(~visible, -torch.inf).softmax(1)) @ v @ weights[3]
        logits = out @ head
        return logits, own, _loss(logits.detach(), ids, own, document, average)

    run.embedding = embedding
    return run


def _loss(logits, ids, own, document, average):
    following = torch.minimum(own + 1, torch.tensor(SEQLEN - 1))
    labelled = (following > own) & (document[following] == document[own])
    losses = torch.nn.functional.cross_entropy(logits, ids[following], reduction="none")[labelled]
    if average == "means":
        total = losses.mean() / dist.get_world_size()
        dist.all_reduce(total)
        return total
    sums = torch.stack([losses.sum(), labelled.sum().double()])
    dist.all_reduce(sums)
    return sums[0] / sums[1]
