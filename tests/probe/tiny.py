"""A tiny transformer whose masks, positions and loss can be made wrong; and readings of it as if several ranks had made them."""

from dataclasses import replace

import numpy as np
import torch

from longca.probe.probe import examine, question
from longca.probe.reading import read

VOCAB, WIDTH = 24, 32


class Tiny(torch.nn.Module):
    """Layers of attention with the given [S, S] masks; positions are learned, and `positions` says which one each token has."""

    def __init__(self, layers, positions, sinks=None):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(VOCAB, WIDTH, dtype=torch.float64)
        self.places = torch.nn.Embedding(len(positions), WIDTH, dtype=torch.float64)
        self.weights = torch.nn.ParameterList(torch.randn(4, WIDTH, WIDTH, dtype=torch.float64) / WIDTH**0.5 for _ in layers)
        self.head = torch.nn.Linear(WIDTH, VOCAB, dtype=torch.float64)
        if sinks is not None:
            self.sinks = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.layers, self.positions, self.use_sinks = [torch.as_tensor(layer) for layer in layers], torch.as_tensor(positions), sinks

    def forward(self, ids):
        x = self.embedding(ids) + self.places(self.positions)
        for weights, layer in zip(self.weights, self.layers, strict=True):
            normal = torch.nn.functional.layer_norm(x, (WIDTH,))
            q, k, v = (normal @ weight for weight in weights[:3])
            scores = (q @ k.T / WIDTH**0.5).masked_fill(~layer, -torch.inf)
            if self.use_sinks is not None:
                sink = self.sinks if self.use_sinks else torch.zeros_like(self.sinks)
                scores = torch.cat([scores, sink.expand(len(ids), 1)], 1)
            p = torch.nan_to_num(scores.softmax(1))[:, : len(ids)]
            x = x + p @ v @ weights[3]
        return self.head(x)


def restarting(mask):
    return np.concatenate([np.arange(length) for length in mask.documents or (mask.seqlen_q,)])


def probed(model, masks, owner=None, probes=48, alone=None, wrap=None):
    """The examined readings of a model, as one rank or as the ranks of `owner`."""
    seqlen = masks[0].seqlen_q
    owner = np.zeros(seqlen, np.int64) if owner is None else owner
    args = question(masks, owner, VOCAB, probes, 0)
    whole = read(wrap(model, args) if wrap else model, torch.tensor(args["ids"]), args["probes"], args["rows"], VOCAB)
    parts = [cut(whole, np.flatnonzero(owner == rank)) for rank in range(owner.max() + 1)]
    return examine(masks, parts, args, alone)


def cut(reading, rows):
    gradient = None if reading.gradient is None else reading.gradient[:, rows]
    return replace(reading, tokens=reading.tokens[rows], outputs=reading.outputs[rows], change=reading.change[rows], gradient=gradient)


def contiguous(seqlen, ranks):
    return np.arange(seqlen) * ranks // seqlen


def zigzag(seqlen, ranks):
    chunk = np.arange(seqlen) * 2 * ranks // seqlen
    return np.minimum(chunk, 2 * ranks - 1 - chunk)
