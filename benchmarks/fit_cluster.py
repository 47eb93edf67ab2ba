"""Fits the compute constants of a cluster to published figures on 8 GPUs, and prints them.

    PYTHONPATH=src python benchmarks/fit_cluster.py h100-ib     # all four, to full and causal masks
    PYTHONPATH=src python benchmarks/fit_cluster.py b200-ib     # the two speeds of attention, to full masks

All other figures are for checking. Run it again when a method's program or the model changes, put what it prints into the cluster's file,
and run `python benchmarks/simulate_errors.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from math import log

from longca.simulate.cluster import Cluster, changed, constant, find
from longca.simulate.published import points_of, programs_of, published, speeds_of

STEPS = (0.2, 0.1, 0.05, 0.02, 0.01)  # relative, one after the other
SPEEDS = ("compute.forward_tflops", "compute.backward_tflops")
FITTED = {
    "h100-ib": (("full", "causal"), (*SPEEDS, "compute.memory_gb_s", "compute.host_us")),
    "b200-ib": (("full",), SPEEDS),
}


def fitted(cluster: Cluster, start: Mapping[str, float], ratios: Callable[[Cluster], list[float]]) -> Cluster:
    """Returns the cluster with fitted constants. `start` has their names, such as compute.memory_gb_s, and first values. The fit minimises
    the sum of squared logarithms of `ratios` (predicted over measured), one constant after the other, in ever smaller steps."""
    values = dict(start)

    def loss(settings: Mapping[str, float]) -> float:
        return sum(log(ratio) ** 2 for ratio in ratios(changed(cluster, dict(settings))))

    best = loss(values)
    for step in STEPS:
        improved = True
        while improved:
            improved = False
            for name in values:
                for factor in (1 + step, 1 / (1 + step)):
                    candidate = values | {name: values[name] * factor}
                    if (value := loss(candidate)) < best - 1e-9:
                        values, best, improved = candidate, value, True
    return changed(cluster, {name: float(f"{value:.3g}") for name, value in values.items()})


def main(name: str) -> None:
    masks, names = FITTED[name]
    figures, (_, cluster) = published(name), find(name)
    recorded = {mask: list(programs_of(figures, mask, figures.gpus[0])) for mask in masks}

    def ratios(candidate: Cluster) -> list[float]:
        predicted = {}
        for mask, programs in recorded.items():
            predicted |= speeds_of(candidate, mask, programs)
        return [point.predicted / point.published for point in points_of(figures, predicted)]

    found = fitted(cluster, {name: constant(cluster, name) for name in names}, ratios)
    for fitted_name in names:
        print(f"{fitted_name} = {constant(found, fitted_name):g}")


if __name__ == "__main__":
    main(sys.argv[1])
