"""Files of a run that are damaged before it resumes, or removed while it writes: it says what every reader says, or one sentence."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from longca.bench.one_device.level import OneDevice
from longca.bench.plan.suite import Suite
from longca.bench.run.campaign import Finished, measure, plan_level
from longca.results.journal import CannotWrite
from longca.results.reading import read
from longca.results.settings import ClockSettings

pytestmark = pytest.mark.usefixtures("in_process")
SUITE = Suite(
    kernels=("torch:plain",),
    masks=("causal", "full"),
    seqlens=("64",),
    heads=("2:1",),
    head_dims=("8",),
    dtypes=("fp32",),
    clock=ClockSettings(warmup_s=0, budget_s=0.01),
)


def run(out: Path, retry: bool = False) -> Finished:
    level = OneDevice(SUITE, "cpu", [])
    return measure(level, plan_level(level), out, retry=retry)


def test_a_doubtful_record_is_not_believed_and_measured_again_on_request(tmp_path: Path) -> None:
    run(tmp_path)
    results = tmp_path / "results.jsonl"
    first, *others = results.read_text().splitlines()
    results.write_text("".join(f"{line}\n" for line in (json.dumps(json.loads(first) | {"check": None}), *others)))
    resumed = run(tmp_path)
    assert resumed.measured == 0
    assert Counter(record.status for record in resumed.results.records) == {"ok": 3, "doubtful": 1}
    assert {record.key: record.status for record in resumed.results.records} == {
        record.key: record.status for record in read(tmp_path).records
    }
    again = run(tmp_path, retry=True)
    assert again.measured == 1
    assert {record.status for record in again.results.records} == {"ok"}


def test_a_mask_whose_line_was_torn_is_written_again(tmp_path: Path) -> None:
    run(tmp_path)
    masks = tmp_path / "masks.jsonl"
    whole = masks.read_text()
    masks.write_text(whole[:-20])
    assert run(tmp_path).measured == 0
    assert masks.read_text() == whole


PLUGIN = Path(__file__).parents[1] / "plugins" / "cheap.py"


@pytest.mark.parametrize("deleted", ["", "results.jsonl"])
def test_a_removed_journal_is_one_sentence(deleted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    monkeypatch.setenv("LONGCA_DELETE", str(out / deleted))
    suite = SUITE.changed(kernels=("cheap",), masks=("causal", "full", "sliding_window"))
    level = OneDevice(suite, "cpu", [str(PLUGIN)])
    with pytest.raises(CannotWrite, match=r"was removed during the run, and what was measured with it; run again\.$") as raised:
        measure(level, plan_level(level), out)
    assert raised.value.exit_code == 2
