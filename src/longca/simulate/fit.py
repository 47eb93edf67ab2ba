"""Least squares of relative errors: what work costs, from measured seconds."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Fit(NamedTuple):
    """A constant, how many measurements it comes from, and the median error of the fit."""

    name: str
    value: float
    measurements: int
    error: float


def costs_of(matrix: Array) -> Array:
    """Returns the seconds that a unit of each kind of work takes. `matrix` has a row for each measurement: its work over its seconds."""
    solution, *_ = np.linalg.lstsq(matrix, np.ones(len(matrix)), rcond=None)
    return np.asarray(solution, np.float64)


def error_of(matrix: Array, costs: Array) -> float:
    """Returns the median error of the seconds that these costs give."""
    return float(median(np.abs(matrix @ costs - 1).tolist()))


def rounded(value: float) -> float:
    return float(f"{value:.4g}")
