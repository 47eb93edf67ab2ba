"""The comparison of results with the reference.

The reference knows for each token and head the rms error (over the head size) that a correct kernel of the tested precision makes. A result
is right where each token's error is below `FACTOR` times that; where the mean error over `GROUP` tokens is below `MEAN_FACTOR` times the
mean of that, as many small errors show there; and where no group of tokens is too large or too small as a whole by more than chance
explains.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from longca.bench.check import explain, host_copies
from longca.bench.check.pieces import in_pieces
from longca.bench.check.reference import Reference
from longca.bench.check.sampled_rows import Ints
from longca.bench.check.stretch import taken_out, underflow
from longca.bench.check.verdict import Error, Verdict, tell_apart
from longca.kernels.base import Case

Tensors = dict[str, torch.Tensor]
FACTOR = 8.0  # times the expected error of a token
GROUP, MEAN_FACTOR = 128, 1.75  # tokens, and times their expected error, on average over the group
BIAS, BIAS_FACTOR = {"bf16": 2e-3, "fp16": 5e-4, "fp32": 2e-6, "fp64": 1e-14}, 6.0  # relative, and times the standard deviation of it
UNEQUAL, ADDING_ORDER = 2.0, 0.05  # times the tolerance, and of the size of a token: how far calls on equal data may be apart
LSE_ALLOWED = {"bf16": 1e-3, "fp16": 1e-3, "fp32": 2e-6, "fp64": 1e-13}  # beside the rounding error: 1e-3 moves out by half a step of bf16


def compare(tensors: Tensors, reference: Reference, data_set: str, case: Case, verdict: Verdict) -> None:
    """Compares each tensor with the reference, which may lie on the host: all tokens, or those of a shard that it was cut to."""
    sampled, right, rounding = reference.sampled, reference.values[data_set], reference.rounding[data_set]
    rows, voiced = (torch.from_numpy(numbers).to(case.device) for numbers in (sampled.rows, sampled.with_gradient(data_set)))
    numbers = None if reference.tokens is None else torch.from_numpy(reference.tokens).to(case.device)
    every = explain.Tokens(numbers)
    checked = explain.Tokens(rows if numbers is None else numbers[rows], sampled.seen, sampled=len(rows) < case.seqlen_q)
    for name, tensor in tensors.items():
        # of a wrong out or lse that is a consequence, and nobody should look for another mistake
        if name == "dq" and verdict.ok and (leak := explain.unexpected_gradient(tensor, voiced, every)):
            verdict.blame("dq", f"is not 0 in rows whose dout is 0: in {leak}")
        if name == "out" and (holes := explain.non_finite(tensor, every)):
            verdict.blame("out", f"holds {holes}")
        if not right[name].numel():
            continue  # a shard without any row that is looked at
        if name == "lse":
            found = _lse_error(tensor[:, rows], right[name], LSE_ALLOWED[case.dtype] + FACTOR * rounding[name].to(case.device), checked)
        elif name == "dsinks":
            found = _sinks_error(tensor, right[name], FACTOR * rounding[name].to(case.device))
        elif name in ("out", "dq"):
            found = _worst(tensor[rows], right[name], rounding[name], checked, case.dtype, taken_out(name, data_set, case, tensor.device))
        else:
            found = _worst(tensor, right[name], rounding[name], every, case.dtype, taken_out(name, data_set, case, tensor.device))
        verdict.errors[name] = replace(found, data_set=data_set).joined(verdict.errors.get(name))


def differ(first: Tensors, second: Tensors, reference: Reference, data_set: str, case: Case) -> bool:
    """Whether two wrong results on a data set differ by more than right ones can, and by more than sums in another order: out and dq in the
    sampled rows. What is NaN or infinite in both is equal."""
    rows = torch.from_numpy(reference.sampled.rows).to(case.device)
    for name, rounding in reference.rounding[data_set].items():
        if (name in first) != (name in second):
            return True
        if name not in first or not rounding.numel():
            continue
        x, y = first[name], second[name]
        x, y = (x[rows], y[rows]) if name in ("out", "dq") else (x[:, rows], y[:, rows]) if name == "lse" else (x, y)
        factor = taken_out(name, data_set, case, x.device)
        off, size = in_pieces(partial(_apart, dtype=rounding.dtype, factor=factor), x, y)
        allowed = FACTOR * rounding.to(case.device).clamp_min(underflow(case.dtype, factor)) + (
            LSE_ALLOWED[case.dtype] if name == "lse" else 0.0
        )
        order = ADDING_ORDER * size.clamp_min(float(size.square().mean().sqrt()))
        if bool((off > torch.maximum(UNEQUAL * allowed, order)).any()):
            return True
    return False


def _apart(x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype, factor: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """How far two results are apart, and how large the first is, per token and head."""
    x, y = _times(x.to(dtype), factor), _times(y.to(dtype), factor)
    off = torch.where(x.isfinite() | y.isfinite(), (x - y).abs(), 0.0).nan_to_num_(nan=math.inf, posinf=math.inf)
    off, size = (t.square().mean(-1).sqrt() if t.dim() == 3 else t.abs() for t in (off, x.nan_to_num(0.0, 0.0, 0.0)))
    return off, size


def compare_rows(
    name: str, tensor: torch.Tensor, rows: Ints, places: Ints, reference: Reference, data_set: str, case: Case, verdict: Verdict
) -> None:
    """Compares some rows of a tensor, which are at these places of the reference."""
    right, rounding = (values[data_set][name][torch.from_numpy(places)] for values in (reference.values, reference.rounding))
    numbers = rows if reference.tokens is None else reference.tokens[rows]
    tokens = explain.Tokens(torch.from_numpy(numbers), sampled=len(rows) < case.seqlen_q)
    of_rows = tensor[torch.from_numpy(rows).to(case.device)]
    verdict.errors[name] = _worst(of_rows, right, rounding, tokens, case.dtype).joined(verdict.errors.get(name))


def _worst(
    got: torch.Tensor, right: torch.Tensor, rounding: torch.Tensor, tokens: explain.Tokens, dtype: str, factor: torch.Tensor | None = None
) -> Error:
    """The worst token, group of tokens, or bias of a group, whichever is the largest part of its tolerance. `factor` of each head
    multiplies what was computed."""
    error, along, size = in_pieces(partial(_off, factor=factor), got, right)
    rounding = rounding.to(got.device).clamp_min(underflow(dtype, factor))
    allowed = FACTOR * rounding
    row, head = divmod(int((error / allowed.clamp_min(1e-38)).argmax()), error.shape[1])
    worst = Error(float(error[row, head]), float(allowed[row, head]), f"token {tokens.number(row)}, head {head}")
    if not worst.ok:
        of_head = None if factor is None else factor[head]
        worst = replace(worst, element=_element(_times(got[row, head].to(right.dtype), of_head), right[row, head]))
        return _described(worst, explain.gave(got[row, head]), error > allowed, tokens)
    of_groups = _group_errors(error, along, size, rounding, right.shape[-1], tokens, dtype)
    return max(worst, *of_groups, key=lambda one: one.ratio)


def _element(got_D: torch.Tensor, right_D: torch.Tensor) -> str:
    """The worst element of a token, and what it should be."""
    right_D = right_D.to(got_D.device).double()
    worst = int((got_D.double() - right_D).abs().nan_to_num(nan=math.inf).argmax())
    got, right = tell_apart(float(got_D[worst]), float(right_D[worst]))
    return f"element {worst} is {got}, not {right}"


def _times(x: torch.Tensor, factor: torch.Tensor | None) -> torch.Tensor:
    return x if factor is None else x * factor.to(x)


def _off(got: torch.Tensor, right: torch.Tensor, factor: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Per token and head: the rms error, and the products of the error and of the right value with the right value."""
    right = host_copies.to(got.device, right)
    off = (_times(got.to(right.dtype), factor) - right).nan_to_num_(nan=math.inf, posinf=math.inf, neginf=math.inf)
    return off.square().mean(-1).sqrt_(), (off * right).sum(-1), right.square().sum(-1)


def _group_errors(
    error: torch.Tensor, along: torch.Tensor, size: torch.Tensor, rounding: torch.Tensor, dims: int, tokens: explain.Tokens, dtype: str
) -> Iterator[Error]:
    """The worst mean error of a group of tokens, and the worst bias."""
    counts = _sums(torch.ones_like(rounding))  # [groups, heads]
    relative, expected = ((_sums(x.square()) / counts).sqrt() for x in (error / rounding.clamp_min(1e-38), rounding))
    yield _worst_group(relative * expected, MEAN_FACTOR * expected, len(error), tokens, "on average")
    power = _sums(size).clamp_min(1e-30)
    bias = _sums(along).abs() / power
    chance = (_sums(rounding.square() * size).mul(dims)).sqrt() / power  # errors of one token may hang together
    yield _worst_group(bias, BIAS[dtype] + BIAS_FACTOR * chance, len(error), tokens, "too large or too small as a whole")


def _worst_group(value: torch.Tensor, allowed: torch.Tensor, count: int, tokens: explain.Tokens, words: str) -> Error:
    group, head = divmod(int((value / allowed.clamp_min(1e-38)).argmax()), value.shape[1])
    first, last = group * GROUP, count - 1 if group == len(value) - 1 else (group + 1) * GROUP - 1
    where = f"tokens {tokens.number(first)} to {tokens.number(last)}, head {head}, {words}"
    return Error(float(value[group, head]), float(allowed[group, head]), where)


def _sums(values_TH: torch.Tensor) -> torch.Tensor:
    """Sums over groups of `GROUP` tokens, [groups, heads]; the last group has what is left too."""
    groups = max(1, len(values_TH) // GROUP)
    sums = values_TH[: (groups - 1) * GROUP].view(groups - 1, GROUP, values_TH.shape[1]).sum(1)
    return torch.cat([sums, values_TH[(groups - 1) * GROUP :].sum(0, keepdim=True)])


def _lse_error(got: torch.Tensor, right: torch.Tensor, allowed_HR: torch.Tensor, tokens: explain.Tokens) -> Error:
    got, right = got.to(right.dtype), right.to(got.device)
    same = got == right  # also where both are -inf
    error = torch.where(same, 0.0, (got - right).abs()).nan_to_num_(nan=math.inf, posinf=math.inf)
    head, row = divmod(int((error / allowed_HR).argmax()), error.shape[1])
    found = Error(float(error[head, row]), float(allowed_HR[head, row]), f"token {tokens.number(row)}, head {head}")
    if found.ok:
        return found
    is_, not_ = tell_apart(float(got[head, row]), float(right[head, row]))
    found = replace(found, element=f"it is {is_}, not {not_}")
    gave = explain.gave(got[head, row]) + (", not -infinity," if right[head, row] == -math.inf else "")
    return _described(found, gave, (error > allowed_HR).T, tokens)


def _sinks_error(got_H: torch.Tensor, right_H: torch.Tensor, allowed_H: torch.Tensor) -> Error:
    error = (got_H.to(right_H.dtype) - right_H.to(got_H.device)).abs().nan_to_num_(nan=math.inf, posinf=math.inf)
    head = int((error / allowed_H.clamp_min(1e-38)).argmax())
    return Error(float(error[head]), float(allowed_H[head]), f"head {head}", explain.gave(got_H[head]))


def _described(error: Error, gave: str, wrong_TH: torch.Tensor, tokens: explain.Tokens) -> Error:
    return replace(error, gave=gave, wrong=int(wrong_TH.any(1).sum()), spread=explain.spread(wrong_TH, tokens))
