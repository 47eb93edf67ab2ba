"""Known mistakes of kernels in numbers: scales, heads, sums, roundings. Each is a short function that computes a few tokens of a wrong
tensor as a kernel with this mistake would; a mistake with several forms yields each of them. Adding one is one function with `@mistake`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from longca.bench.check.sample import FORWARD, GRADIENTS, TILES, Form, Sample, mistake

LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}
LN2 = math.log(2)
MOST_PAIRS = 1 << 24  # of rows and keys, beyond which the largest score of each row is not computed again


@mistake("out", *GRADIENTS)
def zero(s: Sample) -> Iterator[Form]:
    yield Form("zero", "it is 0 there, as if these tokens were left out", torch.zeros_like(s.right))


@mistake("out", *GRADIENTS)
def factor(s: Sample) -> Iterator[Form]:
    both = s.got.isfinite() & s.right.isfinite() & s.wrong[..., None]
    c = float((s.got * s.right)[both].sum() / s.right[both].square().sum().clamp_min(1e-300))
    group, root = s.case.group, s.case.head_dim**0.5
    known = {"1 / the softmax scale": 1 / s.case.softmax_scale, "the softmax scale": s.case.softmax_scale}
    known |= {"the square root of the head size": root, "1 / the square root of the head size": 1 / root}
    known |= {"the number of query heads per KV head": group, "1 / the number of query heads per KV head": 1 / group} if group > 1 else {}
    known |= {"1 / ln 2": 1 / LN2, "ln 2": LN2}
    meaning = next((f" ({value:.4g} is {words})" for words, value in known.items() if abs(c / value - 1) < 0.01), "")
    if abs(c) > 1e-3:
        yield Form("factor", f"it is {c:.5g} times the right one{meaning}", c * s.right)


@mistake("lse")
def lse_forms(s: Sample) -> Iterator[Form]:
    largest = s.scores().amax(-1)[..., None]
    yield Form("lse base 2", "it is log2 instead of the natural log", s.right / LN2)
    yield Form("lse base 10", "it is log10 instead of the natural log", s.right / math.log(10))
    yield Form("lse is a log2 twice", "it is a natural log taken for log2", s.right * LN2)
    yield Form("lse sign", "it has the wrong sign", -s.right)
    yield Form("lse is the maximum", "it is the maximum of the scores, without the log of the sum", largest)
    yield Form("lse without the maximum", "it is the log of the sum without the maximum", s.right - largest)
    yield Form("lse in two bases", "the log of the sum in it is log2, the maximum is not", largest + (s.right - largest) / LN2)
    yield Form("lse in two bases", "the maximum in it is that of log2, the log of the sum is not", largest / LN2 + s.right - largest)
    yield Form("lse times scale", "it is multiplied by the softmax scale", s.right * s.case.softmax_scale)
    yield Form("lse without log", "it is the sum of exp, without the log", s.right.exp())
    yield Form("lse zero", "it is 0", torch.zeros_like(s.right))
    yield Form("lse unscaled", "it is that of the scores without the softmax scale", s.forward(s.scores(factor=1 / s.case.softmax_scale)))
    yield Form("lse unscaled maximum", "the maximum in it is without the softmax scale", s.right - largest + largest / s.case.softmax_scale)
    off = (s.got - s.right)[s.wrong]
    of_finite = off[off.isfinite()]
    if len(of_finite):
        offset = float(of_finite.mean())
        yield Form("lse offset", f"it is the right one {'plus' if offset > 0 else 'minus'} {abs(offset):.4g}", s.right + offset)


@mistake(*FORWARD, *GRADIENTS)
def wrong_scale(s: Sample) -> Iterator[Form]:
    scale, size = s.case.softmax_scale, s.case.head_dim
    factors = {
        ("no scale", "the scores are without the softmax scale"): 1 / scale,
        ("scale twice", "the softmax scale is applied twice"): scale,
        ("exp2 for exp", "exp2 is taken of scores without the factor log2(e)"): LN2,
        ("exp for exp2", "exp is taken of scores with the factor log2(e)"): 1 / LN2,
    }
    if abs(scale * size**0.5 - 1) > 1e-6:
        factors["scale ignored", "the softmax scale is 1 / the square root of the head size, not the given one"] = size**-0.5 / scale
    else:
        for padded in sorted({1 << (size - 1).bit_length(), *(-(-size // tile) * tile for tile in (16, 32, 64, 128)), s.case.head_dim_v}):
            words = f"the softmax scale is that of the head size {padded}, not {size}"
            factors["scale of another head size", words] = (size / padded) ** 0.5
    for (name, words), factor in factors.items():
        if factor != 1:
            yield Form(name, words, s.of_scores(s.scores(factor=factor)))


@mistake(*FORWARD, *GRADIENTS)
def softcap(s: Sample) -> Iterator[Form]:
    if s.case.softcap:
        yield Form("softcap ignored", "the softcap is ignored", s.of_scores(s.scores(cap=False)))
    if s.case.softcap and s.tensor in ("dq", "dk"):
        ds = s.dscores(s.p(s.scores()), cap=False)
        tensor = ds @ s.of_heads(s.k) if s.tensor == "dq" else s.add_heads(ds.mT @ s.of.q)
        yield Form("slope of the softcap", "the derivative of the softcap is left out", tensor)


@mistake(*FORWARD, "dq")
def kv_heads(s: Sample) -> Iterator[Form]:
    if s.case.group == 1 or s.mask.heads > 1:
        return
    others = {
        "query head h uses the KV head h % Hkv, not h // (Hq / Hkv)": s.heads % s.case.heads_kv,
        "all query heads use KV head 0": s.heads * 0,
    }
    for words, kv in others.items() if s.case.heads_kv > 1 else ():
        scores = s.scores(kv=kv)
        name = "KV head 0" if "all" in words else "KV head h % Hkv"
        tensor = s.forward(scores, kv) if s.tensor in FORWARD else s.backward(s.p(scores), kv=kv)
        yield Form(name, words, tensor)
        if s.tensor == "out":
            yield Form(name, f"{words}, for K alone", s.forward(scores))
            yield Form(name, f"{words}, for V alone", s.forward(s.scores(), kv))


@mistake("dk", "dv")
def kv_heads_of_gradients(s: Sample) -> Iterator[Form]:
    if s.case.group > 1 and s.case.heads_kv > 1 and s.mask.heads == 1:
        strides = torch.arange(s.case.group, device=s.heads.device) * s.case.heads_kv
        other = s.of_query_heads((s.kv_heads[:: s.case.group, None] + strides).flatten())
        words = "the gradients of query head h are added to the KV head h % Hkv, not h // (Hq / Hkv)"
        yield Form("KV head h % Hkv", words, other.backward(other.p(other.scores())))


@mistake("out", "lse")
def padded_keys(s: Sample) -> Iterator[Form]:
    for tile in TILES:
        if padding := -s.case.seqlen_k % tile:
            lse = torch.logaddexp(s.of.lse, torch.full_like(s.of.lse, math.log(padding)))[..., None]
            words = f"{padding} keys that fill up the last tile of {tile} are not masked: their scores are 0"
            yield Form("padded keys", words, lse if s.tensor == "lse" else s.of.out * (s.of.lse[..., None] - lse).exp())


@mistake("out")
def rows_without_keys(s: Sample) -> Iterator[Form]:
    blind = ~s.seen().any(1)
    if bool(blind.any()):
        mean = s.of_heads(s.v).mean(1, keepdim=True)
        yield Form("mean of V", "rows without keys hold the mean of V, not 0", torch.where(blind[:, None], mean, s.right))


@mistake("out")
def sums(s: Sample) -> Iterator[Form]:
    scores = s.scores()
    largest = scores.amax(-1).clamp_min(-1e30)[..., None]
    yield Form("not divided by the sum", "it is not divided by the sum of the softmax", s.of.out * (s.of.lse[..., None] - largest).exp())
    for tile in TILES:
        rest = torch.full((*scores.shape[:2], -scores.shape[-1] % tile), -math.inf, dtype=scores.dtype, device=scores.device)
        tiles = torch.cat([scores, rest], -1).unflatten(-1, (-1, tile))
        running = tiles.amax(-1).cummax(-1).values.clamp_min(-1e30)[..., None]
        p = (tiles - running).exp().flatten(2)[..., : scores.shape[-1]]
        kept = p @ s.of_heads(s.v)
        words = f"it is not rescaled where the maximum grows from one tile of {tile} keys to the next"
        yield Form("not rescaled", words, kept * (largest - s.of.lse[..., None]).exp())
        yield Form("not rescaled", f"{words}, nor is the sum", kept / p.sum(-1, keepdim=True).clamp_min(1e-300))
        words = f"the sum of the softmax is not rescaled where the maximum grows from one tile of {tile} keys to the next"
        yield Form("not rescaled", words, s.of.out * (s.of.lse[..., None] - largest).exp() / p.sum(-1, keepdim=True).clamp_min(1e-300))


@mistake(*FORWARD, *GRADIENTS)
def head_size(s: Sample) -> Iterator[Form]:
    for tile in TILES:
        if 0 < (cut := s.case.head_dim // tile * tile) < s.case.head_dim:
            words = f"dimensions from {cut} on are missing in q · k"
            yield Form("tail of the head size", words, s.of_scores(s.scores(dims=cut)))
        if 0 < (cut := s.right.shape[-1] // tile * tile) < s.right.shape[-1]:
            kept = torch.arange(s.right.shape[-1], device=s.right.device) < cut
            yield Form("tail of the head size", f"its dimensions from {cut} on are 0", s.right * kept)


@mistake("dk", "dv")
def swapped(s: Sample) -> Iterator[Form]:
    if s.case.head_dim == s.case.head_dim_v:
        p = s.p(s.scores())
        other = s.add_heads(p.mT @ s.of.dout if s.tensor == "dk" else s.dscores(p).mT @ s.of.q)
        yield Form("dk and dv swapped", f"it is {'dv' if s.tensor == 'dk' else 'dk'}, as if dk and dv were swapped", other)


@mistake("dq", "dk")
def wrong_delta(s: Sample) -> Iterator[Form]:
    p = s.p(s.scores())
    yield Form("delta forgotten", "delta, the sum of dout · out, is not subtracted from dP", s.backward(p, delta=0.0))
    yield Form("delta twice", "delta, the sum of dout · out, has the wrong sign", s.backward(p, delta=-1.0))


@mistake(*GRADIENTS)
def wrong_lse(s: Sample) -> Iterator[Form]:
    scores, lse = s.scores(), s.of.lse.clamp_min(-1e30)[..., None]
    logs = {
        "lse as if it were log2": scores - lse * LN2,
        "lse as if it were to be divided by ln 2": scores - lse / LN2,
        "exp2 of scores and lse without the factor log2(e)": (scores - lse) * LN2,
    }
    if len(s.rows) * s.case.seqlen_k <= MOST_PAIRS:
        logs["the maximum of the scores in place of lse"] = scores - s.largest()[..., None].clamp_min(-1e30)
    for words, log_p in logs.items():
        yield Form("lse in the backward", f"the backward takes {words}", s.backward(log_p.exp()))


@mistake("dk", "dv")
def heads_of_a_group(s: Sample) -> Iterator[Form]:
    p = s.p(s.scores())
    each = p.mT @ s.of.dout if s.tensor == "dv" else s.dscores(p).mT @ s.of.q
    by_group = each.unflatten(0, (-1, s.case.group))
    for head in range(s.case.group) if s.case.group > 1 else ():
        words = f"it is that of one query head of each group (number {head}) instead of their sum"
        yield Form("one head of a group", words, by_group[:, head])
        words = f"one query head of each group (number {head}) is missing in it"
        yield Form("one head of a group missing", words, by_group.sum(1) - by_group[:, head])


@mistake(*FORWARD, *GRADIENTS)
def low_precision(s: Sample) -> Iterator[Form]:
    if s.case.dtype not in ("fp32", "fp64") or s.tensor == "lse":
        return
    scores = s.scores()
    largest = s.of.lse[..., None] - scores.amax(-1, keepdim=True).clamp_min(-1e30)
    for name, dtype in LOW.items():
        rounded = "dS" if s.tensor in ("dq", "dk") else "P"
        before = largest if s.tensor == "out" else torch.tensor(-math.log(abs(s.case.softmax_scale)))
        for shift in (torch.zeros(()), before):  # as it is, or before it is divided by the sum or multiplied by the scale
            low = _rounding(dtype, shift.exp().to(s.of.q))
            tensor = s.forward(scores, low=low) if s.tensor == "out" else s.backward(s.p(scores), low=low)
            yield Form(f"{rounded} rounded to {name}", f"{rounded} is rounded to {name}", tensor)


def _rounding(dtype: torch.dtype, factor: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: (x * factor).to(dtype).to(x.dtype) / factor
