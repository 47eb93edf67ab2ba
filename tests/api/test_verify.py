"""`longca.verify` and `longca.testing.assert_correct`: findings as objects, in a worker or in this process."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import longca
from longca.bench.check.trial_names import trials_on
from longca.testing import assert_correct
from textbook import attend, right

SMALL: dict[str, Any] = {"seqlens": 96, "heads": "2:1", "head_dims": 16, "device": "cpu"}
EXAMPLES = Path(__file__).parents[2] / "examples"


@longca.kernel
def blind(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    """causal, whatever the mask"""
    return attend(q, k, v, torch.ones(len(q), len(k), dtype=torch.bool).tril(), scale)


def refuse_all_but_causal(mask: Any, case: Any) -> Any:
    if mask.name != "causal":
        raise longca.Refused("takes the causal mask")
    return torch.from_numpy(mask.dense())


causal_alone = longca.kernel(name="causal_alone", lower=refuse_all_but_causal)(attend)


def test_findings_are_rows_and_tables() -> None:
    found = longca.verify(blind, masks=["causal", "full"], **SMALL)
    assert not found.ok
    rows = {row["trial"] or row["mask"]: row for row in found.rows}
    assert (rows["causal"]["status"], rows["full"]["status"]) == ("ok", "wrong")
    assert rows["causal"]["dq_error"] <= rows["causal"]["dq_allowed"]
    assert {"another scale", "rows without keys", "strided inputs"} < set(rows)
    assert "wrong: blind on full: out is off by " in repr(found)
    assert repr(found).splitlines()[0] == "error of the worst token, as a share of its tolerance:"
    assert "<td>full</td>" in found._repr_html_()


@pytest.mark.parametrize("trial", [False, True])
def test_a_wrong_kernel_that_ends_the_process_in_a_later_call_stays_wrong(trial: bool) -> None:
    """On the mask, or only in a trial."""
    calls = 0

    @longca.kernel
    def leaves(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
        nonlocal calls
        usual = abs(scale - q.shape[2] ** -0.5) < 1e-9
        calls += usual != trial
        if calls > 1:
            sys.exit(3)
        return attend(q, k, v, torch.from_numpy(mask.dense()), q.shape[2] ** -0.5) + (not trial)

    found = {row["trial"] or row["mask"]: row for row in longca.verify(leaves, masks="causal", **SMALL).rows}
    row = found["another scale" if trial else "causal"]
    assert row["status"] == "wrong"
    assert row["reason"].startswith("out is off by ")
    assert row["reason"].endswith("; in a later call it ends the process: sys.exit(3)")
    assert row["out_error"] > row["out_allowed"]


def test_documents_are_given_or_drawn_as_in_a_run() -> None:
    seen = []

    @longca.kernel(name="noting", lower=lambda mask, case: seen.append(mask.documents) or torch.from_numpy(mask.dense()))
    def noting(q: Any, k: Any, v: Any, visible: Any, scale: float) -> Any:
        return attend(q, k, v, visible, scale)

    for given in ({"documents": [50, 46]}, {"distribution": "pile", "packing": "mixed"}, {"packing": "chunked"}):
        right_ones = longca.masks.build("causal_document", 96, seed=3, **given).documents
        seen.clear()
        assert longca.verify(noting, masks="causal_document", seed=3, trials=False, **given, **SMALL).ok
        assert right_ones in seen


@pytest.mark.slow
def test_an_object_and_its_file_get_the_same_answers() -> None:
    """One in this process, one in a worker: errors and messages are equal, number for number."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from my_kernel import my_kernel
    finally:
        sys.path.remove(str(EXAMPLES))
    here = longca.verify(my_kernel, masks="causal,share_question", trials=False, **SMALL)
    there = longca.verify(EXAMPLES / "my_kernel.py", masks="causal,share_question", trials=False, **SMALL)
    assert here.rows == there.rows
    assert here.ok


def test_several_shapes_and_dtypes() -> None:
    found = longca.verify(right, "causal", [33, 64], ["fp32", "fp64"], [(2, 1), "4:4"], head_dims=[8], device="cpu")
    shapes = [(row["seqlen"], row["heads"], row["head_dim"], row["dtype"]) for row in found.rows if row["mask"] == "causal"]
    assert len(shapes) == len(set(shapes)) == 8
    trials = Counter(row["trial"] for row in found.rows if row["trial"])
    assert "another scale" in trials
    assert set(trials.values()) == {4}, "trials are made in every shape and dtype"
    assert found.ok
    assert "heads  dtype  status" in repr(found)


def test_pandas_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found = longca.verify(right, "causal", **SMALL)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(longca.Unavailable, match="to_pandas\\(\\) needs pandas; pip install pandas"):
        found.to_pandas()
    pandas = ModuleType("pandas")
    pandas.DataFrame = list  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert found.to_pandas() == found.rows


def test_assert_correct_says_what_verify_says() -> None:
    assert_correct(right, ["causal", "share_question"], 96)
    with pytest.raises(AssertionError) as told:
        assert_correct(blind, ["causal", "full"], 96, heads="2:1", head_dim=16, device="cpu", dtype="fp32")
    reason = next(row["reason"] for row in longca.verify(blind, masks="full", dtypes="fp32", **SMALL).rows if row["mask"] == "full")
    assert str(told.value).splitlines()[0] == f"wrong: blind on full: {reason}"
    assert "blind on trial: rows without keys" in str(told.value)


@pytest.mark.parametrize("data", ["plain", "loud"])
def test_a_case_is_what_kernels_are_checked_on(data: str) -> None:
    example = longca.case("share_question", 700, heads="2:2", head_dim=16, dtype="fp32", device="cpu", scale=0.3, data=data)
    q, k, v = (x.double().requires_grad_() for x in (example.q, example.k, example.v))
    out = attend(q, k, v, torch.from_numpy(example.mask.dense()), 0.3)
    out.backward(example.dout.double())
    got = {"out": out[example.rows], "dq": q.grad[example.rows], "dk": k.grad, "dv": v.grad}
    assert example.expected.keys() == {*got, "lse"}
    for name, x in got.items():
        assert ((x - example.expected[name]).square().mean(-1).sqrt() < example.allowed[name]).all()


HALF = """
import longca

@longca.kernel
def half(q, k, v, mask, scale):
    return longca.attention(q, k, v, mask, kernel="torch:plain", scale=scale) / 2
"""


@pytest.mark.slow
def test_a_failure_is_dumped_with_a_script_that_shows_it_again(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(HALF)
    found = longca.verify(tmp_path / "half.py", quick=True, fail_fast=True, dump=tmp_path / "dump", progress=False, **SMALL)
    assert [finding.mask for finding in found.findings] == ["causal"]
    (folder,) = found.dumped
    printed = subprocess.run([sys.executable, "reproduce.py"], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert [line.partition(":")[0] for line in printed.splitlines()] == [
        f"{data} data, {tensor}" for data in ("plain", "loud") for tensor in ("out", "dq", "dk", "dv")
    ]


def test_trials_run_once_per_kernel_and_shape() -> None:
    @longca.kernel
    def once(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
        return attend(q, k, v, torch.from_numpy(mask.dense()), scale)

    def trials(**shape: Any) -> int:
        return sum(finding.trial is not None for finding in assert_correct(once, "causal", 64, **shape).findings)

    assert [trials(), trials(), trials(head_dim=16), trials(head_dim=16)] == [len(trials_on("cpu")), 0, len(trials_on("cpu")), 0]


def test_assert_correct_demands_what_is_named() -> None:
    assert_correct(causal_alone, seqlen=64)  # of all masks those that it takes
    with pytest.raises(AssertionError, match=r"unsupported: causal_alone on full: .*takes the causal mask"):
        assert_correct(causal_alone, ["causal", "full"], 64)
    with pytest.raises(longca.BadInput, match="unknown mask"):
        assert_correct(right, "moon")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu")])
def test_modes_of_the_caller_do_not_matter(mode: Any) -> None:
    with mode():
        assert_correct(right, "causal", 64, trials=False)


def test_kernels_are_forgotten_after_the_call() -> None:
    assert_correct(right, "causal", 64, trials=False)
    with pytest.raises(longca.BadInput, match="unknown kernel 'right'"):
        longca.verify("right", "causal")


def test_an_object_keeps_what_it_holds() -> None:
    class Scaled(right):  # type: ignore[misc, valid-type]
        name = "scaled"

        def __init__(self, variant: str = "", factor: float = 0.0) -> None:
            super().__init__(variant)
            self.factor = factor

        def prepare(self, mask: Any, case: Any) -> Any:
            prepared = super().prepare(mask, case)
            prepared.scale *= self.factor
            return prepared

    assert_correct(Scaled(factor=1.0), "causal", 64, trials=False)
    with pytest.raises(AssertionError, match="wrong: scaled on causal"):
        assert_correct(Scaled(factor=1.1), "causal", 64, trials=False)


def test_the_package_stays_light_and_functions_win_over_rooms_of_the_same_name() -> None:
    code = """
import longca, sys
dir(longca)
assert not {'torch', 'numpy', 'msgspec', 'rich'} & set(sys.modules)
import longca.compare.journals, longca.report.page
assert callable(longca.compare) and callable(longca.report)
assert longca.parallel.Group and longca.masks.causal
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_interrupt_is_raised() -> None:
    @longca.kernel
    def interrupted(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        longca.verify(interrupted, "causal", **SMALL)
    assert longca.verify(right, "causal", **SMALL).ok
