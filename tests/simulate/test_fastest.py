"""The method of a plan where none is named is the one that `longca simulate` finds."""

from __future__ import annotations

from typing import Any

import pytest

import longca
from longca import masks
from longca.parallel.default_method import FASTER, MOST_RANKS, by_rule, candidates, choose
from longca.parallel.planner import Wanted
from longca.simulate.cluster import find
from longca.simulate.fastest import cluster_of

H100 = "NVIDIA H100 80GB HBM3"


def wanted(mask: Any, **settings: Any) -> Wanted:
    return Wanted.of(mask, (64, 8), 128, "cuda", **settings)


@pytest.mark.parametrize("name", ["causal", "causal_blockwise", "sliding_window_causal", "global_sliding_window"])
def test_the_choice_is_what_simulate_finds(name: str) -> None:
    mask = masks.build(name, 65536, seed=0)
    chosen, why = choose(wanted(mask), 8, 8, H100)
    rows = longca.simulate(candidates({"mask": mask}), name, gpus=8, seqlens=65536, seeds=1, passes="fwd+bwd", progress=False).rows
    times = {row["method"]: row["ms"] for row in rows if row["status"] == "ok"}
    rule, best = by_rule({"mask": mask}), min(times, key=times.__getitem__)
    assert chosen == (best if times[best] * (1 + FASTER) < times[rule] else rule)
    assert "on h100-ib" in why


def test_the_choice_is_for_all_layers() -> None:
    kinds = {"global": masks.causal(65536), "local": masks.sliding_window_causal(65536, w=128)}
    assert choose(wanted(kinds["global"]), 8, 8, H100)[0] == "usp"
    assert choose(wanted(kinds, layers={"global": 1, "local": 50}), 8, 8, H100)[0] == "magi"


def test_plans_are_of_one_kind_where_their_masks_have_as_many_layers() -> None:
    kinds = {"global": masks.causal(65536), "local": masks.sliding_window_causal(65536, w=128)}
    first = wanted(kinds, layers={"global": 1, "local": 50}).kind
    assert wanted(kinds, layers={"local": 50, "global": 1}).kind == first
    assert wanted(kinds, layers={"local": 1, "global": 50}).kind != first


def test_a_shipped_cluster_of_the_device_and_its_nodes() -> None:
    for device, ranks, per_node, name in (
        (H100, 16, 8, "h100-ib"),
        (H100, 16, 4, "h100-ib"),  # of each node four GPUs share the sequence
        (H100, 6, 6, "h100-ib"),  # all in one node
        (H100, 12, 6, None),
        (H100, 32, 16, None),
        (H100, 16, 0, None),  # nodes of different sizes
        ("NVIDIA H200", 16, 8, "h200-ib"),  # not the one whose ranks share a GPU
        ("NVIDIA H100 PCIe", 16, 8, None),
    ):
        match = cluster_of(device, ranks, per_node)
        assert (match and match[0]) == name
        assert match is None or match[1].per_node == per_node
    assert cluster_of(H100, 16, 8) == ("h100-ib", find("h100-ib")[1])


def test_the_rule_where_nothing_is_simulated() -> None:
    documents = masks.causal_document(65536, documents=[65000, 536])
    blocks = masks.build("uniform_block", 4096, seed=0)
    for mask, ranks, device in ((documents, 8, ""), (documents, 8, "NVIDIA L4"), (documents, 2 * MOST_RANKS, H100), (blocks, 8, H100)):
        method, why = choose(wanted(mask), ranks, 8, device)
        assert method == by_rule({"mask": mask})
        assert why.startswith("by the rule (magi for documents")


def test_candidates_do_not_depend_on_documents() -> None:
    window, documents = masks.sliding_window_causal(65536, w=128), masks.causal_document(65536, documents=[65000, 536])
    assert {"halo", "hybrid_dcp"} <= {*candidates({"mask": window})}
    assert "halo" not in candidates({"mask": documents & window})
    assert "hybrid_dcp" not in candidates({"mask": documents})
    assert "hybrid_dcp" not in candidates({"global": window, "local": window})
