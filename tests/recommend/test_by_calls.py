"""The best by the number of calls that share a plan."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca.recommend.answer import recommend
from longca.recommend.by_calls import MOST, Leader, Step, steps_of
from longca.recommend.question import Question
from longca.recommend.shipped import load

H200 = Path(__file__).parents[2] / "results" / "h200"
Kernels = dict[str, tuple[float, float]]  # by name, the time of a call and of a plan


def leader(kernels: Kernels, calls: int) -> Leader:
    times = {name: ms + plan / calls for name, (ms, plan) in kernels.items()}
    best = min(times, key=lambda name: times[name])
    return Leader(best, times[best], frozenset(name for name in times if times[name] <= 1.03 * times[best]))


def at(steps: tuple[Step, ...], calls: int) -> str:
    return [step.name for step in steps if step.calls <= calls][-1]


@given(st.dictionaries(st.sampled_from("abcde"), st.tuples(st.floats(0.1, 10.0), st.floats(0.0, 200.0)), min_size=1))
def test_at_every_number_of_calls_a_best_one_is_named(kernels: Kernels) -> None:
    steps = steps_of(lambda calls: leader(kernels, calls))
    assert steps[0].calls == 1
    assert [step.calls for step in steps] == sorted({step.calls for step in steps})
    for calls in (*range(1, 300), 1000, MOST):
        assert at(steps, calls) in leader(kernels, calls).equals


def test_a_third_kernel_between_two_has_its_step() -> None:
    kernels = {"a": (10.0, 0.0), "b": (6.0, 20.0), "c": (5.0, 120.0)}
    steps = [(step.calls, step.name) for step in steps_of(lambda calls: leader(kernels, calls))]
    assert [name for _, name in steps] == ["a", "b", "c"]
    assert [calls for calls, _ in steps] == [1, 6, 122], "where the one before is more than 3 % slower"


def test_nothing_is_named_where_nothing_can_be_used() -> None:
    assert steps_of(lambda calls: None) == ()


@pytest.mark.parametrize(
    ("mask", "seqlen", "pass_"),
    [("causal_document", "4K", "fwd"), ("full_document", "2K", "fwd+bwd"), ("causal_document", "32K", "fwd+bwd")],
)
def test_it_is_what_the_question_with_so_many_calls_is_answered(mask: str, seqlen: str, pass_: str) -> None:
    results = load([H200])
    steps = recommend(Question.parse(mask, seqlen, pass_=pass_), results).by_calls
    assert len(steps) > 1
    for step in steps:
        asked = recommend(Question.parse(mask, seqlen, pass_=pass_, calls_per_plan=step.calls), results)
        assert (asked.ways[0].name, asked.ways[0].ms) == (step.name, pytest.approx(step.ms))
    for step, following in pairwise(steps):
        asked = recommend(Question.parse(mask, seqlen, pass_=pass_, calls_per_plan=following.calls - 1), results)
        assert step.name in {asked.ways[0].name, *(choice.name for choice in asked.choices if choice.as_good)}
