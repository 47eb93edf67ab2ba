"""The points of charts."""

from hypothesis import given
from hypothesis import strategies as st

from longca.results.naming import rows
from longca.results.points import SPEED, point
from report.made import kernel, results_of


@given(st.floats(0.1, 1000.0))
def test_equal_times_have_no_spread(ms: float) -> None:
    """Not even in the last digit."""
    found = point(rows(results_of([kernel("fa3", [ms] * 6)])), SPEED)
    assert found is not None
    assert found.low == found.value == found.high
