"""Fits the compute constants of h100-ib to the published figures of full and causal masks on 8 GPUs, and prints them.

    PYTHONPATH=src python benchmarks/fit_cluster.py

Run it again when a method's program or the model changes, put what it prints into src/longca/clusters/h100-ib.toml, and look at
`longca simulate --validate`.
"""

from __future__ import annotations

from msgspec.structs import replace

from longca.simulate import validate
from longca.simulate.cluster import Cluster, find
from longca.simulate.fit import fitted

FITTED = ("compute.forward_tflops", "compute.backward_tflops", "compute.memory_gb_s", "compute.host_us")


def main() -> None:
    figures = validate.published()
    fewest = replace(figures, gpus=figures.gpus[:1])
    recordings = list(validate.recordings(fewest, validate.DENSE))

    def ratios(cluster: Cluster) -> list[float]:
        return [point.predicted / point.published for point in validate.points_of(fewest, validate.speeds_of(cluster, recordings))]

    _, cluster = find("h100-ib")
    found = fitted(cluster, {name: validate.constant(cluster, name) for name in FITTED}, ratios)
    for name in FITTED:
        print(f"{name} = {validate.constant(found, name):g}")


if __name__ == "__main__":
    main()
