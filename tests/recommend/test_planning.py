"""The time of planning: where code was loaded, that of other heads on the same mask, by the same versions."""

from pathlib import Path
from typing import Any

import pytest

from journals import Write, mask_line
from longca import masks
from longca.cli import main
from longca.recommend.answer import recommend
from longca.recommend.question import Question
from longca.recommend.shipped import load
from report.made import Record, kernel

ROOT = Path(__file__).parents[2]
VERSIONS = {"code": "1", "torch": "2.11.0"}


def plan(name: str, plan_ms: float | None, heads_q: int = 32, ms: float = 1.0, **more: Any) -> Record:
    about = {"mask": "causal_document", "mask_digest": "d42", "versions": VERSIONS, "plan_ms": plan_ms, "heads_q": heads_q} | more
    return kernel(name, [ms] * 6, key=f"{name} {about}", **about)


def test_a_plan_that_loaded_code_is_that_of_other_heads(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan of fa3 took much longer with the heads that are asked for; that of fa4:bands a little, as plans differ."""
    made = [plan("fa3", 30.0), plan("fa3", 2.0, heads_q=64), plan("fa3", 3.0, heads_q=40), plan("fa4:bands", 4.0, ms=1.5)]
    folder = write("made", [*made, plan("fa4:bands", 1.4, heads_q=64), plan("fa4:bands", 1.3, heads_q=40, status="error")])
    found = recommend(Question.parse("causal_document", "8K", heads="32:8", calls_per_plan=1), load([folder]))
    figures = [(choice.name, choice.plan_ms, choice.ms, choice.plans_of) for choice in found.choices]
    assert figures == [("fa3", 2.0, pytest.approx(3.0), ("64:8 heads of 128",)), ("fa4:bands", 4.0, pytest.approx(5.5), ())]
    words = ["recommend", "--mask", "causal_document", "--seqlen", "8K", "--results", str(folder), "--heads"]
    remark = "plan ms is that of 64:8 heads of 128 for fa3: its own took over 3 times as long, and may have loaded code.\n"
    for heads, said in (("32:8", True), ("64:8", False), ("40:8", False)):
        assert main([*words, heads]) == 0
        assert (remark in capsys.readouterr().out) is said


@pytest.mark.parametrize(
    "other",
    [
        {"mask_digest": "d0", "seed": 7},  # other documents
        {"versions": VERSIONS | {"code": "2"}},
        {"versions": None},
        {"seqlen": 4096, "mask_digest": "d4"},
        {"seqlen": 16384, "mask_digest": "d16", "seed": 7},
        {"seqlen": 16384, "mask_digest": "d16", "params": {"w": 4}},
        {"dtype": "fp16"},
        {"pass": "fwd"},
        {"plan_ms": None},
        {"env": "other"},
    ],
)
def test_plans_of_another_problem_or_version_do_not_count(write: Write, other: dict[str, Any]) -> None:
    folder = write("made", [plan("fa3", 30.0), plan("fa3", heads_q=64, **{"plan_ms": 2.0} | other)])
    found = recommend(Question.parse("causal_document", "8K", heads="32:8"), load([folder]))
    assert [(choice.plan_ms, choice.plans_of) for choice in found.choices] == [(30.0, ())]


def test_a_plan_of_fewer_kv_heads_does_not_count(write: Write) -> None:
    """Some plans take longer with more KV heads."""
    folder = write("made", [plan("fa3", 30.0), plan("fa3", 2.0, heads_q=64, heads_kv=4), plan("fa3", 3.0, heads_q=64, heads_kv=16)])
    found = recommend(Question.parse("causal_document", "8K", heads="32:8"), load([folder]))
    assert [(choice.plan_ms, choice.plans_of) for choice in found.choices] == [(3.0, ("64:16 heads of 128",))]


@pytest.mark.parametrize(("heads_q", "said"), [(32, "16K tokens"), (64, "64:8 heads of 128 and 16K tokens")])
def test_a_plan_of_a_longer_sequence_is_a_bound(heads_q: int, said: str, write: Write) -> None:
    longer = plan("fa3", 4.0, heads_q=heads_q, seqlen=16384, mask_digest="d16")
    found = recommend(Question.parse("causal_document", "8K", heads="32:8"), load([write("made", [plan("fa3", 30.0), longer])]))
    assert [(choice.plan_ms, choice.plans_of) for choice in found.choices] == [(4.0, (said,))]


@pytest.mark.parametrize(("count", "plan_ms"), [(3, 30.0), (4, 4.0), (5, 4.0)])
def test_a_longer_sequence_of_fewer_documents_is_no_bound(count: int, plan_ms: float, write: Write) -> None:
    short, longer = (masks.causal_document(n, documents=[n // parts] * parts) for n, parts in ((8192, 4), (15360, count)))
    made = [plan("fa3", 30.0, mask_digest=short.digest), plan("fa3", 4.0, seqlen=15360, mask_digest=longer.digest)]
    folder = write("made", made)
    with (folder / "masks.jsonl").open("a") as file:
        file.writelines(mask_line(mask) for mask in (short, longer))
    found = recommend(Question.parse("causal_document", "8K", heads="32:8"), load([folder]))
    assert [choice.plan_ms for choice in found.choices] == [plan_ms]


def test_a_plan_that_was_not_timed_is_not_taken_from_elsewhere(write: Write) -> None:
    folder = write("made", [plan("fa3", None), plan("fa3", 2.0, heads_q=64)])
    found = recommend(Question.parse("causal_document", "8K", heads="32:8", calls_per_plan=1), load([folder]))
    assert found.best is None
    assert "its planning was not timed" in found.out[0].reason


def test_plans_of_the_shipped_results_do_not_load_code() -> None:
    """At 8K the plans of 32:8 heads loaded code, at 32K they did not: a plan of fewer documents is no longer."""
    shipped = load(ROOT / "results" / "h200")
    plans = []
    for seqlen in ("8K", "32K"):
        found = recommend(Question.parse("causal_document", seqlen, heads="32:8", calls_per_plan=1), shipped)
        plans.append({choice.name: choice.plan_ms or 0.0 for choice in found.choices})
    assert plans[0].keys() == plans[1].keys()
    assert all(plans[0][name] <= plans[1][name] for name in plans[0])
