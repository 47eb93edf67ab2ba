"""Finds constants of a cluster that bring predictions nearest to given speeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log

from longca.simulate.cluster import Cluster, changed

STEPS = (0.2, 0.1, 0.05, 0.02, 0.01)  # relative, one after the other


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
                    trial = values | {name: values[name] * factor}
                    if (value := loss(trial)) < best - 1e-9:
                        values, best, improved = trial, value, True
    return changed(cluster, {name: float(f"{value:.3g}") for name, value in values.items()})
