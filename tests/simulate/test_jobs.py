"""Questions of a real job: heads that are shared, GPUs that have other data, and the layers of a model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import longca
from longca.errors import BadInput
from longca.results.problem import Split
from longca.simulate.contest import Contest, Entry

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


def test_the_least_time_of_what_was_not_simulated_wins_no_pack() -> None:
    def entry(method: str, *packs: tuple[float | None, float]) -> Entry:
        cell = SimpleNamespace(problem=SimpleNamespace(mask="causal"))
        results = [SimpleNamespace(cell=cell, prediction=ms and SimpleNamespace(ms=ms), least_ms=least) for ms, least in packs]
        return Entry(Split(method, "1x8"), tuple((result,) for result in results), {})  # type: ignore[misc]

    entries = [entry("magi", (3.0, 0.0), (5.0, 0.0)), entry("usp", (None, 2.9), (6.0, 0.0)), entry("ulysses", (9.0, 0.0), (4.0, 0.0))]
    assert Contest(None, entries).wins == {"magi": 1, "ulysses": 1}  # type: ignore[arg-type]


def test_packs_of_a_workload_count_once_each(tmp_path: Path) -> None:
    """Equal steps are one pack; the time of several is that of each alone."""
    packs = [f'{{"mask": "causal_document", "documents": [{first}, {4096 - first}]}}' for first in (96, 1000)]

    def asked(*steps: str) -> dict[str, Any]:
        (tmp_path / "steps.jsonl").write_text("\n".join(steps))
        return {"methods": "usp", "gpus": 4, "passes": "fwd", "workload": tmp_path / "steps.jsonl"}

    def total_ms(*steps: str) -> float:
        found = longca.simulate(**asked(*steps), progress=False)
        assert " 4K " in str(found), "the tokens of its packs"
        return found.contests[0].best.total_ms

    assert total_ms(*packs, packs[0]) == pytest.approx(total_ms(packs[0]) + total_ms(packs[1]))
    assert len(longca.plan(**asked(*packs, packs[0])).rows) == len(packs)
