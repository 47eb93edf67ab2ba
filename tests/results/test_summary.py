"""Summaries compare kernels on the same masks only, in one unit."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from longca.report.terminal import fastest_tables
from longca.results.groups import groups_of
from longca.results.summary import host_bound_note
from longca.results.tables import GFLOPS, TFLOPS, speed_unit
from report.made import make_record, results_of

Record = dict[str, Any]


def record(kernel: str, digest: str, tflops: float | None, **more: Any) -> Record:
    about = {"kernel": kernel, "asked": kernel, "variant": None, "mask": "share_question", "seqlen": 1024, "mask_digest": digest}
    failed = {"status": "oom", "reason": "too large"} if tflops is None else {}
    return make_record(None if tflops is None else [1000 / tflops], **{"flops": 10**12} | about | failed | more)


def fastest(records: list[Record], environments: Record | None = None) -> Any:
    return fastest_tables(groups_of(results_of(records, environments)))


def rows(*records: Record) -> list[list[list[str]]]:
    return [table.rows for table in fastest(list(records))]


def test_parameters_of_one_seed_are_rows_and_drawn_ones_are_not() -> None:
    listed = [record("a", f"w{w}", float(w), params={"w": w}) for w in (100, 200)]
    assert rows(*listed) == [[["share_question w=100", "a 100"], ["share_question w=200", "a 200"]]]
    drawn = [record("a", f"w{w}", float(w), params={"w": w}, seed=w) for w in (100, 200)]
    assert rows(*drawn) == [[["share_question", "a 133 (n=2)"]]]


def sparse(kernel: str, ratio: float, ms: float, **more: Any) -> Record:
    about = {"level": "sparse", "mask": "uniform_block", "params": {"b": 64, "ratio": ratio, "heads": 8}, "mask_digest": f"{ratio}"}
    return make_record([ms], **{"kernel": kernel, "asked": kernel, "variant": None, "seqlen": 1024, "flops": 10**12} | about | more)


def dense(kernel: str, mask: str, ms: float) -> Record:
    return make_record([ms], kernel=kernel, asked=kernel, variant=None, seqlen=1024, mask=mask, mask_digest=mask, flops=10**12)


def test_block_patterns_show_their_parameters_and_how_they_compare_with_the_dense_mask() -> None:
    found = [sparse("a", 0.2, 4.0), sparse("b", 0.2, 5.0), sparse("a", 0.5, 20.0)]
    kernels, patterns = fastest([dense("d", "full", 10.0), dense("e", "full", 12.0), *found])
    assert kernels.rows == [["full", "d 100"]]
    assert patterns.rows == [["uniform_block b=64 ratio=0.2", "a 250 2.5x"], ["uniform_block b=64 ratio=0.5", "a 50 0.5x"]]
    assert "x: speed-up over the dense mask" in patterns.title
    assert rows(found[0]) == [[["uniform_block b=64 ratio=0.2", "a 250"]]]  # alone, and without anything to compare with
    shared = sparse("a", 0.2, 4.0, params={"b": 64, "ratio": 0.2, "heads": 1})
    assert rows(shared) == [[["uniform_block b=64 ratio=0.2 heads=1", "a 250"]]]
    split = sparse("a", 0.2, 4.0, level="cp", method="ulysses", grid="2x1", ranks=2)
    assert rows(split) == [[["uniform_block b=64 ratio=0.2", "ulysses 2x1 a 125"]]]


def test_of_methods_that_are_exactly_as_fast_the_simpler_is_named_first() -> None:
    """As `longca ls cp` orders them; one that is not known here comes last."""
    split = {"level": "cp", "ranks": 8, "grid": "8x1"}
    made = [record("k", "x", 200.0, method=method, **split) for method in ("another", "loongtrain", "usp", "ulysses")]
    (ranking,) = (group.ranking for group in groups_of(results_of(made)).every)
    assert [standing.line.split()[0] for standing in ranking.standings] == ["ulysses", "usp", "loongtrain", "another"]


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


def test_times_with_the_host_in_them_are_counted() -> None:
    records = [record("a", f"mask{n}", 200.0, host_bound=n < 2) for n in range(3)] + [record("a", "mask3", None)]
    assert host_bound_note(results_of(records).records).startswith("2 of 3 times are host_bound: the host enqueued the call too slowly")
    assert host_bound_note(results_of(records[2:]).records) == ""
