"""The diagnosis of a wrong tensor: which known mistake gives just these numbers.

Some wrong tokens are computed in fp64 under each mistake (`mistakes`). A mistake is named only where nearly all of them agree with it; of
others nothing is said. Nothing here runs for a kernel that is right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from longca.bench.check.mistakes import FORWARD, KEYS, MISTAKES, ROWS, Sample
from longca.bench.check.reference import Reference
from longca.kernels.base import Case
from longca.kernels.inputs import Inputs

MOST_TOKENS, MOST_HEADS, MOST_KV_HEADS, MOST_ROWS = 32, 4, 2, 2048
FITS, OF_ERROR = 0.95, 0.02  # the share of wrong tokens that a mistake must give, and how far it may be off, of the error that it explains
LEAST = {"lse": 4}  # wrong tokens: a single number of each may agree by chance
NOTHING_FITS = "no known mistake fits"


@dataclass(frozen=True)
class Diagnosis:
    """The mistake that fits a wrong tensor, and the share of its wrong tokens that it gives; no name where none fits."""

    tensor: str
    name: str = ""
    words: str = NOTHING_FITS
    share: float = 0.0

    @property
    def sentence(self) -> str:
        return f"{self.tensor} fits a known mistake: {self.words}" if self.name else self.words


def diagnose(
    wrong: str, got: torch.Tensor, inputs: Inputs, reference: Reference, data_set: str, case: Case, allowed: float = 8.0
) -> Diagnosis | None:
    """The diagnosis of the tensor `wrong`; None where there is nothing to compare, as with NaN. `allowed` is times the expected error."""
    if reference.mask is None or case.sinks or wrong not in (*ROWS, *KEYS):
        return None
    of_rows, right, rounding = wrong in ROWS, reference.values[data_set][wrong], reference.rounding[data_set][wrong].double()
    rows = torch.from_numpy(reference.sampled.rows).to(case.device)
    if wrong == "lse":
        got_HTD, right_HTD, tolerance = got[:, rows, None], right[..., None], rounding
    else:
        got_HTD, right_HTD, tolerance = (got[rows] if of_rows else got).transpose(0, 1), right.transpose(0, 1), rounding.T
    got_HTD, right_HTD = got_HTD.detach().double(), right_HTD.to(case.device).double()
    tolerance = allowed * tolerance.to(case.device) + (1e-6 if wrong == "lse" else 0.0)
    off = (got_HTD - right_HTD).square().mean(-1).sqrt()
    is_wrong = off.isfinite() & (off > tolerance)
    if int(is_wrong.sum()) < LEAST.get(wrong, 1):
        return None
    heads = _some(is_wrong.any(1).nonzero().flatten(), MOST_HEADS if of_rows else MOST_KV_HEADS)
    heads = heads[:1] if reference.mask.heads > 1 else heads
    tokens = _some(is_wrong[heads].any(0).nonzero().flatten(), MOST_TOKENS)
    picked = (heads[:, None], tokens)
    query_heads = heads if of_rows else (heads[:, None] * case.group + torch.arange(case.group, device=heads.device)).flatten()
    sample = _sample(wrong, got_HTD[picked], right_HTD[picked], tokens, query_heads, inputs, reference, data_set, case)
    return None if sample is None else _best(sample, is_wrong[picked], tolerance[picked])


def _some(numbers: torch.Tensor, most: int) -> torch.Tensor:
    """At most so many of them, evenly."""
    places = np.unique(np.linspace(0, len(numbers) - 1, min(most, len(numbers))).astype(np.int64))
    return numbers[torch.from_numpy(places).to(numbers.device)]


def _sample(
    wrong: str, got: torch.Tensor, right: torch.Tensor, tokens: torch.Tensor, heads: torch.Tensor,
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
    q, dout = (x[rows][:, heads].transpose(0, 1).double() for x in (inputs.q, inputs.dout))
    out, lse = values["out"][places][:, heads].transpose(0, 1).double(), values["lse"][heads][:, places].double()
    k, v = (x[keys].double() for x in (inputs.k, inputs.v))
    assert reference.mask is not None
    return Sample(wrong, case, reference.mask, rows, keys, heads, q, dout, k, v, out, lse, got, right)


def _best(s: Sample, is_wrong: torch.Tensor, tolerance: torch.Tensor) -> Diagnosis:
    best = Diagnosis(s.tensor)
    size = _rms(s.right).clamp_min(1e-300)
    for tensors, find in MISTAKES:
        for form in find(s) if s.tensor in tensors else ():
            larger = (_rms(form.tensor) / size).nan_to_num(0.0, 0.0, 0.0).clamp(1.0, 1e6)
            fits = _rms(s.got - form.tensor) <= tolerance * larger + OF_ERROR * _rms(form.tensor - s.right).nan_to_num(0.0, 0.0, 0.0)
            share = float(fits[is_wrong].double().mean())
            if share >= FITS and share > best.share:
                best = Diagnosis(s.tensor, form.name, form.words, share)
    return best


def _rms(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(-1).sqrt()


def first_wrong(wrong: list[str]) -> str:
    """The tensor to diagnose: others may be wrong as its consequence."""
    return next((name for name in (*FORWARD, "dq", "dk", "dv") if name in wrong), "")
