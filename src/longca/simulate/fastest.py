"""Which methods may be faster than the usual one on a shipped cluster, for `longca.parallel.default_method`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from longca.bench.plan.suite import names
from longca.parallel.method import Plan
from longca.results.problem import Pass
from longca.simulate import cluster as clusters
from longca.simulate.bounds import bound_of
from longca.simulate.cluster import Cluster
from longca.simulate.predict import predict
from longca.simulate.programs import Programs

Layers = Mapping[str, Plan]  # of one method: what ranks do under each mask


def cluster_of(device: str, ranks: int, per_node: int) -> tuple[str, Cluster] | None:
    """Returns the shipped cluster of a GPU whose nodes have so many ranks, or so many for each of the ranks that share a sequence: others
    share heads or have other data. One node needs no more than to have room for all ranks."""
    known = [clusters.find(name) for name in names("clusters")]
    fitting = [
        (name, cluster)
        for name, cluster in known
        if cluster.device == device and per_node and (cluster.per_node % per_node == 0 or ranks == per_node < cluster.per_node)
    ]
    if not fitting:
        return None
    name, cluster = max(fitting, key=lambda entry: entry[1].memory_gib)  # with less memory it describes a share of a device
    return name, replace(cluster, per_node=per_node)


def rivals(methods: Mapping[str, Layers], usual: str, faster: float, weights: Mapping[str, int], cluster: Cluster) -> dict[str, float]:
    """Returns the milliseconds that a forward and a backward of all layers take by the usual method, and by others that may be the fastest
    and faster by this share: the bounds of the rest say that they are not."""

    def least(name: str) -> float:
        return sum(weights[mask] * bound_of(plan, cluster).ms[Pass.BOTH] for mask, plan in methods[name].items())

    def simulated(name: str) -> float:
        return sum(weights[mask] * predict(Programs.of(plan), cluster, Pass.BOTH).ms for mask, plan in methods[name].items())

    times = {usual: simulated(usual)}
    enough = times[usual] / (1 + faster)
    for bound, name in sorted((least(name), name) for name in methods if name != usual):
        if bound < enough:
            times[name] = simulated(name)
            enough = min(enough, times[name])
    return times
