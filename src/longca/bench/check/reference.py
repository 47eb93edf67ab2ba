"""The reference: out, lse, dq, dk, dv of the sampled rows in fp64, and the error that the tested precision makes.

The same formulas are run twice: in fp64, and as a kernel of the tested precision would (fp32 sums, probabilities, score gradients
and out rounded to bf16 or fp16). The difference is the rounding error; a tolerance is a small multiple of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from longca.bench.check import host_copies
from longca.bench.check.sampled_rows import FIRST_SHARP, LOUD, SHARP, SHARP_EVERY, Ints, SampledRows, sample_rows, seen_keys
from longca.bench.check.stretch import stretch
from longca.kernels.base import Case, Layout
from longca.kernels.inputs import DTYPES, Inputs, make
from longca.kernels.lower import Visibility
from longca.masks import AnyMask
from longca.processes import host_memory

DATA_SETS = ("plain", "loud")
CHUNK_PAIRS = {"cpu": 1 << 22, "cuda": 1 << 28}  # of one KV head in memory
HEADS_PAIRS = {"cpu": 1 << 22, "cuda": 1 << 26}  # of several together: enough that the host is not what takes the time
# times the working precision and the sum of all terms' sizes: the rms error of adding them one by one. In fp64 the reference makes it too
ADDING = {"fp32": 1.0, "fp64": 2.0}
# the relative error of tanh in kernels for bf16 and fp16 (2^-11 for tanh.approx.f32 of PTX); others compute it to the last digit
TANH = {"bf16": 2.0**-11, "fp16": 2.0**-11}
SHARE, HOST_SHARE = 1 / 8, 1 / 2  # of a GPU's memory that dk and dv of a reference may take, and of the host's free memory

Values = dict[str, torch.Tensor]


@dataclass
class Reference:
    """Per data set the right values, and the rounding error (rms over the head size) per token and head. Large ones lie on the host.

    out, dq: the sampled rows; dk, dv: all keys; lse: [heads, rows]; dsinks: [heads]. fp32 is enough: what is left out is far below any
    tolerance.
    """

    sampled: SampledRows
    values: dict[str, Values]
    rounding: dict[str, Values]  # lse: [heads, rows]
    tokens: Ints | None = None  # of a shard: their numbers in the sequence; None: all
    mask: AnyMask | None = None  # for a diagnosis; None: none is made

    def to(self, device: str | torch.device) -> Reference:
        return self._changed(lambda name, value: value.to(device))

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

        few = place[self.sampled.few]
        points = SampledRows(place[self.sampled.rows[mine]], few[few >= 0], self.sampled.loud_keys, self.sampled.seen[:, :, mine])
        return replace(self._changed(part), sampled=points, tokens=tokens, mask=None)

    def _changed(self, change: Callable[[str, torch.Tensor], torch.Tensor]) -> Reference:
        """With other values and rounding errors."""

        def of(sets: dict[str, Values]) -> dict[str, Values]:
            return {data_set: {name: change(name, value) for name, value in tensors.items()} for data_set, tensors in sets.items()}

        return replace(self, values=of(self.values), rounding=of(self.rounding))


def data(
    case: Case, points: SampledRows, data_set: str, seed: int, layout: Layout = "LHD", ranges: Sequence[tuple[int, int]] | None = None
) -> Inputs:
    """What a kernel gets in one data set. With `ranges` only those tokens, one after the other: the same numbers that the whole has
    there."""
    inputs = _unstretched(case, points, data_set, seed, layout, ranges)
    return inputs if data_set == "plain" else stretch(inputs, case)


def _unstretched(
    case: Case, points: SampledRows, data_set: str, seed: int, layout: Layout = "LHD", ranges: Sequence[tuple[int, int]] | None = None
) -> Inputs:
    """What the reference gets: dout is zero except in the sampled rows; in `loud`, V is loud at some keys, and some scores are large."""
    number = seed if data_set == "plain" else seed + 1_000_003
    inputs = make(case, number, layout, ranges)
    inputs.dout[~_among(points.with_gradient(data_set), case.seqlen_q, ranges).to(case.device)] = 0
    if data_set == "loud":
        loud = _among(points.loud_keys, case.seqlen_k, ranges)
        sharp = _among(np.arange(FIRST_SHARP, case.seqlen_q, SHARP_EVERY), case.seqlen_q, ranges)
        for x, chosen, factor in ((inputs.v, loud, LOUD), (inputs.q, sharp, SHARP)):
            x.mul_(torch.where(chosen, factor, 1.0).to(x)[:, None, None])
    return inputs


def _among(wanted: Ints, length: int, ranges: Sequence[tuple[int, int]] | None) -> torch.Tensor:
    """Per token of the ranges, whether it is wanted."""
    whole = np.zeros(length, bool)
    whole[wanted] = True
    return torch.from_numpy(whole if ranges is None else np.concatenate([whole[:0], *(whole[first:last] for first, last in ranges)]))


def reference(mask: AnyMask, case: Case, seed: int = 0, ranks: int = 1, all_rows: bool = False) -> Reference:
    """Computed on the case's device, in chunks: nothing of size seqlen_q x seqlen_k is ever held. Each of `ranks` makes one."""
    sampled = sample_rows(mask, seed, all_rows)
    values, rounding, keys_on = {}, {}, home(case, ranks)
    for data_set in DATA_SETS:
        values[data_set], rounding[data_set] = _of_data(mask, case, sampled, _unstretched(case, sampled, data_set, seed), keys_on)
    return Reference(sampled, values, rounding, mask=mask)


def home(case: Case, ranks: int = 1) -> str:
    """The device that keeps dk and dv of a reference: that of the case, or the host where they would take a good part of that device and
    the host has room for those of all ranks. Those of both data sets, in fp32, may be as large as all that a kernel gets and returns."""
    size = len(DATA_SETS) * case.seqlen_k * case.heads_kv * (case.head_dim + case.head_dim_v) * _kept_dtype(case).itemsize
    if case.device != "cuda" or size <= SHARE * torch.cuda.mem_get_info()[1]:
        return case.device
    return "cpu" if ranks * size <= HOST_SHARE * host_memory.free_bytes() else case.device


def _kept_dtype(case: Case) -> torch.dtype:
    return torch.float64 if case.dtype == "fp64" else torch.float32


def _of_data(mask: AnyMask, case: Case, sampled: SampledRows, inputs: Inputs, keys_on: str = "") -> tuple[Values, Values]:
    """The right values and the rounding errors, computed for some KV heads at a time: of all together, dk and dv in fp64 and what rounds
    them take several times the memory of the inputs. `keys_on` is the device that dk and dv are kept on; empty: they are not wanted."""
    problem, lowered, keep = _Problem(mask, case, sampled, inputs, bool(keys_on)), DTYPES[case.dtype], _kept_dtype(case)
    values, rounding = AllHeads(case, keys_on), AllHeads(case, case.device)
    for heads in problem.heads():
        expected = ExpectedErrors(case, len(sampled.rows), len(heads))
        exact = _attend(problem, heads, torch.float64, lambda x: x, expected)
        rounded = _attend(problem, heads, keep, lambda x: x.to(lowered).to(x.dtype))
        for name, value in exact.items():
            values.put(name, heads, value.to(keep))
            rounding.put(name, heads, expected.with_rounded(name, value, rounded[name]).to(keep))
    return values.tensors, rounding.tensors


class AllHeads:
    """Tensors of all heads, which are put together from those of some KV heads."""

    def __init__(self, case: Case, keys_on: str) -> None:
        self._case, self._keys_on = case, keys_on
        self.tensors: Values = {}

    def put(self, name: str, heads: range, part: torch.Tensor) -> None:
        """The first part makes room for all."""
        axis, group = 0 if name in ("lse", "dsinks") else 1, 1 if name in ("dk", "dv") else self._case.group
        if name not in self.tensors:
            self.tensors[name] = self._empty(name, part, axis, group * self._case.heads_kv)
        host_copies.copy_into(self.tensors[name].narrow(axis, group * heads.start, group * len(heads)), part)

    def _empty(self, name: str, part: torch.Tensor, axis: int, heads: int) -> torch.Tensor:
        if name in ("dk", "dv") and self._keys_on != self._case.device:  # one head after the other: each part is sent in one piece
            return torch.empty(heads, len(part), part.shape[2], dtype=part.dtype, device=self._keys_on).transpose(0, 1)
        return part.new_empty(*part.shape[:axis], heads, *part.shape[axis + 1 :])


def reference_of_rows(mask: AnyMask, case: Case, inputs: Inputs, rows: Ints) -> Reference:
    """The plain data set alone, in these rows of these inputs: out, lse and dq, as dk and dv depend on dout of all rows."""
    sampled = SampledRows(rows, rows, np.zeros(0, np.int64), seen_keys(mask, rows))
    values, rounding = _of_data(mask, case, sampled, inputs)
    return Reference(sampled, {"plain": values}, {"plain": rounding})


class ExpectedErrors:
    """The errors that a correct kernel of the tested precision is expected to make, as squares per token and head.

    Three things are rounded: the terms of each sum (probabilities and score gradients) to the tested precision, the scores and the sums in
    the working precision (fp32, or fp64 beside fp64), and the result to the tested precision. Terms err independently, so squares add up.
    """

    def __init__(self, case: Case, rows: int, kv_heads: int) -> None:
        self.step = torch.finfo(DTYPES[case.dtype]).eps / 4  # the rms of a rounding, relative to what is rounded
        self.tiny = torch.finfo(DTYPES[case.dtype]).smallest_normal * torch.finfo(DTYPES[case.dtype]).eps  # smaller values are rounded to 0
        self.work = torch.finfo(torch.float64 if case.dtype == "fp64" else torch.float32).eps
        self.adding = ADDING.get(case.dtype, 0.0) * self.work  # in lower precisions adding costs nothing beside rounding
        heads = case.group * kv_heads
        shapes: dict[str, tuple[int, ...]] = {"out": (rows, heads), "dq": (rows, heads), "lse": (heads, rows), "dsinks": (heads,)}
        shapes |= dict.fromkeys(("dk", "dv"), (case.seqlen_k, kv_heads))
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

    def forward(self, p: torch.Tensor, v_HLD: torch.Tensor, score: torch.Tensor, chunk: slice) -> None:
        square = (self.step**2 + score.square()) * _times(p.square(), v_HLD.square().mean(2, keepdim=True))
        if self.adding:
            square += (self.adding * _times(p, v_HLD.abs().mean(2, keepdim=True))).square()
        self.squares["out"][chunk] = square.squeeze(3).flatten(0, 1).T
        self.squares["lse"][:, chunk] = score.squeeze(3).flatten(0, 1).square()

    def backward(
        self, p: torch.Tensor, sizes: torch.Tensor, q: torch.Tensor, k_HLD: torch.Tensor, dout: torch.Tensor,
        score: torch.Tensor, chunk: slice, keys: slice, steep: torch.Tensor | None,
    ) -> None:  # fmt: skip
        """`sizes` are the sizes of the score gradients before what cancels in them; `steep` is how much of them the cap takes away."""
        relative = self.step**2 + score.square()
        dout, k, q = (x.square().mean(-1, keepdim=True) for x in (dout, k_HLD, q))
        self.squares["dv"][keys] += (p.square().mT @ (relative * dout)).sum((1, 3)).T
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
            self.squares["dv"][keys] += (self.adding * (p.mT @ dout.sqrt())).square().sum((1, 3)).T
        self.squares["dq"][chunk] = dq.squeeze(3).flatten(0, 1).T
        self.squares["dk"][keys] += dk.sum((1, 3)).T

    def sinks(self, weight: torch.Tensor, delta: torch.Tensor, spread: torch.Tensor, score: torch.Tensor) -> None:
        """`weight` is the probability of the sink in each row, and `spread` what the rounding of out acts on in delta."""
        terms = weight.square() * ((self.step * spread).square() + (score * delta).square())
        self.squares["dsinks"] += (terms.sum((2, 3)) + (self.work * (weight * spread).sum((2, 3))).square()).flatten()

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


class _Problem:
    """What is attended: the sampled rows, in chunks, and the keys that each chunk sees; dk and dv only where wanted."""

    def __init__(self, mask: AnyMask, case: Case, sampled: SampledRows, inputs: Inputs, of_keys: bool) -> None:
        self.mask, self.case, self.inputs, self.of_keys = mask, case, inputs, of_keys and case.backward
        self.visible, self.rows = Visibility(mask, case.device), torch.from_numpy(sampled.rows).to(case.device)
        step, n = max(1, CHUNK_PAIRS[case.device] // max(1, case.seqlen_k * case.group)), len(self.rows)
        chunks = [slice(start, min(start + step, n)) for start in range(0, n, step)]
        self.chunks = [(chunk, *self.visible.span(sampled.rows[chunk])) for chunk in chunks]

    def heads(self) -> list[range]:
        """The KV heads that are computed together."""
        case = self.case
        per_key = max(case.group * len(self.rows), case.head_dim, case.head_dim_v)
        at_once = max(1, HEADS_PAIRS[case.device] // max(1, case.seqlen_k * per_key))
        return [range(case.heads_kv)[start : start + at_once] for start in range(0, case.heads_kv, at_once)]


def _attend(
    problem: _Problem, kv_heads: range, work: torch.dtype, low: Callable[..., torch.Tensor], expected: ExpectedErrors | None = None
) -> Values:
    """Forward and backward of the sampled rows and some heads. `low` rounds what a kernel of the tested precision would."""
    case, inputs, of_keys, scale, group = problem.case, problem.inputs, problem.of_keys, problem.case.softmax_scale, problem.case.group
    heads, mine = slice(kv_heads.start, kv_heads.stop), slice(kv_heads.start * group, kv_heads.stop * group)
    n, kv, keys_total = len(problem.rows), len(kv_heads), case.seqlen_k * of_keys

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, dtype=work, device=case.device)

    sinks = zeros(kv * group).fill_(float("-inf")) if inputs.sinks is None else inputs.sinks[mine].to(work)
    sink_HG1 = sinks.unflatten(0, (-1, group))[..., None]
    out, lse, dq = zeros(n, kv * group, case.head_dim_v), sinks[:, None].repeat(1, n), zeros(n, kv * group, case.head_dim)
    dk, dv, dsinks = zeros(keys_total, kv, case.head_dim), zeros(keys_total, kv, case.head_dim_v), zeros(kv * group)
    for chunk, first, last in problem.chunks:
        if last == first:
            continue
        rows, keys = problem.rows[chunk], slice(first, last)
        k_HLD, v_HLD = (x[keys, heads].transpose(0, 1).to(work) for x in (inputs.k, inputs.v))
        q, dout = (x[rows, mine].unflatten(1, (-1, group)).permute(1, 2, 0, 3).to(work) for x in (inputs.q, inputs.dout))
        distinct = kv_heads if problem.mask.heads > 1 else kv_heads[:1]
        hidden = ~torch.stack([problem.visible(rows, first, last, head) for head in distinct])[:, None]
        scores, bent = _capped(_times(q, k_HLD.mT).mul_(scale), case.softcap)
        largest = scores.masked_fill(hidden, 0.0).abs().amax(-1) if case.softcap else 0.0
        row_lse = torch.logaddexp(scores.masked_fill_(hidden, float("-inf")).logsumexp(-1), sink_HG1)
        p = scores.sub_(row_lse.clamp_min(-1e30)[..., None]).exp_()
        row_out = low(_times(low(p), v_HLD))
        out[chunk], lse[:, chunk] = row_out.flatten(0, 1).transpose(0, 1), row_lse.flatten(0, 1)
        if expected is not None:
            score_error = expected.score_error(q, k_HLD, row_lse, largest)
            expected.forward(p, v_HLD, score_error, chunk)
        if not case.backward:
            continue
        dp = _times(dout, v_HLD.mT)
        delta = (dout * row_out).sum(-1, keepdim=True)
        of_sink = (sink_HG1 - row_lse).nan_to_num_(nan=-torch.inf, neginf=-torch.inf).exp()[..., None]
        dsinks -= (of_sink * delta).sum((2, 3)).flatten()
        if of_keys:
            dv[keys] += (low(p).mT @ dout).sum(1).transpose(0, 1)
        if expected is not None:
            # what the rounding of out, and of the probabilities in it, acts on; their sum, delta, may cancel
            spread = torch.hypot((dout * row_out).norm(dim=-1, keepdim=True), (p * dp).norm(dim=-1, keepdim=True))
            sizes = (p * (dp.abs() + spread)).mul_(abs(scale))
            steep = None if bent is None else sizes * bent
            straight = sizes if steep is None else sizes - steep
            expected.backward(p, straight, q, k_HLD, dout, score_error, chunk, keys, steep)
            expected.sinks(of_sink, delta, spread, score_error)
        dscores = p.mul_(dp.sub_(delta)).mul_(scale)
        dscores = low(dscores if bent is None else dscores.mul_(1 - bent))
        dq[chunk] = low(_times(dscores, k_HLD)).flatten(0, 1).transpose(0, 1)
        if of_keys:
            dk[keys] += (dscores.mT @ q).sum(1).transpose(0, 1)
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
