"""The table that `best` chooses by follows from the shipped journals, and its first kernel is the fastest that they have."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from journals import mask_line, writer
from longca import masks
from longca.kernels.base import Case
from longca.kernels.choice import chooser, records
from longca.kernels.choice.classes import shape_class
from longca.recommend import shipped
from longca.results.choices import table
from longca.results.problem import Pass
from report.made import kernel

DEVICE = "NVIDIA H200"
SHAPE = (64, 8, 128, 128, "bf16", "cuda")


def test_the_table_follows_from_the_shipped_journals() -> None:
    assert table(shipped.load()) == records.shipped(), "run tools/choices.py"


def test_kernels_of_two_clocks_are_compared_as_measured(tmp_path: Path) -> None:
    """An older LongCA measured one at 1,500 MHz; times of the other, measured there too, are given for 1,410 MHz."""
    about = {"mask_digest": masks.causal(8192).digest, "area": masks.causal(8192).area, "clock_mhz": 1500.0}
    new = kernel("fa3", [2.0 * 1500 / 1410] * 9, "fwd", at_mhz=1410.0, clocks=[1500] * 9, **about)
    (entry,) = table(shipped.load([writer(tmp_path)("made", [kernel("fa4:bands", [2.0] * 9, "fwd", **about), new])]))
    assert {label: ratio.slower for label, ratio in entry.kernels.items()} == {"fa3": 1.0, "fa4:bands": 1.0}


def test_a_kernel_is_not_the_fastest_where_no_other_was_measured(tmp_path: Path) -> None:
    """One is half as fast as the other on the mask that both have; alone on another mask of the class it says nothing."""
    places = [{"mask_digest": own.digest, "area": own.area, "seqlen": own.seqlen_q} for own in map(masks.causal, (8192, 8190))]
    records = [kernel("fa3", [2.0] * 9, "fwd", **places[0])]
    records += [kernel("fa4:bands", [4.0] * 9, "fwd", **place) for place in places]
    folder = writer(tmp_path)("made", records)
    with (folder / "masks.jsonl").open("a") as file:
        file.write(mask_line(masks.causal(8190)))
    (entry,) = table(shipped.load([folder]))
    assert (entry.points, {label: ratio.slower for label, ratio in entry.kernels.items()}) == (1, {"fa3": 1.0, "fa4:bands": 2.0})


@pytest.mark.slow
def test_the_first_by_records_is_the_fastest_recorded() -> None:
    """In each cell, of the kernels that have a time in it. Masks of one class have one order, so few cells may have another fastest
    kernel; autotuning finds it."""
    results = shipped.load()
    mask_of = cache(lambda place: results.masks[place].rebuilt())  # blocks take long to draw
    cells = defaultdict[tuple[object, ...], dict[str, float]](dict)
    cases = dict[tuple[object, ...], tuple[masks.AnyMask, Case]]()
    for record in results.records:
        problem, place = record.problem, (record.built.digest, record.problem.mask)
        special = problem.deterministic or record.split or record.chose or record.simulated or place not in results.masks
        if not record.ok or special or problem.pass_ is Pass.BOTH or results.environment(record).name != DEVICE:
            continue
        shape = problem.heads_q, problem.heads_kv, problem.head_dim, problem.head_dim_v, problem.dtype
        key = record.built.digest, shape, problem.softcap, bool(problem.sinks), problem.pass_
        cells[key][record.label] = record.times.median
        if key not in cases and (mask := mask_of(place)) is not None:
            extras = {"softcap": float(problem.softcap or 0), "sinks": bool(problem.sinks)}
            cases[key] = mask, Case(mask.seqlen_q, mask.seqlen_k, *shape, "cuda", **extras)  # type: ignore[arg-type]
    compared = [key for key in cells if len(cells[key]) > 1 and key in cases]
    assert len(compared) > 700
    others = 0
    for key in compared:
        times, known = cells[key], records.evidence(DEVICE, shape_class(*cases[key]), key[-1].value)  # type: ignore[attr-defined]
        slower = {label: known.slower(label) or float("inf") for label in times}
        first, fastest = min(slower, key=slower.__getitem__), min(times, key=times.__getitem__)
        if times[first] > 1.02 * times[fastest]:
            others += 1
            assert slower[fastest] <= chooser.FAR * slower[first], (key, first, fastest)
    assert others <= 0.01 * len(compared)


def entry(mask: str, seqlen: int, kernels: dict[str, float], versions: str = "now", **changes: object) -> records.ClassRecords:
    standings = {label: records.KernelRatio(slower, [versions]) for label, slower in kernels.items()}
    values = {"heads": "64:8", "head_dim": "128", "dtype": "bf16", "pass_": "fwd", "softcap": False, "sinks": False} | changes
    return records.ClassRecords(DEVICE, mask, seqlen, kernels=standings, **values)  # type: ignore[arg-type]


def test_the_nearest_records_count(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        entry("causal documents, 1/64", 32768, {"fa3": 1.0, "fa4:varlen": 1.1, "flex": 1.3}),
        entry("causal documents, 1/128", 65536, {"fa3": 1.1, "fa4:varlen": 1.0}),
        entry("full documents, 1/128", 131072, {"fa3": 1.0, "fa4:varlen": 1.5}),
        entry("causal documents, 1/256", 131072, {"fa3": 1.0, "fa4:varlen": 1.5}, dtype="fp16"),
    ]
    monkeypatch.setattr(records, "shipped", lambda: made)
    wanted = shape_class(masks.causal(8), Case(1 << 17, 1 << 17, *SHAPE))._replace(mask="causal documents, 1/256")
    known = records.evidence(DEVICE, wanted, "fwd")
    assert known == records.Evidence([made[1], made[0]])
    assert [known.slower(label) for label in ("fa3", "fa4:varlen", "flex", "cudnn")] == [1.1, 1.0, 1.3, None]
    assert not records.evidence("another device", wanted, "fwd").entries
    assert not records.evidence(DEVICE, wanted._replace(softcap=True), "fwd").entries
    assert not records.evidence(DEVICE, wanted._replace(seqlen_q=1), "fwd").entries
