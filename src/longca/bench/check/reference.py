"""The reference: out, lse, dq, dk, dv of the sampled rows in fp64, and the error that the tested precision makes.

The same formulas are run twice: in fp64, and as a kernel of the tested precision would (fp32 sums, probabilities, score gradients
and out rounded to bf16 or fp16). The difference is the rounding error; a tolerance is a small multiple of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from longca.bench.check.sampled_rows import LOUD, Ints, SampledRows, sample_rows
from longca.kernels.base import Case, Layout
from longca.kernels.inputs import DTYPES, WHICH, Inputs, make, tokens
from longca.kernels.lower import Visibility
from longca.masks import AnyMask

DATA_SETS = ("plain", "loud")
TENSORS = ("out", "lse", "dq", "dk", "dv")
CHUNK_PAIRS = {"cpu": 1 << 22, "cuda": 1 << 28}

Values = dict[str, torch.Tensor]


@dataclass
class Reference:
    """Per data set the right values, and the rounding error (rms over the head size) per token and head.

    out, dq: the sampled rows; dk, dv: all keys; lse: [heads, rows]. fp32 is enough: what is left out is far below any tolerance.
    """

    sampled: SampledRows
    values: dict[str, Values]
    rounding: dict[str, Values]
    tokens: Ints | None = None  # of a shard: their numbers in the sequence; None: all

    def cut(self, tokens: Ints, heads: tuple[int, int] | None = None) -> Reference:
        """What concerns a shard, its tokens counted from 0; of lse only the given query heads."""
        place = np.full(int(max(tokens.max(initial=0), self.sampled.rows.max(initial=0))) + 1, -1, np.int64)
        place[tokens] = np.arange(len(tokens))
        mine = place[self.sampled.rows] >= 0
        of_rows, of_keys = torch.from_numpy(np.flatnonzero(mine)), torch.from_numpy(tokens)

        def part(name: str, value: torch.Tensor) -> torch.Tensor:
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
    """The inputs of one data set: dout is zero except in the sampled rows; in `loud`, V is loud at the loud keys.

    With `ranges` only those tokens, one after the other: the same numbers that the whole has there.
    """
    number = seed if data_set == "plain" else seed + 1_000_003
    if ranges is None:
        inputs = make(case, number, layout)
    else:
        inputs = Inputs(*(tokens(name, case, ranges, number, layout) for name in WHICH))
    inputs.dout[~_among(points.with_gradient(data_set), case.seqlen_q, ranges).to(case.device)] = 0
    if data_set == "loud":
        keys = _among(points.loud_keys, case.seqlen_k, ranges).to(case.device)
        inputs.v[keys] = inputs.v[keys] * LOUD
    return inputs


def _among(wanted: Ints, length: int, ranges: Sequence[tuple[int, int]] | None) -> torch.Tensor:
    """Per token of the ranges, whether it is wanted."""
    whole = np.zeros(length, bool)
    whole[wanted] = True
    return torch.from_numpy(whole if ranges is None else np.concatenate([whole[:0], *(whole[first:last] for first, last in ranges)]))


def reference(mask: AnyMask, case: Case, seed: int = 0) -> Reference:
    """Computed on the case's device, in chunks: nothing of size seqlen_q x seqlen_k is ever held."""
    points = sample_rows(mask, seed)
    values, rounding = {}, {}
    for data_set in DATA_SETS:
        inputs = data(case, points, data_set, seed)
        exact = _attend(mask, case, points, inputs, torch.float64, lambda x: x)
        lowered = DTYPES[case.dtype]
        work = torch.float64 if case.dtype == "fp64" else torch.float32
        rounded = _attend(mask, case, points, inputs, work, lambda x, to=lowered: x.to(to).to(x.dtype))
        values[data_set] = {name: exact[name].float() if case.dtype != "fp64" else exact[name] for name in exact if name in TENSORS}
        rounding[data_set] = _rounding_error(exact, rounded, case)
    return Reference(points, values, rounding)


def _rounding_error(exact: Values, rounded: Values, case: Case) -> Values:
    """Per token and head the error of the rounded run; and, where luck made that small, what rounding each term of the sum is
    expected to cost, and rounding the right value itself."""
    step = torch.finfo(DTYPES[case.dtype]).eps / 4  # the rms of a rounding, relative to what is rounded
    finite = exact["lse"][exact["lse"].isfinite()]
    size = 1 + float(finite.abs().max()) if finite.numel() else 1.0
    work = torch.finfo(rounded["lse"].dtype).eps * size / 2  # an lse that is off by a rounding moves all probabilities of its row
    result: Values = {}
    for name in ("out", "dq", "dk", "dv"):
        if name in exact:
            error = (exact[name] - rounded[name].double()).square().mean(2)
            expected = (step * exact[name]).square().mean(2) + (step**2 + work**2) * exact[f"{name}_terms"].square()
            result[name] = (error + expected).sqrt().to(torch.float64 if case.dtype == "fp64" else torch.float32)
    return result


def _attend(mask: AnyMask, case: Case, points: SampledRows, inputs: Inputs, work: torch.dtype, low: Callable[..., torch.Tensor]) -> Values:
    """Forward and backward of the sampled rows. `low` rounds what a kernel of the tested precision would round.

    `*_terms` is per token and head the root of the summed squares of the terms of its sum: what roundings act on.
    """
    visible, scale, group = Visibility(mask, case.device), case.softmax_scale, case.group
    all_rows = torch.from_numpy(points.rows).to(case.device)
    n, keys_total = len(all_rows), case.seqlen_k

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, dtype=work, device=case.device)

    out, lse = zeros(n, case.heads_q, case.head_dim_v), zeros(case.heads_q, n).fill_(float("-inf"))
    dq, dk, dv = (
        zeros(n, case.heads_q, case.head_dim),
        zeros(keys_total, case.heads_kv, case.head_dim),
        zeros(keys_total, case.heads_kv, case.head_dim_v),
    )
    terms = {"out": zeros(n, case.heads_q), "dq": zeros(n, case.heads_q)}
    terms |= {"dk": zeros(keys_total, case.heads_kv), "dv": zeros(keys_total, case.heads_kv)}
    step = max(1, CHUNK_PAIRS[case.device] // max(1, keys_total * group))
    chunks = [slice(start, min(start + step, n)) for start in range(0, n, step)]
    spans = [visible.span(points.rows[chunk]) for chunk in chunks]
    for head in range(case.heads_kv):
        mine = slice(head * group, (head + 1) * group)
        for chunk, (first, last) in zip(chunks, spans, strict=True):
            if last == first:
                continue
            rows, keys = all_rows[chunk], slice(first, last)
            k_LD, v_LD = inputs.k[keys, head].to(work), inputs.v[keys, head].to(work)
            q_GLD, dout_GLD = (x[rows][:, mine].transpose(0, 1).to(work) for x in (inputs.q, inputs.dout))
            scores = (q_GLD @ k_LD.T).mul_(scale).masked_fill_(~visible(rows, first, last, head), float("-inf"))
            row_lse = scores.logsumexp(-1)
            p = scores.sub_(row_lse.clamp_min(-1e30)[..., None]).exp_()
            row_out = low(low(p) @ v_LD)
            out[chunk, mine], lse[mine, chunk] = row_out.transpose(0, 1), row_lse
            terms["out"][chunk, mine] = (p.square() @ v_LD.square()).mean(2).T
            if not case.backward:
                continue
            dp = dout_GLD @ v_LD.T
            delta = (dout_GLD * row_out).sum(-1, keepdim=True)
            dv[keys, head] += (low(p).transpose(-1, -2) @ dout_GLD).sum(0)
            terms["dv"][keys, head] += (p.square().transpose(-1, -2) @ dout_GLD.square().mean(2, keepdim=True)).sum((0, 2))
            spread = (dout_GLD * row_out).norm(dim=-1, keepdim=True)  # what the rounding of out acts on; delta itself may cancel
            sizes = (p * (dp.abs() + spread)).square_()
            terms["dq"][chunk, mine] = sizes.sum(-1).T * scale**2
            terms["dk"][keys, head] += sizes.sum((0, 1)) * scale**2
            dscores = low(p.mul_(dp.sub_(delta)).mul_(scale))
            dq[chunk, mine] = low(dscores @ k_LD).transpose(0, 1)
            dk[keys, head] += (dscores.transpose(-1, -2) @ q_GLD).sum(0)
    result = {"out": out, "lse": lse} | ({"dq": dq, "dk": low(dk), "dv": low(dv)} if case.backward else {})
    return result | {f"{name}_terms": value.sqrt() for name, value in terms.items()}
