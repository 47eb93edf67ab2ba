"""Recommendations for other programs: `longca.best`, the table, and the journals that they look in."""

import json
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import longca
from journals import Write
from longca.cli import main
from longca.errors import BadInput
from longca.recommend import shipped
from longca.recommend.rank import NO_RECORD, NoRecord, table
from longca.recommend.shipped import load
from longca.results.merge import pack
from longca.results.problem import Pass
from report.made import Record, around, blocks, kernel, split

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("given", "kernels"),
    [
        ([], ["causal", "eight", "fp16", "random", "nsa", "det", "own", "other", "magi"]),
        (["--heads", "8:8"], ["eight"]),
        (["--dtype", "fp16"], ["fp16"]),
        (["--pass", "bwd"], []),
        (["--mask", "uniform_block"], ["random", "nsa"]),
        (["--source", "nsa"], ["nsa"]),
        (["--set", "b=64"], ["random", "nsa"]),
        (["--set", "heads=8"], ["random", "nsa"]),
        (["--deterministic"], ["det"]),
        (["--own-documents"], ["own"]),
        (["--seqlen", "4K"], ["other"]),
        (["--device", "H20"], []),
        (["--gpus", "64"], ["magi"]),
        (["--gpus", "1", "--mask", "causal", "--dtype", "bf16", "--heads", "64:8", "--seqlen", "8K"], ["causal"]),
    ],
)
def test_the_table_holds_what_was_asked_for(write: Write, tmp_path: Path, given: list[str], kernels: list[str]) -> None:
    made = [kernel("causal", around(1.0)), kernel("eight", around(1.0), heads_q=8), kernel("fp16", around(1.0), dtype="fp16")]
    made += [blocks("random", around(1.0)), blocks("nsa", around(1.0), source="nsa"), kernel("det", around(1.0), deterministic=True)]
    made += [kernel("own", around(1.0), mask="full_document", given={"documents": True}), kernel("other", around(1.0), seqlen=4096)]
    made.append(split("magi", 1.0) | {"asked": "magi", "kernel": "magi", "variant": None})
    target = tmp_path / "table.json"
    done = main(["recommend", "--export", str(target), *given, "--results", str(write("made", made))])
    bests = [entry["best"] for entry in json.loads(target.read_text()) if entry["best"]]
    assert sorted(best["kernel"] for best in bests) == sorted(kernels)
    assert all(record["file"].endswith("made/results.jsonl") for best in bests for record in best["records"])
    assert done == (0 if json.loads(target.read_text()) else NO_RECORD)


def test_what_is_exported_can_be_read_without_longca(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters that go without saying are said, and no path tells where LongCA is installed."""
    made = [
        blocks("flex", around(1.0)),
        blocks("vsa", around(2.0)),
        kernel("fa4", around(1.0), mask="prefix_lm_causal", params={"p": 77}, given={}),
    ]
    folder = write("results", made)
    answers = [answer for answer in table(load([folder])) if answer.question.problem.pass_ is Pass.BOTH]
    params = [entry["question"]["params"] for entry in [answer.to_json() for answer in answers]]
    assert params == [{"b": 64, "ratio": 0.5, "heads": 8}, {"p": "drawn"}]
    assert _files([answer.to_json() for answer in answers]) == [str(folder / "results.jsonl")] * 3, "as given"
    monkeypatch.setattr(shipped, "SHIPPED", (folder,))
    assert _files([answer.to_json() for answer in answers]) == ["results/results.jsonl"] * 3
    json.dumps([answer.to_json() for answer in answers], allow_nan=False)


def _files(entries: list[dict[str, Any]]) -> list[str]:
    choices = [choice for entry in entries for choice in (entry["best"], *entry["runners_up"])]
    return [record["file"] for choice in choices for record in choice["records"]]


WRONG = ("--pass sideways", "--mask casual", "--mask causal --set w=3", "--code", "--packing nope", "--mask causal --source nsa")


@pytest.mark.parametrize("given", WRONG)
def test_a_table_of_what_does_not_exist_is_refused(write: Write, tmp_path: Path, given: str) -> None:
    folder = write("made", [kernel("fa4", around(1.0))])
    assert main(["recommend", "--export", str(tmp_path / "table.json"), *given.split(), "--results", str(folder)]) == 2
    assert not (tmp_path / "table.json").exists()


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        ({"mask": "uniform_block", "source": "nsa"}, {"source": "nsa"}),
        ({"mask": "uniform_block", "deterministic": True}, {"deterministic": True}),
        ({"mask": "causal_document", "distribution": "pile"}, {"given": {"distribution": "pile"}}),
        ({"mask": "causal_document", "distribution": "mine.csv"}, {"given": {"distribution": "mine.csv"}}),  # a file of another machine
        ({"mask": "causal_document", "packing": "mixed"}, {"given": {"packing": "mixed"}}),
        ({"mask": "causal_document", "own_documents": True}, {"given": {"documents": True}}),
    ],
)
def test_best_asks_for_all_that_the_command_does(write: Write, asked: dict[str, Any], fields: Record) -> None:
    mask = asked["mask"]
    made = blocks if mask == "uniform_block" else partial(kernel, mask=mask)
    folder = write("made", [made("usual", around(1.0)), made("asked", around(2.0), **fields)])
    assert longca.best(mask, "8K", results=[folder]).kernel == "usual"
    assert longca.best(seqlen="8K", results=[folder], **asked).kernel == "asked"


def test_best_says_what_is_missing(write: Write) -> None:
    folder = write("made", [kernel("fa4", None, status="oom", reason="out of memory")])
    with pytest.raises(NoRecord, match=r"fa4  oom  out of memory$"):
        longca.best("causal", 8192, results=[folder])
    for one in (folder, str(folder)):  # a single folder needs no list
        with pytest.raises(NoRecord, match="to measure it: longca run"):
            longca.best("causal", "4K", results=one)
    with pytest.raises(TypeError, match="'gpu'"):
        longca.recommend("causal", 8192, results=[folder], gpu=8)  # type: ignore[call-arg]


def test_shipped_journals_are_found_wherever_longca_runs_from(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = write("results/h200/paper-kernel".replace("/", "-"), [kernel("fa4", around(1.0))])
    (tmp_path / "checkout" / "results").mkdir(parents=True)
    home = tmp_path / "checkout" / "results" / "h200"
    journal.rename(home)
    pack(home)
    monkeypatch.setattr(shipped, "SHIPPED", (tmp_path / "nowhere", tmp_path / "checkout" / "results"))
    assert shipped.shipped() == []
    (tmp_path / "checkout" / "pyproject.toml").write_text("")
    assert shipped.shipped() == [home]
    best = longca.best("causal", "8K")
    assert best.kernel == "fa4"
    assert best.sources[0].file == home / "results.jsonl.xz"


def test_a_wheel_holds_the_shipped_results(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building a wheel needs hatchling; pip install hatchling")
    code = f"import hatchling.build; print(hatchling.build.build_wheel({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    names = zipfile.ZipFile(tmp_path / done.stdout.split()[-1]).namelist()
    files = [path.relative_to(ROOT / "results") for path in (ROOT / "results").rglob("*") if path.is_file()]
    assert files
    assert {f"longca/shipped/{path}" for path in files} <= set(names)


@pytest.mark.parametrize("heads", ["64:8", (64, 8), [64, 8]])
def test_heads_as_text_or_as_numbers(write: Write, heads: Any) -> None:
    folder = write("made", [kernel("fa4:bands", around(1.0)), kernel("flex", around(1.0), heads_kv=64)])
    assert longca.best("causal", "8K", heads, results=folder).kernel == "fa4:bands"
    assert longca.best("causal", "8K", 64, results=folder).kernel == "flex"


@pytest.mark.parametrize("heads", [True, 6.4, (64,), (64, 8, 1), (64, "8"), (64, 7), -64, {64: 8}])
def test_heads_that_are_none_are_refused_in_a_sentence(write: Write, heads: Any) -> None:
    with pytest.raises(BadInput, match=r"^(heads must be|'?[-64:7]+).*\.$"):
        longca.best("causal", "8K", heads, results=write("made", [kernel("fa4", around(1.0))]))
