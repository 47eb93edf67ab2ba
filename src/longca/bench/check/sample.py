"""Some tokens of a wrong tensor and what they are computed from, to compute them as a kernel with a mistake would."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from longca.kernels.base import Case
from longca.kernels.lower import Visibility
from longca.masks import AnyMask

TILES = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 512)
FORWARD, GRADIENTS, ROWS, KEYS = ("out", "lse"), ("dq", "dk", "dv"), ("out", "lse", "dq"), ("dk", "dv")
Change = Callable[[torch.Tensor], torch.Tensor]


def unchanged(x: torch.Tensor) -> torch.Tensor:
    return x


class OfHeads(NamedTuple):
    """What depends on the query heads that are looked at: [H, rows, D], and lse [H, rows]."""

    q: torch.Tensor
    dout: torch.Tensor
    out: torch.Tensor
    lse: torch.Tensor


@dataclass(frozen=True)
class Sample:
    """What is recomputed: some rows with all their keys or, of dk and dv, some keys with all their rows; of some heads, in fp64."""

    tensor: str
    case: Case
    mask: AnyMask
    rows: torch.Tensor
    keys: torch.Tensor
    heads: torch.Tensor  # query heads
    of: OfHeads
    k: torch.Tensor  # [keys, all KV heads, D], as v
    v: torch.Tensor
    every_k: torch.Tensor  # of all keys
    take: Callable[[torch.Tensor], OfHeads]  # what depends on the query heads, of others
    got: torch.Tensor  # the tensor itself [heads, tokens, size], and the right one
    right: torch.Tensor
    wrong: torch.Tensor  # [heads, tokens]

    def of_query_heads(self, heads: torch.Tensor) -> Sample:
        return replace(self, heads=heads, of=self.take(heads))

    def seen(self, mask: AnyMask | None = None) -> torch.Tensor:
        """[rows, all keys]"""
        visible: torch.Tensor = Visibility(mask or self.mask, self.case.device)(
            self.rows, 0, self.case.seqlen_k, int(self.heads[0]) // self.case.group
        )
        return visible

    @property
    def kv_heads(self) -> torch.Tensor:
        """The KV head of each query head."""
        return self.heads // self.case.group

    def scores(
        self,
        visible: torch.Tensor | None = None,
        factor: float = 1.0,
        dims: int | None = None,
        kv: torch.Tensor | None = None,
        cap: bool = True,
    ) -> torch.Tensor:
        """[H, rows, keys], multiplied by a factor before they are capped."""
        visible, k = self.seen() if visible is None else visible, self.of_heads(self.k, kv)
        scores = (self.of.q[..., :dims] @ k[..., :dims].mT) * (factor * self.case.softmax_scale)
        if self.case.softcap and cap:
            scores = (scores / self.case.softcap).tanh() * self.case.softcap
        return scores.masked_fill(~visible[:, self.keys], -math.inf)

    def largest(self) -> torch.Tensor:
        """The largest score of each row, over all keys [H, rows]."""
        keys = torch.arange(self.case.seqlen_k, device=self.keys.device)
        return replace(self, keys=keys, k=self.every_k.double()).scores().amax(-1)

    def of_heads(self, x_LHD: torch.Tensor, kv: torch.Tensor | None = None) -> torch.Tensor:
        """A tensor of KV heads, for each of the query heads."""
        return x_LHD[:, self.kv_heads if kv is None else kv].transpose(0, 1)

    def forward(self, scores: torch.Tensor, kv: torch.Tensor | None = None, low: Change = unchanged) -> torch.Tensor:
        """out or lse of these scores."""
        lse = scores.logsumexp(-1)
        if self.tensor == "lse":
            return lse[..., None]
        return low((scores - lse.clamp_min(-1e30)[..., None]).exp()) @ self.of_heads(self.v, kv)

    def backward(self, p: torch.Tensor, delta: float = 1.0, low: Change = unchanged, kv: torch.Tensor | None = None) -> torch.Tensor:
        """dq, dk or dv of these probabilities."""
        if self.tensor == "dv":
            return self.add_heads(low(p).mT @ self.of.dout)
        ds = self.dscores(p, delta, kv)
        return low(ds) @ self.of_heads(self.k, kv) if self.tensor == "dq" else self.add_heads(low(ds).mT @ self.of.q)

    def dscores(self, p: torch.Tensor, delta: float = 1.0, kv: torch.Tensor | None = None, cap: bool = True) -> torch.Tensor:
        of_rows = (self.of.dout * self.of.out).sum(-1, keepdim=True) * delta
        ds = p * (self.of.dout @ self.of_heads(self.v, kv).mT - of_rows) * self.case.softmax_scale
        if not self.case.softcap or not cap:
            return ds
        every = torch.ones(len(self.rows), self.case.seqlen_k, dtype=torch.bool, device=p.device)
        return ds * (1 - (self.scores(every, kv=kv) / self.case.softcap).square())

    def add_heads(self, x_HLD: torch.Tensor) -> torch.Tensor:
        return x_HLD.reshape(-1, self.case.group, *x_HLD.shape[1:]).sum(1)

    def p(self, scores: torch.Tensor) -> torch.Tensor:
        """The probabilities of a backward: from the right lse."""
        return (scores - self.of.lse.clamp_min(-1e30)[..., None]).exp()

    def of_scores(self, scores: torch.Tensor) -> torch.Tensor:
        """The tensor, where these are the scores."""
        return self.forward(scores) if self.tensor in FORWARD else self.backward(self.p(scores))


class Form(NamedTuple):
    """One form of a mistake, and the tensor that it gives."""

    name: str
    words: str
    tensor: torch.Tensor


Mistake = Callable[[Sample], Iterator[Form]]
MISTAKES: list[tuple[tuple[str, ...], Mistake]] = []


def mistake(*tensors: str) -> Callable[[Mistake], Mistake]:
    """Makes a function one of the mistakes that are tried on these wrong tensors."""

    def add(function: Mistake) -> Mistake:
        MISTAKES.append((tensors, function))
        return function

    return add
