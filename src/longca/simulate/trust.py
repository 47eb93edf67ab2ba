"""How near predictions for a cluster came to other values, in a sentence."""

from __future__ import annotations

from collections.abc import Collection

from longca.simulate.cluster import DENSE, SHAPE, Cluster

Shape = tuple[int, int, int, int]


def trust(cluster: Cluster, masks: Collection[str], shapes: Collection[Shape]) -> str:
    """Of predictions for these masks and shapes (query heads, KV heads, head sizes)."""
    if not cluster.error:
        return cluster.compared or "Predictions for this cluster were compared with no measurement."
    parts = []
    if set(masks) & set(DENSE):
        parts.append(f"on full and causal masks are within ±{100 * cluster.error_of(DENSE[0]):.0f} % of the prediction")
    if set(masks) - set(DENSE):
        parts.append(f"on documents are within ±{100 * cluster.error:.0f} % of the prediction; other masks were not compared")
    sentence = f"Half of the {'measured' if cluster.cores else 'published'} times {', '.join(parts)} (longca simulate --validate)."
    if cluster.cores or not set(shapes) - {SHAPE}:
        return sentence
    return f"{sentence} All of them have {SHAPE[0]}:{SHAPE[1]} heads of {SHAPE[2]}; other shapes were not compared."
