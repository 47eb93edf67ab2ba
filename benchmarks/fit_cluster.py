"""Fits the compute constants of a cluster to published figures on 8 GPUs, and prints them.

    PYTHONPATH=src python benchmarks/fit_cluster.py h100-ib     # all four, to full and causal masks
    PYTHONPATH=src python benchmarks/fit_cluster.py b200-ib     # the two speeds of attention, to full masks

All other figures are for checking. Run it again when a method's program or the model changes, put what it prints into the cluster's file,
and run `python benchmarks/simulate_errors.py`.
"""

from __future__ import annotations

import sys

from longca.simulate.cluster import Cluster, constant, find
from longca.simulate.fit import fitted
from longca.simulate.published import points_of, published, recordings, speeds_of

SPEEDS = ("compute.forward_tflops", "compute.backward_tflops")
FITTED = {
    "h100-ib": (("full", "causal"), (*SPEEDS, "compute.memory_gb_s", "compute.host_us")),
    "b200-ib": (("full",), SPEEDS),
}


def main(name: str) -> None:
    masks, names = FITTED[name]
    figures, (_, cluster) = published(name), find(name)
    recorded = list(recordings(figures, masks, figures.gpus[:1]))

    def ratios(trial: Cluster) -> list[float]:
        predicted = {}
        for method, mask, programs in recorded:
            predicted |= speeds_of(trial, mask, [(method, programs)])
        return [point.predicted / point.published for point in points_of(figures, predicted)]

    found = fitted(cluster, {name: constant(cluster, name) for name in names}, ratios)
    for fitted_name in names:
        print(f"{fitted_name} = {constant(found, fitted_name):g}")


if __name__ == "__main__":
    main(sys.argv[1])
