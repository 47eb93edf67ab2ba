"""Masks as Python objects, in verify, run and assert_correct."""

from pathlib import Path
from typing import Any

import pytest

import longca
from longca import masks
from longca.bench.one_device.verify import make_step
from longca.bench.plan.suite import Suite
from longca.results.reading import read
from longca.testing import assert_correct

pytestmark = pytest.mark.usefixtures("in_process")

SMALL: dict[str, Any] = {"heads": "2:1", "head_dims": 16, "dtypes": "fp32", "device": "cpu", "progress": False}
BOTH = masks.causal(96) & masks.sliding_window(96, w=20)


def test_an_object_is_checked_at_its_own_length() -> None:
    found = longca.verify("torch:plain", masks=[BOTH, masks.causal(96)], trials=False, **SMALL)
    assert found.ok
    rows = [(row["mask"], row["seqlen"]) for row in found.rows]
    assert rows == [(BOTH.name or "mask 1", 96), ("causal", 96)]


def test_a_pattern_stands_for_its_name() -> None:
    found = assert_correct("torch:plain", [masks.causal, masks.share_question], 64, trials=False)
    assert [row["mask"] for row in found.rows] == ["causal", "share_question"]


def test_an_object_is_measured_and_its_record_names_it(tmp_path: Path) -> None:
    run = longca.run(kernels="torch:plain", masks=BOTH, passes="fwd", budget=0.02, out=tmp_path / "out", **SMALL)
    (record,) = run.records
    assert run.ok
    assert record.built.digest == BOTH.digest
    assert masks.read_mask(record.problem.mask).digest == BOTH.digest, "the name of the mask is a file that holds it"
    (entry,) = read(tmp_path / "out").masks.values()
    assert (entry.area, entry.seqlen_q) == (BOTH.area, 96)
    again = longca.run(kernels="torch:plain", masks=BOTH, passes="fwd", budget=0.02, out=tmp_path / "out", **SMALL)
    assert again.finished.measured == 0


def test_run_measures_the_short_masks_that_verify_shows(tmp_path: Path) -> None:
    found = longca.verify("torch:plain", masks="sliding_window_causal,causal_document", seqlens=96, trials=False, **SMALL)
    shown = {"sliding_window_causal": "sliding_window_causal w=12", "causal_document": "causal_document short"}
    assert {row["mask"]: row["shown"] for row in found.rows} == shown
    named = {"masks": list(shown), "seqlens": 96, "params": {"w": 12}, "packing": "short"}
    run = longca.run(kernels="torch:plain", **named, passes="fwd", budget=0.02, out=tmp_path / "out", **SMALL)
    checked = {step.mask: step for step in (make_step(name, 96, 0, Suite()) for name in shown)}
    for record in run.records:
        step = checked[record.problem.mask]
        assert record.built.digest == masks.build(step.mask, 96, **step.drawing, **step.params).digest
