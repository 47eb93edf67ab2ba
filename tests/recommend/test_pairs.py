"""The forward of one kernel with the backward of another, as `best` combines them: when an answer names them, and what it says."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longca
from journals import Write, writer
from longca.kernels import registry
from longca.recommend.answer import Pair
from longca.results.problem import Pass
from longca.results.ratio import REPEATS
from recommend.cells import answer
from report.made import FLOPS, Record, kernel, split

ROOT = Path(__file__).parents[2]
Times = Mapping[str, tuple[float | None, float | None]]  # by kernel, of forward and backward
ONE_LAYOUT = ("fa3", "fa4:bands", "fa4:native", "cudnn_flex:rows")  # kernels that take causal masks and have functional backwards
NOT_EQUAL = 1 + REPEATS


def passes(times: Times, **fields: Any) -> list[Record]:
    named = [(name, which, ms) for name, both in times.items() for which, ms in zip(("fwd", "bwd"), both, strict=True)]
    return [kernel(name, [ms] * 6, which, **fields) for name, which, ms in named if ms is not None]


def pair_of(folder: Path, **more: Any) -> Pair:
    pair = answer(folder, **more).pair
    assert pair is not None
    return pair


def test_a_pair_is_the_sum_of_its_records(write: Write) -> None:
    made = passes({"fa3": (1.0, 5.0), "fa4:bands": (2.0, 3.0), "band_cute": (None, 2.8)})
    made += [kernel("cudnn_flex:rows", [1.5] * 6, "fwd", peak_gib=9.0)]
    found = answer(write("made", made))
    pair = found.pair
    assert found.best is not None
    assert pair is not None
    assert (found.best.name, found.best.ms) == ("fa4:bands", pytest.approx(5.0))
    assert (pair.name, pair.kernel, pair.forward, pair.backward) == ("fa3 + band_cute", "best", "fa3", "band_cute")
    assert pair.ms == pytest.approx(3.8)
    assert pair.against_best == pytest.approx(5.0 / 3.8)
    assert pair.tflops == pytest.approx(2 * FLOPS / 3.8 / 1e9)
    assert pair.plan_ms == pytest.approx(4.0), "of two plans"
    assert pair.memory_gib == found.best.memory_gib
    assert [(source.record.label, source.record.problem.pass_) for source in pair.sources] == [("fa3", Pass.FWD), ("band_cute", Pass.BWD)]


@settings(max_examples=40, deadline=None)
@given(st.fixed_dictionaries({name: st.tuples(st.floats(1.0, 1.3), st.floats(2.0, 3.0)) for name in ONE_LAYOUT}))
def test_it_is_the_fastest_of_all_pairs_or_none(times: dict[str, tuple[float, float]]) -> None:
    with TemporaryDirectory() as home:
        found = answer(writer(Path(home))("made", passes(times)))
    single = min(sum(both) for both in times.values())
    total = min(ahead + back for (ahead, _), (_, back) in product(times.values(), times.values()))
    assert found.best is not None
    assert found.best.ms == pytest.approx(single)
    if found.pair is None:
        assert single / total < NOT_EQUAL + 1e-6
    else:
        assert single / total > NOT_EQUAL - 1e-6
        assert found.pair.ms == pytest.approx(total)
        assert times[found.pair.forward][0] + times[found.pair.backward][1] == pytest.approx(total)


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        ("fa4:bands", "flex"),  # whose backward is autograd's
        ("somebodys", "fa4:bands"),  # a plugin that is not here
        ("band_cute", "fa4:bands"),  # which refuses a forward alone
        ("vsa", "fa4:bands"),  # which takes blocks only
    ],
)
def test_kernels_that_best_cannot_combine(write: Write, forward: str, backward: str) -> None:
    found = answer(write("made", passes({forward: (1.0, 5.0), backward: (5.0, 1.0)})))
    assert found.best is not None
    assert found.pair is None


def test_two_memory_orders_are_not_added(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write("made", passes({"fa3": (1.0, 5.0), "fa4:bands": (5.0, 1.0), "fa4:native": (2.9, 2.9)}))
    assert pair_of(folder).name == "fa3 + fa4:bands"
    monkeypatch.setattr(registry.classes()["fa3"], "layout", "HLD")
    assert pair_of(folder).name == "fa4:native + fa4:bands", "the fastest of those that share one"


def test_questions_without_pairs(write: Write) -> None:
    times = {"fa3": (1.0, 5.0), "fa4:bands": (5.0, 1.0)}
    folder = write("made", [*passes(times), *passes(times, deterministic=True), split("usp", 1.0, ranks=8)])
    assert answer(folder).pair is not None
    asked: list[dict[str, Any]] = [{"pass_": "fwd"}, {"pass_": "bwd"}, {"deterministic": True}, {"gpus": 8}]
    for more in asked:
        found = answer(folder, **more)
        assert found.best is not None
        assert found.pair is None, more
        assert found.to_json()["pair"] is None


def test_the_plans_of_both_count(write: Write) -> None:
    made = passes({"fa3": (1.0, 5.0), "fa4:bands": (2.0, 3.0)}, plan_ms=10.0)
    folder = write("made", made)
    assert pair_of(folder, calls_per_plan=1000).ms == pytest.approx(4.0 + 20.0 / 1000)
    assert pair_of(folder, calls_per_plan=20).against_best == pytest.approx(5.5 / 5.0)
    assert answer(folder, calls_per_plan=10).pair is None, "6 ms as well"
    unknown = [record | ({"plan_ms": None} if record["kernel"] == "fa3" else {}) for record in made]
    assert answer(write("unknown", unknown), calls_per_plan=1000).pair is None


def test_the_layers_of_a_model_share_a_plan(write: Write) -> None:
    times: Times = {"fa3": (1.0, 2.0), "fa4:varlen": (1.1, 2.1)}
    made = [
        record | {"plan_ms": plan}
        for name, plan in (("fa3", 10.0), ("fa4:varlen", 1.0))
        for record in passes({name: times[name]}, mask="causal_document", heads_q=32)
    ]
    folder = write("made", made)

    def asked(**more: Any) -> Any:
        return longca.recommend("causal_document", "8K", results=folder, heads="32:8", **more)

    assert asked().best.name == "fa3"
    by_layers = asked(model="llama3-8b")
    assert by_layers.answer.question.calls_per_plan == 32
    assert by_layers.best is not None
    assert (by_layers.best.name, by_layers.best.ms) == ("fa4:varlen", pytest.approx(3.2 + 1 / 32))
    assert "one plan serves 32 layers of llama3-8b." in str(by_layers)
    assert asked(model="llama3-8b", calls_per_plan=1000).best.name == "fa3"
