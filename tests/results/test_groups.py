"""Groups, closeness to the fastest, coverage, and the rows that a ranking counts, against their definitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca.results import points
from longca.results.groups import STEPS, closeness, groups_of
from longca.results.naming import rows
from longca.results.points import SPEED, point
from longca.results.problem import Pass
from longca.results.record import Status
from longca.results.statuses import Coverage, coverage
from report.made import Record, around, kernel, results_of

shares = st.dictionaries(st.sampled_from("abcd"), st.floats(0.01, 1.0), max_size=4)


@given(st.lists(shares, min_size=1, max_size=12))
def test_a_curve_counts_the_contests_in_which_a_kernel_is_that_close(contests: list[dict[str, float]]) -> None:
    found = closeness(contests)
    assert set(found) == {name for contest in contests for name in contest}
    for name, own in found.items():
        assert own.mean == pytest.approx(sum(contest.get(name, 0.0) for contest in contests) / len(contests))
        for step, share in zip(STEPS, own.curve, strict=True):
            assert share == pytest.approx(sum(contest.get(name, 0.0) >= step for contest in contests) / len(contests))
        assert own.curve == sorted(own.curve, reverse=True)
    wins = [own.curve[-1] for own in found.values()]
    assert wins == sorted(wins, reverse=True), "the one that wins most often comes first"


@pytest.mark.parametrize(("clocks", "best"), [([1500] * 9, "slower"), (None, "new")])
def test_records_of_an_older_clock_are_compared_with_others_as_measured(clocks: list[int] | None, best: str) -> None:
    """1.75 ms at 1,410 MHz are 1.645 ms at 1,500 MHz, as measured: less than 1.7 ms."""
    new = kernel("new", [1.75] * 9, "fwd", clock_mhz=1500.0, at_mhz=1410.0, clocks=[1500] * 9)
    other = kernel("slower", [1.7] * 9, "fwd", clock_mhz=1500.0, clocks=clocks)
    groups = groups_of(results_of([new, other]))
    (group,) = groups.every
    assert group.ranking.best is not None
    assert group.ranking.best.line == best
    for standing in group.ranking.standings:
        drawn = points.point([row for row in groups.compared if row.line == standing.line], points.SPEED)
        assert drawn is not None
        assert drawn.value == standing.tflops, "figures show what is compared"


def test_forward_and_backward_together_are_a_contest_whose_times_add_up() -> None:
    """a wins the forward, b the backward and, by the sum, both."""
    times = {("a", "fwd"): 1.0, ("a", "bwd"): 9.0, ("b", "fwd"): 2.0, ("b", "bwd"): 3.0, ("only", "fwd"): 0.5}
    found = {
        group.contest.pass_: group
        for group in groups_of(results_of(kernel(name, around(ms), which) for (name, which), ms in times.items())).every
    }
    assert list(found) == [Pass.FWD, Pass.BWD, Pass.BOTH]
    best = {pass_: group.ranking.best for pass_, group in found.items()}
    assert {pass_: standing.line for pass_, standing in best.items() if standing} == {Pass.FWD: "only", Pass.BWD: "b", Pass.BOTH: "b"}
    both = found[Pass.BOTH].ranking
    assert [(standing.line, pytest.approx(standing.ms)) for standing in both.standings] == [("b", 5.0), ("a", 10.0)]
    assert [(out.line, out.status) for out in both.out] == [("only", "not measured")]


OK, SIMULATED = kernel("a", around(1.0), "fwd"), kernel("a", around(1.0), "fwd", simulated="h100-ib")
FAILED = {status: kernel("a", None, "fwd", status=status) for status in Status if status is not Status.OK}


@pytest.mark.parametrize(
    ("records", "state"),
    [
        *(([FAILED[one], FAILED[other]], Coverage.WRONG) for one, other in (("wrong", "oom"), ("skipped", "wrong"), ("invalid", "error"))),
        *(([FAILED[one], FAILED["unsupported"]], Coverage.FAILED) for one in ("error", "timeout", "oom")),
        ([FAILED["skipped"], FAILED["unsupported"]], Coverage.UNSUPPORTED),
        ([FAILED["skipped"]], Coverage.NOT_RUN),
        ([OK], Coverage.MEASURED),
        ([SIMULATED], Coverage.SIMULATED),
        ([OK, FAILED["oom"]], Coverage.PARTLY),
        ([SIMULATED, FAILED["oom"]], Coverage.PARTLY_SIMULATED),
        ([SIMULATED, OK, FAILED["oom"]], Coverage.PARTLY),
    ],
)
def test_coverage_is_the_worst_that_a_reader_must_know(records: list[Record], state: Coverage) -> None:
    assert coverage(results_of(records).records) is state


def forwards(speeds: dict[str, dict[int, float]], grad: bool = True) -> list[Record]:
    """A forward of each kernel and seed."""
    place = {"mask": "causal_document", "grad": grad}
    return [
        kernel(name, [100 / speed] * 5, "fwd", seed=seed, mask_digest=str(seed), tflops=speed, **place)
        for name, own in speeds.items()
        for seed, speed in own.items()
    ]


def test_of_two_kinds_of_forward_the_one_that_the_ranking_takes_counts() -> None:
    """The forward of inference stands beside that of training; a speed over all of them would be another."""
    training = {"fa3": {0: 300.0, 1: 320.0, 2: 340.0}, "flex": {0: 200.0, 1: 210.0, 2: 220.0}}
    inference = {"fa3": {0: 400.0, 1: 420.0, 2: 440.0}}
    groups = groups_of(results_of([*forwards(training), *forwards(inference, grad=False)]))
    ranking = groups.every[0].ranking
    for line in ("fa3", "flex"):
        (standing,) = (own for own in ranking.standings if own.line == line)
        point = points.point([row for row in groups.compared if row.line == line], points.SPEED)
        assert point is not None
        assert point.value == pytest.approx(standing.tflops)


@given(st.floats(0.1, 1000.0))
def test_equal_times_have_no_spread(ms: float) -> None:
    """Not even in the last digit."""
    found = point(rows(results_of([kernel("fa3", [ms] * 6)])), SPEED)
    assert found is not None
    assert found.low == found.value == found.high
