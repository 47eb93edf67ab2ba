"""Somebody removes a journal while a run writes to it: the run ends with one sentence."""

from pathlib import Path

import pytest

from longca.bench.one_device.level import OneDevice
from longca.bench.plan.suite import Suite
from longca.bench.run.campaign import measure, plan_level
from longca.results.journal import CannotWrite

PLUGIN = Path(__file__).parents[1] / "plugins" / "deletes.py"


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("deleted", ["", "results.jsonl"])
def test_a_removed_journal_is_one_sentence(deleted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    monkeypatch.setenv("LONGCA_DELETE", str(out / deleted))
    suite = Suite(
        kernels=("deletes",),
        masks=("causal", "full", "sliding_window"),
        seqlens=("64",),
        heads=("2:1",),
        head_dims=("8",),
        dtypes=("fp32",),
    )
    level = OneDevice(suite, "cpu", [str(PLUGIN)])
    with pytest.raises(CannotWrite, match=r"was removed during the run, and what was measured with it; run again\.$") as raised:
        measure(level, plan_level(level), out)
    assert raised.value.exit_code == 2
