"""Known mistakes of kernels. Each is a short function that computes a few tokens of a wrong tensor as a kernel with this mistake would; a
mistake with several forms yields each of them. Adding one is one function with the decorator `@mistake`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from longca.kernels.base import Case
from longca.kernels.lower import Visibility
from longca.masks import AnyMask

TILES = (16, 32, 64, 128, 256)
FORWARD, GRADIENTS, ROWS, KEYS = ("out", "lse"), ("dq", "dk", "dv"), ("out", "lse", "dq"), ("dk", "dv")
LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Sample:
    """What is recomputed: some rows with all their keys or, of dk and dv, some keys with all their rows; of some heads, in fp64."""

    tensor: str
    case: Case
    mask: AnyMask
    rows: torch.Tensor
    keys: torch.Tensor
    heads: torch.Tensor  # query heads
    q: torch.Tensor  # [H, rows, D], as dout and out; lse [H, rows]
    dout: torch.Tensor
    k: torch.Tensor  # [keys, all KV heads, D], as v
    v: torch.Tensor
    out: torch.Tensor
    lse: torch.Tensor
    got: torch.Tensor  # the tensor itself [heads, tokens, size], and the right one
    right: torch.Tensor

    def seen(self, mask: AnyMask | None = None) -> torch.Tensor:
        """[rows, all keys]"""
        visible: torch.Tensor = Visibility(mask or self.mask, self.case.device)(
            self.rows, 0, self.case.seqlen_k, int(self.heads[0]) // self.case.group
        )
        return visible

    def scores(self, visible: torch.Tensor | None = None, scale: float = 0.0, dims: int = 0, modulo: bool = False) -> torch.Tensor:
        visible, k = self.seen() if visible is None else visible, self.of_heads(self.k, modulo)
        scores = (self.q[..., : dims or None] @ k[..., : dims or None].mT) * (scale or self.case.softmax_scale)
        if self.case.softcap:
            scores = (scores / self.case.softcap).tanh() * self.case.softcap
        return scores.masked_fill(~visible[:, self.keys], -math.inf)

    def of_heads(self, x_LHD: torch.Tensor, modulo: bool = False) -> torch.Tensor:
        """A tensor of KV heads, for each of the query heads."""
        of_kv = self.heads % self.case.heads_kv if modulo else self.heads // self.case.group
        return x_LHD[:, of_kv].transpose(0, 1)

    def forward(
        self, scores: torch.Tensor, modulo: bool = False, low: Callable[[torch.Tensor], torch.Tensor] = lambda p: p
    ) -> torch.Tensor:
        """out or lse of these scores."""
        lse = scores.logsumexp(-1)
        if self.tensor == "lse":
            return lse[..., None]
        return low((scores - lse.clamp_min(-1e30)[..., None]).exp()) @ self.of_heads(self.v, modulo)

    def backward(self, p: torch.Tensor, delta: float = 1.0, low: Callable[[torch.Tensor], torch.Tensor] = lambda x: x) -> torch.Tensor:
        """dq, dk or dv of these probabilities."""
        if self.tensor == "dv":
            return self.add_heads(low(p).mT @ self.dout)
        ds = self.dscores(p, delta)
        return low(ds) @ self.of_heads(self.k) if self.tensor == "dq" else self.add_heads(low(ds).mT @ self.q)

    def dscores(self, p: torch.Tensor, delta: float = 1.0) -> torch.Tensor:
        of_rows = (self.dout * self.out).sum(-1, keepdim=True) * delta
        return p * (self.dout @ self.of_heads(self.v).mT - of_rows) * self.case.softmax_scale

    def add_heads(self, x_HLD: torch.Tensor) -> torch.Tensor:
        return x_HLD.reshape(-1, self.case.group, *x_HLD.shape[1:]).sum(1)

    def p(self, scores: torch.Tensor) -> torch.Tensor:
        """The probabilities of a backward: from the right lse."""
        return (scores - self.lse.clamp_min(-1e30)[..., None]).exp()

    def with_keys(self, visible: torch.Tensor) -> torch.Tensor:
        """The tensor, where rows see these keys."""
        scores = self.scores(visible)
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


@mistake("out", *GRADIENTS)
def zero(s: Sample) -> Iterator[Form]:
    yield Form("zero", "it is 0 there, as if these tokens were left out", torch.zeros_like(s.right))


@mistake("out", *GRADIENTS)
def factor(s: Sample) -> Iterator[Form]:
    both = s.got.isfinite() & s.right.isfinite()
    c = float((s.got * s.right)[both].sum() / s.right[both].square().sum().clamp_min(1e-300))
    group, root = s.case.group, s.case.head_dim**0.5
    known = {"1 / the softmax scale": 1 / s.case.softmax_scale, "the softmax scale": s.case.softmax_scale}
    known |= {"the square root of the head size": root, "1 / the square root of the head size": 1 / root}
    known |= {"the number of query heads per KV head": group, "1 / the number of query heads per KV head": 1 / group} if group > 1 else {}
    known |= {"1 / ln 2": 1 / math.log(2), "ln 2": math.log(2)}
    meaning = next((f" ({value:.4g} is {words})" for words, value in known.items() if abs(c / value - 1) < 0.01), "")
    if abs(c) > 1e-3:
        yield Form("factor", f"it is {c:.5g} times the right one{meaning}", c * s.right)


@mistake("lse")
def lse_forms(s: Sample) -> Iterator[Form]:
    largest = s.scores().amax(-1)[..., None]
    yield Form("lse base 2", "it is log2 instead of the natural log", s.right / math.log(2))
    yield Form("lse base 10", "it is log10 instead of the natural log", s.right / math.log(10))
    yield Form("lse is a log2 twice", "it is a natural log taken for log2", s.right * math.log(2))
    yield Form("lse sign", "it has the wrong sign", -s.right)
    yield Form("lse is the maximum", "it is the maximum of the scores, without the log of the sum", largest)
    yield Form("lse without the maximum", "it is the log of the sum without the maximum", s.right - largest)
    yield Form("lse unscaled", "it is that of the scores without the softmax scale", s.forward(s.scores(scale=1.0)))
    yield Form("lse unscaled maximum", "the maximum in it is without the softmax scale", s.right - largest + largest / s.case.softmax_scale)
    of_finite = (s.got - s.right)[(s.got - s.right).isfinite()]
    if len(of_finite):
        offset = float(of_finite.mean())
        yield Form("lse offset", f"it is the right one {'plus' if offset > 0 else 'minus'} {abs(offset):.4g}", s.right + offset)


@mistake("out", "lse")
def wrong_scale(s: Sample) -> Iterator[Form]:
    yield Form("no scale", "the scores are without the softmax scale", s.forward(s.scores(scale=1.0)))
    yield Form("scale twice", "the softmax scale is applied twice", s.forward(s.scores(scale=s.case.softmax_scale**2)))


@mistake(*FORWARD, *GRADIENTS)
def wrong_ends(s: Sample) -> Iterator[Form]:
    seen, keys = s.seen(), torch.arange(s.case.seqlen_k, device=s.rows.device)
    first = torch.where(seen.any(1), seen.int().argmax(1), s.case.seqlen_k)[:, None]
    last = torch.where(seen.any(1), s.case.seqlen_k - 1 - seen.flip(1).int().argmax(1), -1)[:, None]
    number = (seen & ~seen.roll(1, 1).index_fill(1, keys[:1], False)).cumsum(1)
    if int(number.max()) > 1:
        yield Form("second interval ignored", "only the first interval of keys is seen", s.with_keys(seen & (number == 1)))
        yield Form("first interval ignored", "only the last interval of keys is seen", s.with_keys(seen & (number == number[:, -1:])))
        yield Form("gap ignored", "the keys between two intervals are seen too", s.with_keys((keys >= first) & (keys <= last)))
    yield Form("last key missing", "the last key of a row is missing", s.with_keys(seen & (keys != last)))
    yield Form("first key missing", "the first key of a row is missing", s.with_keys(seen & (keys != first)))
    yield Form("one key behind", "a row sees one key too many at its end", s.with_keys(seen | (keys == last + 1)))
    yield Form("one key before", "a row sees one key too many at its start", s.with_keys(seen | (keys == first - 1)))
    others = "keys before its document" if s.mask.documents is not None else "keys before its first one, back to key 0"
    yield Form("start ignored", f"a row also sees {others}", s.with_keys((keys <= last) & (last >= 0)))
    yield Form("end ignored", "a row also sees all keys behind its last one", s.with_keys(keys >= first))
    yield Form("mask ignored", "a row sees all keys", s.with_keys(torch.ones_like(seen)))


@mistake(*FORWARD, *GRADIENTS)
def tile_edges(s: Sample) -> Iterator[Form]:
    seen, keys = s.seen(), torch.arange(s.case.seqlen_k, device=s.rows.device)
    for tile in TILES:
        if tile < s.case.seqlen_k:
            partly = torch.nn.functional.pad(seen, (0, -s.case.seqlen_k % tile)).unflatten(1, (-1, tile)).any(2)
            yield Form(
                "tiles unmasked",
                f"a row sees all keys of each tile of {tile} keys that it sees in part",
                s.with_keys(partly[:, keys // tile]),
            )
            yield Form(
                "last key of a tile missing", f"the last of every {tile} keys is missing", s.with_keys(seen & (keys % tile != tile - 1))
            )
            yield Form("first key of a tile missing", f"the first of every {tile} keys is missing", s.with_keys(seen & (keys % tile != 0)))
            whole = s.case.seqlen_k // tile * tile
            if whole < s.case.seqlen_k:
                yield Form(
                    "last tile missing",
                    f"keys from {whole} on, in a tile that is not full, are missing",
                    s.with_keys(seen & (keys < whole)),
                )


@mistake(*FORWARD, *GRADIENTS)
def transposed(s: Sample) -> Iterator[Form]:
    if s.case.seqlen_q == s.case.seqlen_k:
        yield Form("mask transposed", "the mask is transposed", s.with_keys(s.seen(s.mask.transpose())))


@mistake("out", "lse")
def kv_heads(s: Sample) -> Iterator[Form]:
    if 1 < s.case.heads_kv < s.case.heads_q:
        words = "query head h uses the KV head h % Hkv, not h // (Hq / Hkv)"
        yield Form("KV head h % Hkv", words, s.forward(s.scores(modulo=True), modulo=True))


@mistake("out", "lse")
def padded_keys(s: Sample) -> Iterator[Form]:
    for tile in TILES:
        if padding := -s.case.seqlen_k % tile:
            lse = torch.logaddexp(s.lse, torch.full_like(s.lse, math.log(padding)))[..., None]
            words = f"{padding} keys that fill up the last tile of {tile} are not masked: their scores are 0"
            yield Form("padded keys", words, lse if s.tensor == "lse" else s.out * (s.lse[..., None] - lse).exp())


@mistake("out")
def sums(s: Sample) -> Iterator[Form]:
    scores = s.scores()
    largest = scores.amax(-1).clamp_min(-1e30)[..., None]
    yield Form("not divided by the sum", "it is not divided by the sum of the softmax", s.out * (s.lse[..., None] - largest).exp())
    for tile in TILES:
        rest = torch.full((*scores.shape[:2], -scores.shape[-1] % tile), -math.inf, dtype=scores.dtype, device=scores.device)
        tiles = torch.cat([scores, rest], -1).unflatten(-1, (-1, tile))
        running = tiles.amax(-1).cummax(-1).values.clamp_min(-1e30)[..., None]
        p = (tiles - running).exp().flatten(2)[..., : scores.shape[-1]]
        kept = p @ s.of_heads(s.v)
        words = f"it is not rescaled where the maximum grows from one tile of {tile} keys to the next"
        yield Form("not rescaled", words, kept * (largest - s.lse[..., None]).exp())
        yield Form("not rescaled", f"{words}, nor is the sum", kept / p.sum(-1, keepdim=True).clamp_min(1e-300))
        words = f"the sum of the softmax is not rescaled where the maximum grows from one tile of {tile} keys to the next"
        yield Form("not rescaled", words, s.out * (s.lse[..., None] - largest).exp() / p.sum(-1, keepdim=True).clamp_min(1e-300))


@mistake(*FORWARD, *GRADIENTS)
def head_size(s: Sample) -> Iterator[Form]:
    for tile in TILES:
        if 0 < (cut := s.case.head_dim // tile * tile) < s.case.head_dim and s.tensor in FORWARD:
            words = f"dimensions from {cut} on are missing in q · k"
            yield Form("tail of the head size", words, s.forward(s.scores(dims=cut)))
        if 0 < (cut := s.right.shape[-1] // tile * tile) < s.right.shape[-1]:
            kept = torch.arange(s.right.shape[-1], device=s.right.device) < cut
            yield Form("tail of the head size", f"its dimensions from {cut} on are 0", s.right * kept)


@mistake("dk", "dv")
def swapped(s: Sample) -> Iterator[Form]:
    if s.case.head_dim == s.case.head_dim_v:
        p = s.p(s.scores())
        other = s.add_heads(p.mT @ s.dout if s.tensor == "dk" else s.dscores(p).mT @ s.q)
        yield Form("dk and dv swapped", "dk and dv are swapped", other)


@mistake("dq", "dk")
def wrong_delta(s: Sample) -> Iterator[Form]:
    p = s.p(s.scores())
    yield Form("delta forgotten", "delta, the sum of dout · out, is not subtracted from dP", s.backward(p, delta=0.0))
    yield Form("delta twice", "delta, the sum of dout · out, has the wrong sign", s.backward(p, delta=-1.0))


@mistake("dk", "dv")
def heads_of_a_group(s: Sample) -> Iterator[Form]:
    p = s.p(s.scores())
    each = p.mT @ s.dout if s.tensor == "dv" else s.dscores(p).mT @ s.q
    for head in range(s.case.group) if s.case.group > 1 else ():
        words = f"it is that of one query head of each group (number {head}) instead of their sum"
        yield Form("one head of a group", words, each.unflatten(0, (-1, s.case.group))[:, head])


@mistake("dq")
def one_tile(s: Sample) -> Iterator[Form]:
    seen, ds = s.seen(), s.dscores(s.p(s.scores()))
    ends = {"first": seen.int().argmax(1), "last": s.case.seqlen_k - 1 - seen.flip(1).int().argmax(1)}
    for tile in TILES:
        for which, key in ends.items():
            own = s.keys // tile == key[:, None] // tile
            words = f"it is that of the {which} tile of {tile} keys instead of the sum over all tiles"
            yield Form(f"{which} tile alone", words, (ds * own) @ s.of_heads(s.k))


@mistake(*FORWARD, *GRADIENTS)
def low_precision(s: Sample) -> Iterator[Form]:
    if s.case.dtype not in ("fp32", "fp64") or s.tensor == "lse":
        return
    scores = s.scores()
    largest = s.lse[..., None] - scores.amax(-1, keepdim=True).clamp_min(-1e30)
    for name, dtype in LOW.items():
        rounded = "dS" if s.tensor in ("dq", "dk") else "P"
        shifts = (torch.zeros(()), largest) if s.tensor == "out" else (torch.zeros(()), torch.tensor(math.log(s.case.softmax_scale)).neg())
        for shift in shifts:  # as it is, or before it is divided by the sum or multiplied by the scale
            low = _rounding(dtype, shift.exp().to(s.q))
            tensor = s.forward(scores, low=low) if s.tensor == "out" else s.backward(s.p(scores), low=low)
            yield Form(f"{rounded} rounded to {name}", f"{rounded} is rounded to {name}", tensor)


def _rounding(dtype: torch.dtype, factor: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: (x * factor).to(dtype).to(x.dtype) / factor
