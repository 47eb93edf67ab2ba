"""The diagnosis of a wrong tensor: which known mistake gives just these numbers.

Some wrong tokens, and some right ones, are computed in fp64 under each mistake (`mistakes`, `mask_mistakes`). A mistake is named only
where nearly all wrong tokens agree with it. Of several, the one that agrees with more of the right tokens is named. Nothing here runs for
a kernel that is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from longca.bench.check import mask_mistakes, mistakes  # noqa: F401  they add themselves to MISTAKES
from longca.bench.check.comparison import FACTOR
from longca.bench.check.reference import Reference, Values
from longca.bench.check.sample import FORWARD, KEYS, MISTAKES, ROWS, OfHeads, Sample
from longca.bench.check.stretch import taken_out
from longca.kernels.base import Case
from longca.kernels.inputs import Inputs

MOST_TOKENS, MOST_RIGHT, MOST_HEADS, MOST_KV_HEADS, MOST_ROWS = 32, 16, 4, 2, 2048
FITS, OF_ERROR = 0.95, 0.02  # the share of wrong tokens that a mistake must give, and how far it may be off, of the error that it explains
LEAST = {"lse": 4}  # wrong tokens: a single number of each may agree by chance
ZERO = ("zero", "lse zero")
LOCAL = (*ZERO, "factor", "lse offset")  # that are facts about the wrong tokens
NOTHING_FITS = "no known mistake fits"


@dataclass(frozen=True)
class Diagnosis:
    """The mistake that fits a wrong tensor, and the share of its wrong tokens that it gives; no name where none fits."""

    tensor: str
    name: str = ""
    words: str = NOTHING_FITS
    share: float = 0.0
    of_right: float = -1.0  # the share of right tokens that it leaves right

    @property
    def sentence(self) -> str:
        only = "" if self.of_right >= FITS or self.name in LOCAL else ", in these tokens only"
        return f"{self.tensor} fits a known mistake{only}: {self.words}" if self.name else self.words


def diagnose(wrong: str, got: torch.Tensor, inputs: Inputs, reference: Reference, data_set: str, case: Case) -> Diagnosis | None:
    """The diagnosis of the tensor `wrong`; None where there is nothing to compare, as with NaN."""
    if reference.mask is None or case.sinks or wrong not in (*ROWS, *KEYS):
        return None
    of_rows, right, rounding = wrong in ROWS, reference.values[data_set][wrong], reference.rounding[data_set][wrong].double()
    rows = torch.from_numpy(reference.sampled.rows).to(case.device)
    if wrong == "lse":
        got_HTD, right_HTD, tolerance = got[:, rows, None], right[..., None], rounding
    else:
        got_HTD, right_HTD, tolerance = (got[rows] if of_rows else got).transpose(0, 1), right.transpose(0, 1), rounding.T
    got_HTD, right_HTD = as_in_reference(got_HTD.detach().double(), wrong, data_set, case), right_HTD.to(case.device).double()
    tolerance = FACTOR * tolerance.to(case.device) + (1e-6 if wrong == "lse" else 0.0)
    off = (got_HTD - right_HTD).square().mean(-1).sqrt()
    is_wrong = off.isfinite() & (off > tolerance)
    if int(is_wrong.sum()) < LEAST.get(wrong, 1):
        return None
    heads = _some(is_wrong.any(1).nonzero().flatten(), MOST_HEADS if of_rows else MOST_KV_HEADS)
    heads = heads[:1] if reference.mask.heads > 1 else heads
    wrong_tokens = is_wrong[heads].any(0)
    chosen = _some(wrong_tokens.nonzero().flatten(), MOST_TOKENS), _some((~wrong_tokens).nonzero().flatten(), MOST_RIGHT)
    tokens = torch.cat(chosen).sort().values
    picked = (heads[:, None], tokens)
    query_heads = heads if of_rows else (heads[:, None] * case.group + torch.arange(case.group, device=heads.device)).flatten()
    of_tokens = got_HTD[picked], right_HTD[picked], is_wrong[picked]
    sample = _sample(wrong, *of_tokens, tokens, query_heads, inputs, reference, data_set, case)
    return None if sample is None else _best(sample, tolerance[picked])


def as_in_reference(x_HLD: torch.Tensor, name: str, data_set: str, case: Case) -> torch.Tensor:
    """The numbers of a tensor without the powers of two of its data set."""
    factor = taken_out(name, data_set, case, x_HLD.device)
    return x_HLD if factor is None else x_HLD * factor[..., None].to(x_HLD)


def _some(numbers: torch.Tensor, most: int) -> torch.Tensor:
    """At most so many of them, evenly."""
    places = np.unique(np.linspace(0, len(numbers) - 1, min(most, len(numbers))).astype(np.int64))
    return numbers[torch.from_numpy(places).to(numbers.device)]


def _sample(
    wrong: str, got: torch.Tensor, right: torch.Tensor, is_wrong: torch.Tensor, tokens: torch.Tensor, heads: torch.Tensor,
    inputs: Inputs, reference: Reference, data_set: str, case: Case,
) -> Sample | None:  # fmt: skip
    """None where dk or dv come from more rows than are worth it."""
    sampled, values = reference.sampled, reference.values[data_set]
    places, keys = tokens, torch.arange(case.seqlen_k, device=case.device)
    if wrong in KEYS:
        of_gradient = np.flatnonzero(np.isin(sampled.rows, sampled.with_gradient(data_set)))
        places, keys = torch.from_numpy(of_gradient).to(case.device), tokens
        if len(places) > MOST_ROWS:
            return None
    rows = torch.from_numpy(sampled.rows).to(case.device)[places]
    take = partial(_of_heads, inputs, values, rows, places, data_set, case)
    k, v = inputs.k[keys].double(), as_in_reference(inputs.v[keys].double().transpose(0, 1), "v", data_set, case).transpose(0, 1)
    assert reference.mask is not None
    of_tokens = {"got": got, "right": right, "wrong": is_wrong}
    return Sample(wrong, case, reference.mask, rows, keys, heads, k=k, v=v, every_k=inputs.k, take=take, of=take(heads), **of_tokens)


def _of_heads(
    inputs: Inputs, values: Values, rows: torch.Tensor, places: torch.Tensor, data_set: str, case: Case, heads: torch.Tensor
) -> OfHeads:
    """q, dout, out and lse of some query heads in these rows, which are at these places of the reference."""
    q, dout, out = (x.transpose(0, 1).double() for x in (inputs.q[rows], inputs.dout[rows], values["out"][places]))
    dout = as_in_reference(dout, "dout", data_set, case)
    return OfHeads(q[heads], dout[heads], out[heads], values["lse"][heads][:, places].double())


def _best(s: Sample, tolerance: torch.Tensor) -> Diagnosis:
    best = Diagnosis(s.tensor)
    size = _rms(s.right).clamp_min(1e-300)
    for tensors, find in MISTAKES:
        for form in find(s) if s.tensor in tensors else ():
            larger = (_rms(form.tensor) / size).nan_to_num(0.0, 0.0, 0.0).clamp(1.0, 1e6)
            fits = _rms(s.got - form.tensor) <= tolerance * larger + OF_ERROR * _rms(form.tensor - s.right).nan_to_num(0.0, 0.0, 0.0)
            fits |= ~s.got.isfinite().all(-1) & ~form.tensor.isfinite().all(-1)
            share, of_right = float(fits[s.wrong].double().mean()), _share(fits[~s.wrong])
            if share >= FITS and form.name in ZERO:  # the simplest, where other mistakes give zeros too
                return Diagnosis(s.tensor, form.name, form.words, share, of_right)
            if share >= FITS and (of_right, share) > (best.of_right, best.share):
                best = Diagnosis(s.tensor, form.name, form.words, share, of_right)
    return best


def _share(fits: torch.Tensor) -> float:
    return float(fits.double().mean()) if fits.numel() else 1.0


def _rms(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(-1).sqrt()


def first_wrong(wrong: list[str]) -> str:
    """The tensor to diagnose: others may be wrong as its consequence."""
    return next((name for name in (*FORWARD, "dq", "dk", "dv") if name in wrong), "")
