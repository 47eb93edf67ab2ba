"""Errors of results against fp64, in units of their own rounding, and bits that differ between two results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from longca.numerics.attention_step import Tensors

NAMES = ("out", "lse", "dq", "dk", "dv")
FAR = 0.999  # the share of elements that have at most the error `far`


class Error(NamedTuple):
    """Of the elements of a tensor, in epsilons of its dtype: an element's error over the size of its row."""

    median: float
    far: float  # 99.9 % have at most this


def errors(got: Tensors, exact: Tensors) -> dict[str, Error]:
    return {name: _error(name, got[name], exact[name]) for name in NAMES if name in got}


def _error(name: str, got: torch.Tensor, exact: torch.Tensor) -> Error:
    """The size of a row is the rms of its exact values over the head size, and at least that of a typical row: what is 0 but for
    cancellation, such as dq of a causal mask's first token, has no size of its own. The size of an lse is 1, or its own if larger."""
    off = torch.where(got.double() == exact, 0.0, (got.double() - exact).abs())  # rows without keys have lse -inf
    if name == "lse":
        size = exact.abs().where(exact.isfinite(), torch.ones_like(exact)).clamp_min(1.0)
    else:
        size = exact.square().mean(-1, keepdim=True).sqrt()
        size = size.clamp_min(float(size[size > 0].median()) if (size > 0).any() else 1.0)
    relative = (off / size / torch.finfo(got.dtype).eps).flatten().nan_to_num(nan=math.inf, posinf=math.inf)
    far = max(1, math.ceil(FAR * len(relative)))
    return Error(float(relative.median()), float(relative.kthvalue(far).values))


def changed_share(one: Tensors, other: Tensors) -> dict[str, float]:
    """The share of elements whose bits differ, by tensor. NaN is equal to NaN: an error shows it."""

    def differ(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x != y) & ~(x.isnan() & y.isnan())

    return {name: float(differ(one[name], other[name]).double().mean()) for name in NAMES if name in one and name in other}


def growth(lengths: Sequence[int], values: Sequence[float]) -> float | None:
    """The factor by which a value grows when the length doubles: a straight line through the logarithms. None for fewer than two
    lengths."""
    points = [(math.log2(length), math.log2(value)) for length, value in zip(lengths, values, strict=True) if 0 < value < math.inf]
    if len({x for x, _ in points}) < 2:
        return None
    mean_x, mean_y = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return float(2**slope)
