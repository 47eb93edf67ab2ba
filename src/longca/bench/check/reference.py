"""The reference: out, lse, dq, dk, dv of the sampled rows in fp64, and the error that the tested precision makes.

The same formulas are run twice: in fp64, and as a kernel of the tested precision would (fp32 sums, probabilities, score gradients
and out rounded to bf16 or fp16). The difference is the rounding error; a tolerance is a small multiple of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from longca.bench.check.sampled_rows import FIRST_SHARP, LOUD, SHARP, SHARP_EVERY, Ints, SampledRows, sample_rows, seen_keys
from longca.kernels.base import Case, Layout
from longca.kernels.inputs import DTYPES, WHICH, Inputs, make, make_sinks, tokens
from longca.kernels.lower import Visibility
from longca.masks import AnyMask

DATA_SETS = ("plain", "loud")
CHUNK_PAIRS = {"cpu": 1 << 22, "cuda": 1 << 28}  # of one KV head in memory
HEADS_PAIRS = {"cpu": 1 << 22, "cuda": 1 << 26}  # of several together: enough that the host is not what takes the time
# times the working precision and the sum of all terms' sizes: the rms error of adding them one by one. In fp64 the reference makes it too
ADDING = {"fp32": 1.0, "fp64": 2.0}
# the relative error of tanh in kernels for bf16 and fp16 (2^-11 for tanh.approx.f32 of PTX); others compute it to the last digit
TANH = {"bf16": 2.0**-11, "fp16": 2.0**-11}

Values = dict[str, torch.Tensor]


@dataclass
class Reference:
    """Per data set the right values, and the rounding error (rms over the head size) per token and head.

    out, dq: the sampled rows; dk, dv: all keys; lse: [heads, rows]; dsinks: [heads]. fp32 is enough: what is left out is far below any
    tolerance.
    """

    sampled: SampledRows
    values: dict[str, Values]
    rounding: dict[str, Values]  # lse: [heads, rows]
    tokens: Ints | None = None  # of a shard: their numbers in the sequence; None: all

    def to(self, device: str | torch.device) -> Reference:
        values, rounding = (
            {data_set: {name: value.to(device) for name, value in tensors.items()} for data_set, tensors in sets.items()}
            for sets in (self.values, self.rounding)
        )
        return replace(self, values=values, rounding=rounding)

    def cut(self, tokens: Ints, heads: tuple[int, int] | None = None) -> Reference:
        """What concerns a shard, its tokens counted from 0; of lse only the given query heads."""
        place = np.full(int(max(tokens.max(initial=0), self.sampled.rows.max(initial=0))) + 1, -1, np.int64)
        place[tokens] = np.arange(len(tokens))
        mine = place[self.sampled.rows] >= 0
        of_rows, of_keys = torch.from_numpy(np.flatnonzero(mine)), torch.from_numpy(tokens)

        def part(name: str, value: torch.Tensor) -> torch.Tensor:
            if name == "dsinks":
                return value  # the sum over all shards
            if name == "lse":
                return value[slice(*heads) if heads else slice(None)][:, of_rows.to(value.device)]
            return value[(of_rows if name in ("out", "dq") else of_keys).to(value.device)]

        values, rounding = (
            {data_set: {name: part(name, value) for name, value in tensors.items()} for data_set, tensors in sets.items()}
            for sets in (self.values, self.rounding)
        )
        few = place[self.sampled.few]
        points = SampledRows(place[self.sampled.rows[mine]], few[few >= 0], self.sampled.loud_keys, self.sampled.seen[:, :, mine])
        return Reference(points, values, rounding, tokens)


def data(
    case: Case, points: SampledRows, data_set: str, seed: int, layout: Layout = "LHD", ranges: Sequence[tuple[int, int]] | None = None
) -> Inputs:
    """The inputs of one data set: dout is zero except in the sampled rows; in `loud`, V is loud at some keys, and some scores are large.

    With `ranges` only those tokens, one after the other: the same numbers that the whole has there.
    """
    number = seed if data_set == "plain" else seed + 1_000_003
    if ranges is None:
        inputs = make(case, number, layout)
    else:
        q, k, v, dout = (tokens(name, case, ranges, number, layout) for name in WHICH)
        inputs = Inputs(q, k, v, dout, make_sinks(case, number))
    inputs.dout[~_among(points.with_gradient(data_set), case.seqlen_q, ranges).to(case.device)] = 0
    if data_set == "loud":
        keys = _among(points.loud_keys, case.seqlen_k, ranges).to(case.device)
        inputs.v[keys] = inputs.v[keys] * LOUD
        sharp = _among(np.arange(FIRST_SHARP, case.seqlen_q, SHARP_EVERY), case.seqlen_q, ranges).to(case.device)
        inputs.q[sharp] = inputs.q[sharp] * SHARP
    return inputs


def _among(wanted: Ints, length: int, ranges: Sequence[tuple[int, int]] | None) -> torch.Tensor:
    """Per token of the ranges, whether it is wanted."""
    whole = np.zeros(length, bool)
    whole[wanted] = True
    return torch.from_numpy(whole if ranges is None else np.concatenate([whole[:0], *(whole[first:last] for first, last in ranges)]))


def reference(mask: AnyMask, case: Case, seed: int = 0) -> Reference:
    """Computed on the case's device, in chunks: nothing of size seqlen_q x seqlen_k is ever held."""
    sampled = sample_rows(mask, seed)
    values, rounding = {}, {}
    for data_set in DATA_SETS:
        values[data_set], rounding[data_set] = _of_data(mask, case, sampled, data(case, sampled, data_set, seed))
    return Reference(sampled, values, rounding)


def _of_data(mask: AnyMask, case: Case, sampled: SampledRows, inputs: Inputs, of_keys: bool = True) -> tuple[Values, Values]:
    """The right values and the rounding errors."""
    lowered, keep = DTYPES[case.dtype], torch.float64 if case.dtype == "fp64" else torch.float32
    expected = ExpectedErrors(case, len(sampled.rows))
    exact = _attend(mask, case, sampled, inputs, torch.float64, lambda x: x, expected, of_keys)
    rounded = _attend(mask, case, sampled, inputs, keep, lambda x: x.to(lowered).to(x.dtype), None, of_keys)
    values = {name: value.to(keep) for name, value in exact.items()}
    return values, {name: expected.with_rounded(name, exact[name], rounded[name]).to(keep) for name in exact}


def reference_of_rows(mask: AnyMask, case: Case, inputs: Inputs, rows: Ints) -> Reference:
    """The plain data set alone, in these rows of these inputs: out, lse and dq, as dk and dv depend on dout of all rows."""
    sampled = SampledRows(rows, rows, np.zeros(0, np.int64), seen_keys(mask, rows))
    values, rounding = _of_data(mask, case, sampled, inputs, of_keys=False)
    return Reference(sampled, {"plain": values}, {"plain": rounding})


class ExpectedErrors:
    """The errors that a correct kernel of the tested precision is expected to make, as squares per token and head.

    Three things are rounded: the terms of each sum (probabilities and score gradients) to the tested precision, the scores and the sums in
    the working precision (fp32, or fp64 beside fp64), and the result to the tested precision. Terms err independently, so squares add up.
    """

    def __init__(self, case: Case, rows: int) -> None:
        self.step = torch.finfo(DTYPES[case.dtype]).eps / 4  # the rms of a rounding, relative to what is rounded
        self.tiny = torch.finfo(DTYPES[case.dtype]).smallest_normal * torch.finfo(DTYPES[case.dtype]).eps  # smaller values are rounded to 0
        self.work = torch.finfo(torch.float64 if case.dtype == "fp64" else torch.float32).eps
        self.adding = ADDING.get(case.dtype, 0.0) * self.work  # in lower precisions adding costs nothing beside rounding
        shapes: dict[str, tuple[int, ...]] = {"out": (rows, case.heads_q), "dq": (rows, case.heads_q), "lse": (case.heads_q, rows)}
        shapes |= dict.fromkeys(("dk", "dv"), (case.seqlen_k, case.heads_kv)) | {"dsinks": (case.heads_q,)}
        self.squares = {name: torch.zeros(shape, dtype=torch.float64, device=case.device) for name, shape in shapes.items()}
        self.scale, self.tanh = case.softmax_scale, TANH.get(case.dtype, self.work) if case.softcap else 0.0

    def score_error(self, q: torch.Tensor, k_HLD: torch.Tensor, lse: torch.Tensor, largest: torch.Tensor | float) -> torch.Tensor:
        """The expected error of a row's scores and lse, [KV heads, group, rows, 1]: also the relative error of its probabilities.

        `largest` is the largest capped score of each row, 0 where scores are not capped.
        """
        length: torch.Tensor = q.norm(dim=-1) * k_HLD.norm(dim=-1).square().mean(-1).sqrt()[:, None, None] * abs(self.scale)
        size = torch.where(lse.isfinite(), lse.abs(), 0.0)
        error: torch.Tensor = self.work * (1 + length + size) / 2 + self.tanh * largest
        return error[..., None]

    def forward(self, p: torch.Tensor, v_HLD: torch.Tensor, score: torch.Tensor, chunk: slice, heads: slice) -> None:
        square = (self.step**2 + score.square()) * _times(p.square(), v_HLD.square().mean(2, keepdim=True))
        if self.adding:
            square += (self.adding * _times(p, v_HLD.abs().mean(2, keepdim=True))).square()
        self.squares["out"][chunk, heads] = square.squeeze(3).flatten(0, 1).T
        self.squares["lse"][heads, chunk] = score.squeeze(3).flatten(0, 1).square()

    def backward(
        self, p: torch.Tensor, sizes: torch.Tensor, q: torch.Tensor, k_HLD: torch.Tensor, dout: torch.Tensor,
        score: torch.Tensor, chunk: slice, keys: slice, heads: slice, kv_heads: slice, steep: torch.Tensor | None,
    ) -> None:  # fmt: skip
        """`sizes` are the sizes of the score gradients before what cancels in them; `steep` is how much of them the cap takes away."""
        relative = self.step**2 + score.square()
        dout, k, q = (x.square().mean(-1, keepdim=True) for x in (dout, k_HLD, q))
        self.squares["dv"][keys, kv_heads] += (p.square().mT @ (relative * dout)).sum((1, 3)).T
        squares = sizes.square()
        dq = relative * _times(squares, k)
        dk = squares.mT @ (relative * q)
        if steep is not None:  # the slope 1 - tanh² has twice the error of tanh²
            squares = (2 * self.tanh * steep).square()
            dq += _times(squares, k)
            dk += squares.mT @ q
        if self.adding:
            squares = (self.adding * torch.maximum(p * sizes.sum(-1, keepdim=True), _until_larger(p, sizes))).square()
            dq += _times(squares, k)
            dk += squares.mT @ q
            dq += (self.adding * _times(sizes, k.sqrt())).square()
            dk += (self.adding * (sizes.mT @ q.sqrt())).square()
            self.squares["dv"][keys, kv_heads] += (self.adding * (p.mT @ dout.sqrt())).square().sum((1, 3)).T
        self.squares["dq"][chunk, heads] = dq.squeeze(3).flatten(0, 1).T
        self.squares["dk"][keys, kv_heads] += dk.sum((1, 3)).T

    def sinks(self, weight: torch.Tensor, delta: torch.Tensor, spread: torch.Tensor, score: torch.Tensor, heads: slice) -> None:
        """`weight` is the probability of the sink in each row, and `spread` what the rounding of out acts on in delta."""
        terms = weight.square() * ((self.step * spread).square() + (score * delta).square())
        self.squares["dsinks"][heads] += (terms.sum((2, 3)) + (self.work * (weight * spread).sum((2, 3))).square()).flatten()

    def with_rounded(self, name: str, exact: torch.Tensor, rounded: torch.Tensor) -> torch.Tensor:
        """The rms error per token and head: what the rounded run is off, and, where luck made that small, what is expected."""
        if name in ("lse", "dsinks"):
            off = torch.where(exact.isfinite(), exact - rounded.double(), 0.0)
            return (off.square() + self.squares[name]).sqrt()
        off = (exact - rounded.double()).square().mean(2) + (self.step * exact).square().mean(2) + self.tiny**2
        return (off + self.squares[name]).sqrt()


def _until_larger(p: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """At keys with a larger p than all before, the sum of sizes up to the next such key; else 0.

    Where torch differentiates the running maximum of an online softmax, such a key gets the rounding error of this sum.
    """
    largest = p == p.cummax(-1).values
    before_larger = largest.roll(-1, -1)
    before_larger[..., -1] = True
    sums = sizes.cumsum(-1).masked_fill_(~before_larger, float("inf"))
    return sums.flip(-1).cummin(-1).values.flip(-1).masked_fill_(~largest, 0.0)


def _attend(
    mask: AnyMask,
    case: Case,
    sampled: SampledRows,
    inputs: Inputs,
    work: torch.dtype,
    low: Callable[..., torch.Tensor],
    expected: ExpectedErrors | None = None,
    of_keys: bool = True,
) -> Values:
    """Forward and backward of the sampled rows; dk and dv only where wanted. `low` rounds what a kernel of the tested precision would."""
    visible, scale, group = Visibility(mask, case.device), case.softmax_scale, case.group
    all_rows = torch.from_numpy(sampled.rows).to(case.device)
    n, keys_total, of_keys = len(all_rows), case.seqlen_k, of_keys and case.backward

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, dtype=work, device=case.device)

    sinks = zeros(case.heads_q).fill_(float("-inf")) if inputs.sinks is None else inputs.sinks.to(work)
    out, lse = zeros(n, case.heads_q, case.head_dim_v), sinks[:, None].repeat(1, n)
    dq, dk, dv, dsinks = (
        zeros(n, case.heads_q, case.head_dim),
        zeros(keys_total * of_keys, case.heads_kv, case.head_dim),
        zeros(keys_total * of_keys, case.heads_kv, case.head_dim_v),
        zeros(case.heads_q),
    )
    step = max(1, CHUNK_PAIRS[case.device] // max(1, keys_total * group))
    chunks = [slice(start, min(start + step, n)) for start in range(0, n, step)]
    spans = [visible.span(sampled.rows[chunk]) for chunk in chunks]
    at_once = max(1, HEADS_PAIRS[case.device] // max(1, keys_total * max(group * n, case.head_dim, case.head_dim_v)))  # KV heads
    for some in (range(case.heads_kv)[start : start + at_once] for start in range(0, case.heads_kv, at_once)):
        heads, mine = slice(some.start, some.stop), slice(some.start * group, some.stop * group)
        sink_HG1 = sinks[mine].unflatten(0, (-1, group))[..., None]
        for chunk, (first, last) in zip(chunks, spans, strict=True):
            if last == first:
                continue
            rows, keys = all_rows[chunk], slice(first, last)
            k_HLD, v_HLD = (x[keys, heads].transpose(0, 1).to(work) for x in (inputs.k, inputs.v))
            q, dout = (x[rows, mine].unflatten(1, (-1, group)).permute(1, 2, 0, 3).to(work) for x in (inputs.q, inputs.dout))
            distinct = some if mask.heads > 1 else some[:1]
            hidden = ~torch.stack([visible(rows, first, last, head) for head in distinct])[:, None]
            scores, bent = _capped(_times(q, k_HLD.mT).mul_(scale), case.softcap)
            largest = scores.masked_fill(hidden, 0.0).abs().amax(-1) if case.softcap else 0.0
            row_lse = torch.logaddexp(scores.masked_fill_(hidden, float("-inf")).logsumexp(-1), sink_HG1)
            p = scores.sub_(row_lse.clamp_min(-1e30)[..., None]).exp_()
            row_out = low(_times(low(p), v_HLD))
            out[chunk, mine], lse[mine, chunk] = row_out.flatten(0, 1).transpose(0, 1), row_lse.flatten(0, 1)
            if expected is not None:
                score_error = expected.score_error(q, k_HLD, row_lse, largest)
                expected.forward(p, v_HLD, score_error, chunk, mine)
            if not case.backward:
                continue
            dp = _times(dout, v_HLD.mT)
            delta = (dout * row_out).sum(-1, keepdim=True)
            of_sink = (sink_HG1 - row_lse).nan_to_num_(nan=-torch.inf, neginf=-torch.inf).exp()[..., None]
            dsinks[mine] -= (of_sink * delta).sum((2, 3)).flatten()
            if of_keys:
                dv[keys, heads] += (low(p).mT @ dout).sum(1).transpose(0, 1)
            if expected is not None:
                # what the rounding of out, and of the probabilities in it, acts on; their sum, delta, may cancel
                spread = torch.hypot((dout * row_out).norm(dim=-1, keepdim=True), (p * dp).norm(dim=-1, keepdim=True))
                sizes = (p * (dp.abs() + spread)).mul_(abs(scale))
                steep = None if bent is None else sizes * bent
                straight = sizes if steep is None else sizes - steep
                expected.backward(p, straight, q, k_HLD, dout, score_error, chunk, keys, mine, heads, steep)
                expected.sinks(of_sink, delta, spread, score_error, mine)
            dscores = p.mul_(dp.sub_(delta)).mul_(scale)
            dscores = low(dscores if bent is None else dscores.mul_(1 - bent))
            dq[chunk, mine] = low(_times(dscores, k_HLD)).flatten(0, 1).transpose(0, 1)
            if of_keys:
                dk[keys, heads] += (dscores.mT @ q).sum(1).transpose(0, 1)
    gradients = ({"dq": dq} if case.backward else {}) | ({"dk": low(dk), "dv": low(dv)} if of_keys else {})
    gradients |= {"dsinks": dsinks} if of_keys and inputs.sinks is not None else {}
    return {"out": out, "lse": lse} | gradients


def _times(x_HGRA: torch.Tensor, y_HAB: torch.Tensor) -> torch.Tensor:
    """The product of the rows of all query heads with the matrix of their KV head, which is not copied for each of them."""
    product: torch.Tensor = (x_HGRA.flatten(1, 2) @ y_HAB).unflatten(1, x_HGRA.shape[1:3])
    return product


def _capped(scores: torch.Tensor, softcap: float) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The capped scores, and tanh² of each: what the cap takes away of its gradient. Without a cap the scores as they are, and None."""
    if not softcap:
        return scores, None
    tangent = scores.div_(softcap).tanh_()
    return tangent * softcap, tangent.square()
