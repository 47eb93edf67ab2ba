"""Questions of a real job: heads that are shared, GPUs that have other data, and the layers of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import longca
from longca.errors import BadInput

SMALL: dict[str, Any] = {"seqlens": "4K", "masks": "causal_document", "passes": "fwd", "seed": 0}


def test_tensor_parallelism_is_fewer_heads_and_fewer_neighbours() -> None:
    """One of each group that shares heads: half the heads, and half as many GPUs of a node that share the sequence."""
    shared = longca.plan("usp", gpus=8, tp=2, heads="16:4", **SMALL).rows
    alone = longca.plan("usp", gpus=8, per_node=4, heads="8:2", **SMALL).rows
    assert shared == alone
    cluster = longca.simulate("usp", gpus=8, tp=2, heads="16:4", progress=False, **SMALL).cluster
    assert cluster.per_node == 4
    for wrong in ({"tp": 3, "heads": "12:3"}, {"tp": 8, "heads": "16:4"}, {"tp": 0}):
        with pytest.raises(BadInput, match="--tp"):
            longca.plan("usp", gpus=8, **wrong, **SMALL)  # type: ignore[arg-type]


def test_every_number_of_gpus_that_may_share_a_sequence() -> None:
    found = longca.simulate("ulysses", total_gpus=12, tp=2, heads="12:12", best=True, progress=False, **SMALL)
    assert [row["gpus"] for row in found.rows] == [1, 2, 3, 6]
    table = next(part for part in found.parts() if not isinstance(part, str) and part.title.startswith("12 GPUs"))
    assert [row[0] for row in table.rows] == [f"CP {cp} x DP {6 // cp} x TP 2" for cp in (1, 2, 3, 6)]
    for row, contest in zip(table.rows, found.contests, strict=True):
        groups = 6 // contest.problem.ranks
        assert float(row[5]) == pytest.approx(groups * 4096 / (contest.best.total_ms / 1e3), rel=0.01)
    for wrong in ({"gpus": 4}, {"seqlens": None}, {"tp": 8}):
        with pytest.raises(BadInput, match="--total-gpus"):
            longca.plan("ulysses", **SMALL | {"total_gpus": 12} | wrong)  # type: ignore[arg-type]


def test_the_time_of_a_model_is_the_sum_over_its_layers() -> None:
    """gpt-oss 20B: 12 layers with a window and 12 without. Each kind of layer is simulated, and both together decide."""
    request: dict[str, Any] = SMALL | {"gpus": 4, "model": "gpt-oss-20b", "progress": False, "methods": "usp,magi"}
    (contest,) = longca.simulate(**request).contests
    local = longca.simulate(**request | {"masks": "causal_document & sliding_window_causal"}).rows
    shape = {"heads": "64:8", "head_dims": 64, "sinks": True}
    whole = longca.simulate(**{name: value for name, value in request.items() if name != "model"} | shape).rows
    for entry in contest.entries:
        own = [row["ms"] for row in (*local, *whole) if (row["method"], row["grid"]) == (entry.split.method, entry.split.grid)]
        assert len(own) == 2
        assert entry.total_ms == pytest.approx(12 * sum(own))
    planned = longca.plan(**{name: value for name, value in request.items() if name != "progress"})
    table = next(part for part in planned.parts() if not isinstance(part, str) and "12 layers" in part.title)
    assert {row[3] for row in table.rows} == {"all 24 layers"}


def test_the_packs_of_a_workload_are_one_question(tmp_path: Path) -> None:
    """Packs of other lengths and masks count together; an equal one is simulated once."""
    file, lengths = tmp_path / "steps.jsonl", [[3000, 1096], [4096], [1000, 2000]]
    steps = [{"mask": "causal_document", "documents": own} for own in (*lengths, lengths[0])]
    file.write_text("\n".join(map(json.dumps, [*steps, {"mask": "sliding_window_causal", "seqlen": 2048, "params": {"w": 64}}])))
    methods = "usp,ring_p2p"
    found = longca.simulate(methods, gpus=4, workload=file, passes="fwd", best=True, progress=False)
    (contest,) = found.contests
    assert (contest.packs, sum(contest.wins.values())) == (4, 4)
    alone = [longca.simulate(methods, "causal_document", gpus=4, seqlens=sum(own), documents=own, passes="fwd") for own in lengths]
    first = {row["method"]: row["ms"] for row in alone[0].rows}
    for entry in contest.entries:
        assert not entry.is_simulated or entry.times[0] == pytest.approx(first[entry.split.method])
    assert "steps.jsonl, 4 packs on 4 GPUs, fwd: use " in str(found)
    assert len(longca.plan("usp", gpus=4, workload=file, passes="fwd").rows) == 4
    with pytest.raises(BadInput, match="a workload has masks"):
        longca.plan("usp", gpus=4, workload=file, seqlens="4K")
