"""One meaning of seed in every verb: --seed is that one, --seeds of `run` how many or which; what no record can have is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longca.bench.plan.request import seeds_of
from longca.cli import main
from longca.errors import BadInput


@pytest.mark.parametrize(
    ("seed", "seeds", "meant"),
    [(42, None, (42,)), (0, None, (0,)), (None, 3, 3), (None, "3", 3), (None, "42,43", (42, 43)), (None, [42], (42,)), (None, None, None)],
)
def test_a_number_of_seeds_is_how_many_and_a_list_is_which(seed: int | None, seeds: Any, meant: Any) -> None:
    assert seeds_of(seed, seeds) == meant


@pytest.mark.parametrize("seeds", ["-1", "3,-1", "0", "10001", "9" * 30, "x", [-1], [], 0])
def test_what_is_neither_is_refused(seeds: Any) -> None:
    with pytest.raises(BadInput, match="seeds"):
        seeds_of(None, seeds)


@pytest.mark.usefixtures("in_process")
def test_progress_names_the_seeds_where_there_are_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of two seeds would look the same; a mask without documents is measured once."""
    command = ["run", "--masks", "causal,causal_document", "--kernels", "torch", "--seqlens", "1K", "--heads", "2:1", "--head-dim", "8"]
    command += ["--device", "cpu", "--passes", "fwd", "--clock", "budget_s=0.01"]
    assert main([*command, "--seeds", "2", "--out", str(tmp_path / "two")]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    masks = [line.partition("] ")[2].partition(" 1K fwd")[0].partition(" ")[2] for line in lines]
    assert sorted(masks) == ["causal", "causal_document seed=0", "causal_document seed=1"]
