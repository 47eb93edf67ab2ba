"""The links of a cluster, and which of them a message takes."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from longca.simulate.cluster import Algorithm, Cluster


class Path(NamedTuple):
    links: tuple[int, ...]
    latency_s: float
    limit: float  # bytes/s that one message can take


class Links:
    """Each rank has a link to and one from the others of its node, and an adapter to other nodes with both directions."""

    def __init__(self, cluster: Cluster, ranks: int) -> None:
        self.cluster, self.ranks = cluster, ranks
        nodes = -(-ranks // cluster.per_node)
        inside, between = cluster.inside.bytes_s, cluster.between.bytes_s
        self.capacities = [inside] * (2 * ranks) + [between] * (2 * ranks) + [cluster.cores or 1.0] * nodes
        self.path = lru_cache(maxsize=1 << 18)(self._path)

    def _inside(self, sender: int, receiver: int) -> tuple[int, int]:
        return 2 * sender, 2 * receiver + 1

    def _adapters(self, sender: int, receiver: int) -> tuple[int, int]:
        return 2 * self.ranks + 2 * sender, 2 * self.ranks + 2 * receiver + 1

    def cores(self, rank: int) -> int:
        """The link that stands for the cores of a rank's node."""
        return 4 * self.ranks + self.cluster.node(rank)

    def _path(self, sender: int, receiver: int, operation: str) -> Path:
        cluster = self.cluster
        share = cluster.efficiency.of(operation)
        if cluster.node(sender) == cluster.node(receiver):
            return Path(self._inside(sender, receiver), cluster.inside.latency_us * 1e-6, share * cluster.inside.bytes_s)
        links: tuple[int, ...] = self._adapters(sender, receiver)
        if cluster.operations.of(operation) is Algorithm.HIERARCHICAL:
            links = (*self._inside(sender, receiver), *links)
        return Path(links, cluster.between.latency_us * 1e-6, share * cluster.between.bytes_s)

    def ring_paths(self, sender: int, receiver: int, operation: str) -> list[Path]:
        """Neighbours of a ring collective, which takes equal parts over all paths: between nodes each pair of adapters is one."""
        per_node, sending, receiving = self.cluster.per_node, self.cluster.node(sender), self.cluster.node(receiver)
        if sending == receiving:
            return [self.path(sender, receiver, operation)]
        full = min(per_node, self.ranks - max(sending, receiving) * per_node)  # the last node may have fewer ranks
        return [self.path(sending * per_node + place, receiving * per_node + place, operation) for place in range(full)]
