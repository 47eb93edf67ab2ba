"""Fair shares of links, against rates worked out by hand and the definition of max-min fairness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca.simulate.flows import LINKS, SMALL, Flow, Flows, connected, fair_rates, fair_rates_of_many

PATHS = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True), min_size=1, max_size=12)
LIMITS = st.sampled_from([float("inf"), 0.5, 3.0])


def rates(paths: list[list[int]], capacities: list[float], limits: list[float] | None = None) -> list[float]:
    flows = [Flow(None, 1.0, path, limit) for path, limit in zip(paths, limits or [float("inf")] * len(paths), strict=True)]
    fair_rates(flows, capacities)
    return [flow.rate for flow in flows]


def test_a_long_flow_gets_what_its_fullest_link_leaves() -> None:
    assert rates([[0, 1], [0], [1], [1]], [10.0, 9.0]) == [3.0, 7.0, 3.0, 3.0]
    assert rates([[0], [0]], [10.0], [2.0, float("inf")]) == [2.0, 8.0]


@given(PATHS, st.data())
def test_nobody_can_get_more(paths: list[list[int]], data: st.DataObject) -> None:
    """Every flow has its limit, or crosses a full link on which no other flow has more."""
    capacities = data.draw(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=6, max_size=6))
    limits = data.draw(st.lists(LIMITS, min_size=len(paths), max_size=len(paths)))
    found = rates(paths, capacities, limits)
    used = [sum(rate for rate, path in zip(found, paths, strict=True) if link in path) for link in range(6)]
    assert all(use <= capacity * (1 + 1e-9) for use, capacity in zip(used, capacities, strict=True))
    for rate, path, limit in zip(found, paths, limits, strict=True):
        full = [link for link in path if used[link] >= capacities[link] * (1 - 1e-9)]
        fullest = [max(other for other, way in zip(found, paths, strict=True) if link in way) for link in full]
        assert rate >= limit * (1 - 1e-9) or any(rate >= most * (1 - 1e-9) for most in fullest)


@given(PATHS, st.data())
def test_arrays_give_the_same_rates(paths: list[list[int]], data: st.DataObject) -> None:
    capacities = data.draw(st.lists(st.sampled_from([10.0, 20.0, 50.0]), min_size=6, max_size=6))
    padded = np.array([path + [6] * (LINKS - len(path)) for path in paths])
    many = fair_rates_of_many(padded, np.full(len(paths), np.inf), np.array([*capacities, np.inf]))
    assert many.tolist() == pytest.approx(rates(paths, capacities), rel=1e-6)


def run_all(flows: Flows) -> list[tuple[float, Flow]]:
    ended = []
    while (now := flows.next_end()) < float("inf"):
        ended += [(now, flow) for flow in flows.end(now)]
    return ended


def test_flows_share_a_link_while_both_are_under_way() -> None:
    """10 bytes alone for 1 s at 4 bytes/s, then two flows at 2 bytes/s each."""
    flows = Flows([4.0])
    first, second = Flow("a", 10.0, [0]), Flow("b", 4.0, [0])
    flows.start(0.0, [first])
    flows.start(1.0, [second])
    assert [(time, flow.owner) for time, flow in run_all(flows)] == [(3.0, "b"), (3.5, "a")]


@pytest.mark.parametrize("count", [SMALL // 2, 3 * SMALL])
def test_few_and_many_flows_end_when_all_bytes_are_through(count: int) -> None:
    """A shared link works without a pause, whether flows are kept one by one or in arrays."""
    flows = Flows([100.0])
    sizes = [1.0 + number % 7 for number in range(count)]
    flows.start(0.0, [Flow(number, size, [0]) for number, size in enumerate(sizes)])
    ended = run_all(flows)
    assert sorted(flow.owner for _, flow in ended) == list(range(count))
    assert max(time for time, _ in ended) == pytest.approx(sum(sizes) / 100.0, rel=0.03)


def test_flows_without_common_links_are_apart() -> None:
    flows = [Flow(number, 1.0, links) for number, links in enumerate([[0, 1], [2], [1, 3], [4, 2], [5]])]
    assert sorted(sorted(flow.owner for flow in part) for part in connected(flows)) == [[0, 2], [1, 3], [4]]
