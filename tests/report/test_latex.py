"""The LaTeX tables of made journals. No test needs LaTeX."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from longca.cli import main
from longca.report.latex import LINE, escape_latex, render
from longca.results import naming
from report.made import Record, around, kernel, results_of, split

Write = Callable[..., Path]
SETTING = "nvidia-h200-kernel-64-8-heads-of-128-bf16"
FASTEST, SPEEDS = f"tab:longca-fastest-fwd-{SETTING}", f"tab:longca-speeds-fwd-{SETTING}"
NOISY = r"\rlap{\textasciitilde}"


def text_of(records: Sequence[Record], title: str = "Ours") -> str:
    return render(naming.rows(results_of(records)), title)


def fwd(name: str, ms: float | None, **fields: Any) -> Record:
    return kernel(name, None if ms is None else around(ms), "fwd", **fields)


def tables(text: str) -> dict[str, str]:
    """The tables by their labels. Nothing but comments is between them."""
    found = re.findall(
        r"\\begin\{table\*\}.*?\\end\{table\*\}|\{\\footnotesize[^\n]*\n\\begin\{longtable\}.*?\\end\{longtable\}\}", text, re.DOTALL
    )
    rest = text
    for table in found:
        rest = rest.replace(table, "")
    assert all(not line or line.startswith("%") for line in rest.splitlines())
    return {re.findall(r"\\label\{(.*?)\}", table)[0]: table for table in found}


def cells(table: str) -> list[list[str]]:
    """The cells of each row, the head first."""
    return [
        re.sub(r" ?\\\\\*?(\[4pt\])?$", "", line).split(" & ") for line in table.splitlines() if " & " in line and "caption" not in line
    ]


def caption(table: str) -> str:
    return next(line for line in table.splitlines() if line.startswith(r"\caption{")).partition(r"\label")[0]


def test_the_tables_hold_the_fastest_kernels_and_every_speed(write: Write, tmp_path: Path) -> None:
    records = [fwd(name, ms, seqlen=n) for name, ms in (("fa4:bands", 1.0), ("a_b&c%", 2.0)) for n in (8192, 16384)]
    target = tmp_path / "tables.tex"
    assert main(["report", str(write("made", records)), "-o", str(tmp_path / "page.html"), "--latex", str(target)]) == 0
    found = tables(target.read_text())
    assert list(found) == [FASTEST, SPEEDS]
    assert cells(found[FASTEST]) == [
        ["mask", "fastest", "TFLOP/s", "peak", "ahead of"],
        ["causal", "fa4:bands", "11", r"1 \%", r"2.00$\times$ a\_b\&c\%"],
    ]
    assert cells(found[SPEEDS]) == [["tokens", "8K", "16K"], [r"a\_b\&c\%", "5.5", "5.5"], ["fa4:bands", "11", "11"]]
    assert r"\multicolumn{3}{l}{\textit{causal}} \\*" in found[SPEEDS]
    assert "forward pass at 16K tokens: NVIDIA H200, kernel, 64:8 heads of 128, bf16." in caption(found[FASTEST])


def test_the_preamble_names_the_packages() -> None:
    start = text_of([fwd("fa3", 1.0)], "A title\nof two lines").splitlines()[:3]
    assert start[0] == "% A title of two lines: tables of `longca report --latex`."
    assert r"\usepackage{array, booktabs, longtable}" in start[1]
    assert all(line.startswith("%") for line in start)


def test_the_noisy_mark_stands_at_the_speed_and_equals_are_counted() -> None:
    records = [fwd("fa3", 1.0, noisy=True), fwd("fa4", 1.01, noisy=True), fwd("flex", 1.02), fwd("slow", 2.0, noisy=True)]
    found = tables(text_of(records))
    assert cells(found[FASTEST])[1] == ["causal", "fa3, 2~more", f"11{NOISY}", r"1 \%", r"2.00$\times$ slow"]
    told = caption(found[FASTEST])
    assert r"n more: so many others are equally fast (within 3~\%, or within 10~\% with overlapping spreads)" in told
    assert r"\textasciitilde{}: noisy" in told
    assert [row[0] for row in cells(found[SPEEDS]) if row[1].endswith(NOISY)] == ["fa3", "fa4", "slow"]


def test_signs_of_missing_speeds_are_explained_in_the_caption() -> None:
    records = [fwd("fa4:bands", 1.0, seqlen=n) for n in (4096, 8192)] + [fwd("fa3", 1.0, seqlen=4096, noisy=True)]
    records += [fwd("fa3", None, status="unsupported", reason="no"), fwd("flex", 1.0, seqlen=4096), fwd("flex", None, status="oom")]
    records += [fwd("sdpa", 1.0, seqlen=4096), fwd("none", None, status="unsupported", reason="no")]
    speeds = tables(text_of(records))[SPEEDS]
    assert {row[0]: row[2] for row in cells(speeds)} == {"tokens": "8K", "fa3": "--", "fa4:bands": "11", "flex": "M", "sdpa": ""}
    assert "--: unsupported or unavailable; M: out of memory; empty: not run." in caption(speeds)
    assert r"\textasciitilde{}: noisy" in caption(speeds)
    plain = tables(text_of([fwd("fa4:bands", 1.0)]))
    assert all("noisy" not in caption(table) and "--:" not in caption(table) and "more" not in caption(table) for table in plain.values())


def test_many_kernels_and_lengths_fit_a_page() -> None:
    """As many as in the paper's grid. Kernels are rows, and the longest row is no wider than a line."""
    names = [f"kernel_{number}:with_variant" for number in range(16)]
    records = [fwd(name, 1.0, seqlen=n << 10) for name in names for n in (1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128)]
    found = tables(text_of(records))
    assert list(found) == [FASTEST, SPEEDS]
    rows = cells(found[SPEEDS])
    assert {len(row) for row in rows} == {13}
    assert len(rows) == 17
    assert sum(max(map(len, column)) for column in zip(*rows, strict=True)) < LINE
    assert "resizebox" not in found[SPEEDS]


def test_figures_that_are_too_wide_are_split_into_parts() -> None:
    lengths = [n << 10 for n in range(100, 140)]
    records = [fwd("fa3", 0.01, seqlen=n) for n in lengths] + [fwd("early", 0.01, seqlen=n) for n in lengths[:3]]
    parts = {label: cells(table) for label, table in tables(text_of(records)).items() if label.startswith(SPEEDS)}
    assert list(parts) == [f"{SPEEDS}-part-{number}" for number in range(1, len(parts) + 1)]
    assert [head for rows in parts.values() for head in rows[0][1:]] == [f"{n}K" for n in range(100, 140)]
    assert all(sum(map(len, rows[0])) < LINE for rows in parts.values())
    assert [len(rows) for rows in parts.values()] == [3, *[2] * (len(parts) - 1)], "a kernel without figures has no row"


def test_a_table_that_is_longer_than_a_page_repeats_its_head() -> None:
    some = [fwd("fa3", 1.0, mask=f"mask_{number}") for number in range(10)]
    many = [fwd("fa3", 1.0, mask=f"mask_{number}") for number in range(60)]
    assert all(table.startswith(r"\begin{table*}") for table in tables(text_of(some)).values())
    for table in tables(text_of(many)).values():
        assert table.splitlines()[1].startswith(r"\begin{longtable}")
        assert table.count(r"\toprule") == 2
        assert table.count(r"\endfirsthead") == table.count(r"\endhead") == table.count(r"\endfoot") == 1


def test_every_table_has_its_own_label() -> None:
    """Names of devices that differ in signs only give the same words."""
    environments = {name: {"device": name, "device_kind": "cuda", "gpus": 1} for name in ("A+B", "A/B")}
    records = [fwd("fa3", 1.0, env=name) | {"pass": pass_} for name in environments for pass_ in ("fwd", "bwd")]
    found = tables(render(naming.rows(results_of(records, environments)), "Ours"))
    assert len(found) == 8
    assert {f"tab:longca-{kind}-fwd-a-b-kernel-64-8-heads-of-128-bf16{end}" for kind in ("fastest", "speeds") for end in ("", "-2")} < set(
        found
    )


def test_many_small_tables_get_more_floats() -> None:
    """LaTeX ends with an error if more than 52 wait for a page."""
    records = [fwd("fa3", 1.0, heads_q=8 * number, heads_kv=8) for number in range(1, 31)]
    text = text_of(records)
    assert text.count(r"\begin{table*}") == 60
    assert text.splitlines()[4] == r"\extrafloats{60}"
    assert "extrafloats" not in text_of(records[:20])


def test_methods_have_a_column_per_number_of_ranks_and_no_cluster_in_their_names() -> None:
    records = [split("usp", ms, ranks, seqlen=ranks << 10, simulated="h100-ib") for ms, ranks in ((1.0, 8), (2.0, 16))]
    records += [split("ring_p2p", 3.0, 16, seqlen=16 << 10, simulated="h100-ib"), split("usp", 1.0, 16, seqlen=16 << 10)]
    found = tables(text_of(records))
    simulated, measured = (
        next(table for label, table in found.items() if "speeds" in label and ("h100-ib" in label) is kind) for kind in (True, False)
    )
    ranks, tokens, *rows = cells(simulated)
    assert (ranks, tokens) == (["ranks", "8", "16"], ["tokens", "8K", "16K"])
    assert [row[0] for row in rows] == [r"ring\_p2p fa4:bands", "usp fa4:bands"]
    assert "in TFLOP/s of each rank" in caption(simulated)
    assert "simulated on h100-ib" in caption(simulated)
    assert "simulated" not in measured
    assert len(cells(measured)) == 3


def test_grids_of_one_method_are_told_apart() -> None:
    records = [split("usp", ms, 8, seqlen=8192) | {"grid": grid} for ms, grid in ((1.0, "8x1"), (2.0, "4x2"))]
    speeds = next(table for label, table in tables(text_of(records)).items() if "speeds" in label)
    assert [row[0] for row in cells(speeds)[2:]] == ["usp 4x2 fa4:bands", "usp 8x1 fa4:bands"]


def test_a_number_of_seeds_that_all_speeds_share_is_in_the_caption() -> None:
    records = [fwd("fa3", ms, seed=seed, mask_digest=str(seed), mask="causal_document") for seed, ms in enumerate((1.0, 2.0, 4.0))]
    found = tables(text_of(records))
    assert cells(found[SPEEDS])[1] == ["fa3", "4.71"]
    assert "Speeds over 3 masks (one per seed)." in caption(found[SPEEDS])
    assert cells(found[FASTEST])[1][2] == "4.71 (2.75 to 11)"
    assert "(a to b): the range over seeds" in caption(found[FASTEST])
    mixed = tables(text_of([*records, fwd("fa3", 1.0)]))[SPEEDS]
    assert [row[1] for row in cells(mixed)[1:]] == ["4.71 (n=3)", "11"]
    assert "n: masks (one per seed) that a speed is over" in caption(mixed)


def test_slow_kernels_are_in_gflops() -> None:
    text = text_of([fwd("torch", 1.0, flops=22_000_000)])
    assert "GFLOP/s" in text
    assert "TFLOP/s" not in text
    assert cells(tables(text)[FASTEST])[1][1:3] == ["torch", "22"]


@pytest.mark.parametrize("name", ["[a]", "*a", r"a\b{c}", "a|<b>#$^", "a" * 200, "a_" * 60])
def test_names_stay_text(name: str) -> None:
    """Also at the start of a row, where LaTeX takes a bracket or a star for a part of the line break before it."""
    for table in tables(text_of([fwd("plain", 1.0), kernel(name, around(1.0), "fwd", variant=None, mask=name)])).values():
        bare = re.sub(r"\\[{}]", "", table)
        assert bare.count("{") == bare.count("}")
        assert not re.search(r"^[\[*]", table, re.MULTILINE)
        assert len({len(row) for row in cells(table)}) == 1
        assert escape_latex(name) in table.replace(r"\allowbreak{}", "")
