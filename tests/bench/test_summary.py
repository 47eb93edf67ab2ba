"""Summaries compare kernels on the same masks only."""

from pathlib import Path
from typing import Any

import pytest

from journals import writer
from longca.bench.export import to_markdown
from longca.bench.summary import fastest
from longca.cli.run import _summary
from report.made import kernel


def record(kernel: str, digest: str, tflops: float | None, **more: Any) -> dict[str, Any]:
    about = {"kernel": kernel, "variant": None, "mask": "share_question", "params": {}, "seqlen": 1024, "seed": 0, "mask_digest": digest}
    about |= {"heads_q": 8, "heads_kv": 8, "head_dim": 64, "head_dim_v": 64, "dtype": "bf16", "pass": "fwd", "deterministic": False}
    return about | {"status": "oom" if tflops is None else "ok", "tflops": tflops, "env": "e"} | more


def rows(*records: dict[str, Any]) -> list[list[list[str]]]:
    return [table.rows for table in fastest(records)]


def test_the_winner_is_the_one_on_the_same_masks_with_the_median_over_seeds() -> None:
    seeds = [record("a", f"mask{n}", speed, seed=n) for n, speed in enumerate((200.0, 210.0, 900.0))]
    others = [record("b", f"mask{n}", speed, seed=n) for n, speed in enumerate((220.0, 230.0, 240.0))]
    lucky = record("c", "mask2", 950.0, seed=2)  # measured on the easiest mask only
    assert rows(*seeds, *others, lucky) == [[["share_question", "b 230 (n=3)"]]]


def test_one_mask_has_no_count() -> None:
    assert rows(record("a", "x", 200.0), record("b", "x", 300.0)) == [[["share_question", "b 300"]]]


def test_parameters_of_one_seed_are_rows_and_drawn_ones_are_not() -> None:
    listed = [record("a", f"w{w}", float(w), params={"w": w}) for w in (100, 200)]
    assert rows(*listed) == [[["share_question w=100", "a 100"], ["share_question w=200", "a 200"]]]
    drawn = [record("a", f"w{w}", float(w), params={"w": w}, seed=w) for w in (100, 200)]
    assert rows(*drawn) == [[["share_question", "a 150 (n=2)"]]]


def sparse(kernel: str, ratio: float, ms: float, **more: Any) -> dict[str, Any]:
    about = {"level": "sparse", "mask": "uniform_block", "params": {"b": 64, "ratio": ratio, "heads": 8}, "ms": {"median": ms}}
    return record(kernel, f"{ratio}", 1000 / ms) | about | more


def test_block_patterns_show_their_parameters_and_how_they_compare_with_the_dense_mask() -> None:
    dense = [record(kernel, "f", 100.0, mask="full", ms={"median": ms}) for kernel, ms in (("d", 10.0), ("e", 12.0))]
    found = [sparse("a", 0.2, 4.0), sparse("b", 0.2, 5.0), sparse("a", 0.5, 20.0)]
    (table,) = fastest([*dense, *found])
    assert table.rows == [
        ["full", "d 100"],
        ["uniform_block b=64 ratio=0.2", "a 250 2.5x"],
        ["uniform_block b=64 ratio=0.5", "a 50 0.5x"],
    ]
    assert "x: times as fast as the dense mask" in table.title
    assert rows(found[0]) == [[["uniform_block b=64 ratio=0.2", "a 250"]]]  # alone, and without anything to compare with
    shared = sparse("a", 0.2, 4.0, params={"b": 64, "ratio": 0.2, "heads": 1})
    assert rows(shared) == [[["uniform_block b=64 ratio=0.2 heads=1", "a 250"]]]
    split = sparse("a", 0.2, 4.0, level="cp", method="ulysses", grid="2x1", ranks=2)
    assert rows(split) == [[["uniform_block b=64 ratio=0.2", "ulysses 2x1 a 250"]]]


def test_selected_blocks_are_rows_of_their_own_and_compare_with_the_causal_mask() -> None:
    dense = [record("d", name, 100.0, mask=name, ms={"median": ms}) for name, ms in (("full", 10.0), ("causal", 5.0))]
    found = [sparse("a", 0.2, 4.0), sparse("a", 0.2, 4.0, source="nsa", mask_digest="other")]
    assert rows(*dense, *found)[0][2:] == [
        ["uniform_block b=64 ratio=0.2", "a 250 2.5x"],
        ["uniform_block nsa b=64 ratio=0.2", "a 250 1.25x"],
    ]


def test_other_shapes_and_devices_are_other_tables() -> None:
    base = record("a", "x", 100.0)
    others = [base | {"head_dim_v": 32}, base | {"deterministic": True}, base | {"env": "f"}]
    environments = {"e": {"device": "one GPU"}, "f": {"device": "another"}}
    titles = [table.title for table in fastest([base, *others], environments)]
    assert len(set(titles)) == 4
    assert "heads of 64/32" in titles[1]


def test_markdown_says_how_many_masks_a_figure_stands_for() -> None:
    text = to_markdown(
        [record("a", "x", 100.0), record("a", "y", None, seed=1), record("b", "x", None), record("b", "y", None, seed=1)], {}
    )
    assert "| share_question | 1K | 100 (n=1 of 2) | oom |" in text


def test_markdown_marks_noisy_figures_and_says_so() -> None:
    quiet = [record("a", "x", 100.0, noisy=False), record("b", "x", 90.0, noisy=False)]
    assert "~" not in to_markdown(quiet, {})
    text = to_markdown([quiet[0], quiet[1] | {"noisy": True}], {})
    assert text.startswith("`~`: noisy, ")
    assert "| share_question | 1K | 100 | 90 ~ |" in text


def test_a_run_ends_with_how_kernels_of_ones_own_stand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = writer(tmp_path)("out", [kernel(name, [1.0] * 5, "fwd") for name in ("mine", "fa4")])
    _summary([], folder, ["mine"])
    assert "mine against the best other, fwd" in capsys.readouterr().out
    _summary([], folder, [])
    assert "against" not in capsys.readouterr().out
