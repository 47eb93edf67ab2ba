"""Units of speeds in tables."""

from hypothesis import given
from hypothesis import strategies as st

from longca.results.tables import GFLOPS, TFLOPS, speed_unit

speeds = st.floats(min_value=1e-7, max_value=2e3)


@given(speeds=st.lists(speeds, min_size=1, max_size=5))
def test_a_table_has_one_unit_in_which_its_largest_speed_is_no_fraction(speeds: list[float]) -> None:
    unit = speed_unit(speeds)
    assert unit == (GFLOPS if max(speeds) < 1 else TFLOPS)
    text = unit.text(max(speeds))
    assert abs(float(text) / unit.per_tflops / max(speeds) - 1) <= 0.006, "three digits, or two from 100 on"
    assert "e" not in text or max(speeds) < 1e-7


def test_a_noisy_speed_has_its_mark_behind_it() -> None:
    assert GFLOPS.text(0.0222668, noisy=True) == "22.3~"
    assert TFLOPS.text(674.6) == "675"
    assert speed_unit([]) == TFLOPS
