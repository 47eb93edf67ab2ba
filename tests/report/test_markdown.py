"""The report as Markdown, of made journals."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from longca import masks
from longca.cli import main
from longca.report.figures.accuracy import worst_at
from longca.report.markdown import render
from longca.results import naming
from report.made import Record, around, blocks, kernel, make_record, results_of, split

Write = Callable[..., Path]
HOSTILE = "<b>|$x_"
SETTING = "NVIDIA H200 · kernel · 64:8 heads of 128 · bf16"


def text_of(records: list[Record]) -> str:
    results = results_of(records)
    return render(results, naming.rows(results), "Ours")


def section(text: str, title: str) -> str:
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """Cells of all rows of tables."""
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]


def fwd(name: str, ms: float | None, **fields: Any) -> Record:
    return kernel(name, None if ms is None else around(ms), which="fwd", **fields)


def test_markdown_holds_the_tables_and_its_cells_stay_cells(write: Write, tmp_path: Path) -> None:
    made = [make_record([1.0, 1.1, 1.2], kernel=name, asked=name, seqlen=n) for name in ("fa4", HOSTILE) for n in (8192, 16384)]
    made.append(make_record(None, kernel="fa2", asked="fa2", seqlen=16384, status="unsupported", reason="no | such mask"))
    out = tmp_path / "report.md"
    assert main(["report", str(write("made", made)), "-o", str(tmp_path / "page.html"), "--md", str(out), "--title", "Ours"]) == 0
    text = out.read_text()
    assert text.startswith("# Ours\n\n5 records: 4 ok, 1 unsupported.\n")
    assert "| causal | 16K |" in text
    assert "| fa2:bands | unsupported | 1 | 16K | no \\| such mask |" in text
    outside = "".join(text.split("```")[::2])
    assert "&lt;b&gt;\\|$x_" in outside
    assert "<b>" not in outside
    titles = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert titles == ["Headlines", "Fastest and failed", "Speeds", "Share of peak", "Accuracy", "Memory", "Preparing", "Environments"]


def test_headlines_name_who_is_ahead_and_how_to_measure_it_again() -> None:
    """What is within 3 % is equal; the command is that of the first."""
    made = [fwd("fa4:bands", 1.0), fwd("flex", 1.02), fwd("sdpa:math", 1.5), fwd("fa4:bands", 9.0, seqlen=1024), fwd("torch:plain", None)]
    text = section(text_of(made), "Headlines")
    head, row = rows(text)
    assert head == ["mask", "pass", "length", "fastest", "TFLOP/s", "of peak", "ahead of"]
    assert row == ["causal", "fwd", "8K", "fa4:bands, flex within 3 %", "11", "1 %", "1.50× sdpa:math"]
    block = text.partition("```sh\n")[2].partition("\n```")[0].splitlines()
    assert block[0] == "# causal, fwd: fa4:bands"
    assert block[1].startswith("longca run --kernels fa4:bands --masks causal --seqlens 8K ")
    assert len(block) == 2


def test_a_headline_of_several_seeds_has_one_command_for_all() -> None:
    made = [fwd("fa4:bands", 1.0, seed=seed, mask_digest=str(seed), mask="causal_document") for seed in (7, 3)]
    flex = [fwd("flex", ms, seed=seed, mask_digest=str(seed), mask="causal_document", status=status)
            for seed, ms, status in ((7, 0.5, "ok"), (3, None, "oom"))]  # fmt: skip
    text = section(text_of([*made, *flex]), "Headlines")
    assert rows(text)[1][3] == "fa4:bands", "flex failed on one of the two masks"
    assert text.count("longca run") == 1
    assert "--seeds 3,7 " in text


def test_a_block_pattern_is_reproduced_with_its_parameters_and_no_dense_headline() -> None:
    pattern = blocks("flex", [1.0], which="fwd") | {"params": {"b": 128, "ratio": 0.2, "heads": 8}}
    text = section(text_of([pattern, fwd("fa4:native", 2.0, mask="full")]), "Headlines")
    assert [row[0] for row in rows(text)] == ["mask", "uniform_block b=128 ratio=0.2"]
    assert "--masks uniform_block --seqlens 8K --seed 0 --set b=128 --set ratio=0.2" in text


def test_what_was_simulated_is_neither_ahead_nor_reproduced() -> None:
    made = [split("usp", 2.0), split("usp", 1.0, simulated="h100-ib")]
    text = section(text_of(made), "Headlines")
    assert [(row[3], row[6]) for row in rows(text)[1:]] == [
        ("usp 8x8 fa4:bands", "the only one"),
        ("usp 8x8 fa4:bands, simulated on h100-ib", "the only one"),
    ]
    assert text.count("longca run") == 1


def test_nothing_ends_the_block_of_commands() -> None:
    name = "a```\n# b"
    text = text_of([make_record(kernel=name, asked=name, variant=None)])
    assert "\n````sh\n# causal, fwd: a``` # b\n" in text


def by_rule(name: str, seqlen: int) -> Record:
    reason = f"O(S²) memory, {seqlen / 8192:g} {'GiB' if seqlen >= 8192 else 'MiB'} at {seqlen} tokens: --full runs it"
    return fwd(name, None, status="unsupported", seqlen=seqlen, reason=reason, limited=True)


def test_what_a_rule_skipped_is_not_called_unsupported(write: Write, tmp_path: Path) -> None:
    """Older records do not tell, and stay what they say."""
    made = [fwd("fa4:bands", 1.0, seqlen=n) for n in (4096, 8192, 16384)] + [fwd("torch:plain", 9.0, seqlen=4096, limited=False)]
    made += [by_rule("torch:plain", n) for n in (8192, 16384)]
    made += [fwd("fa2", None, seqlen=n, status="unsupported", **more) for n, more in ((8192, {}), (16384, {"limited": False}))]
    out = tmp_path / "report.md"
    assert main(["report", str(write("made", made)), "-o", str(tmp_path / "page.html"), "--md", str(out)]) == 0
    text = out.read_text()
    assert "8 records: 4 ok, 2 skipped, 2 unsupported.\n" in text
    statuses = [row[:2] for row in rows(section(text, "Fastest and failed")) if row[0] in ("fa2", "torch:plain")]
    assert statuses == [["fa2", "unsupported"], ["torch:plain", "skipped"]]
    assert rows(section(text, "Speeds"))[-1] == ["causal", "16K", "11", "skipped"], "fa2 is supported nowhere"
    assert rows(section(text, "Share of peak"))[1] == ["causal, 16K", "1.1 %", "skipped by a rule (best 0.1 % at 4K)"]


def test_reasons_that_differ_in_their_numbers_are_one_row_with_its_lengths() -> None:
    made = [fwd("fa4:bands", 1.0, seqlen=n) for n in (1024, 2048, 4096, 8192, 16384)]
    made += [by_rule("torch:plain", n) for n in (4096, 8192, 16384)]
    made += [fwd("cudnn", None, seqlen=n, status="unsupported", reason=f"one document, not {n // 1024}") for n in (1024, 8192)]
    made += [fwd("cudnn", None, seqlen=2048, status="unsupported", reason="no windows")]
    assert [row for row in rows(section(text_of(made), "Fastest and failed")) if len(row) == 5 and row[0] != "kernel"] == [
        ["cudnn", "unsupported", "1", "2K", "no windows"],
        ["cudnn", "unsupported", "2", "1K, 8K", "e.g. one document, not 8"],
        ["torch:plain", "skipped", "3", "4K to 16K", "e.g. O(S²) memory, 2 GiB at 16384 tokens: --full runs it"],
    ]


def test_shares_of_peak_are_at_the_longest_length_with_the_best_elsewhere_or_words() -> None:
    """What is fast at short lengths only must not look fast."""
    made = [fwd("fa4:bands", 1.0, mfu=share, seqlen=n) for share, n in ((0.5, 1024), (0.625, 4096), (0.62, 8192))]
    made += [fwd("flex", 1.0, mfu=0.04), fwd("flex", 1.0, mfu=0.5, seqlen=4096), fwd("late", 1.0, mfu=0.3, seqlen=4096)]
    made += [
        fwd("flex", None, mask="full", status="oom"),
        fwd("sdpa:math", 1.0, mfu=0.1),
        fwd("sdpa:math", None, status="wrong", seqlen=512),
    ]
    same = masks.build("sliding_window", 1024).digest
    made += [fwd("fa4:bands", 1.0, mfu=0.9, mask="sliding_window", seqlen=1024, mask_digest=same)]
    found = section(text_of(made), "Share of peak")
    assert f"### {SETTING}, fwd (share of the device's peak at the longest length)" in found
    assert rows(found) == [
        ["mask", "fa4:bands", "flex", "late", "sdpa:math"],
        ["causal, 8K", "62 %", "4.0 % (best 50 % at 4K)", "not run (best 30 % at 4K)", "wrong"],
        ["full, 8K", "not run", "out of memory", "not run", "not run"],
        ["sliding_window, 1K", "= full", "not run", "not run", "not run"],
    ]


def seeds_of(name: str, speeds: Sequence[float], peak: bool = True) -> list[Record]:
    """A record for each speed, with seeds 0, 1 and so on."""
    about = {"which": "fwd", "mask": "causal_document"}
    return [
        kernel(name, [1.0], seed=seed, mask_digest=str(seed), tflops=speed, mfu=speed / 1000 if peak else None, **about)
        for seed, speed in enumerate(speeds)
    ]


def test_shares_of_several_seeds_are_medians_on_the_same_masks() -> None:
    """As in the headlines; the last mask of `b` is an easy one that `a` lacks."""
    text = text_of([*seeds_of("a", (300.0, 400.0, 600.0)), *seeds_of("b", (200.0, 300.0, 400.0, 900.0, 900.0))])
    assert rows(section(text, "Headlines"))[1][4:6] == ["400 (300 to 600)", "40 %"]
    found = section(text, "Share of peak")
    assert "at the longest length; of several seeds the median)" in found
    assert rows(found)[1] == ["causal_document, 8K", "40 %", "30 %"]
    unknown = text_of([*seeds_of("a", (300.0, 400.0, 600.0), peak=False), *seeds_of("b", (200.0, 300.0, 400.0), peak=False)])
    assert rows(section(unknown, "Share of peak"))[1] == ["causal_document, 8K", "100 %", "75 %"]


def test_accuracy_is_the_worst_of_all_lengths() -> None:
    def check(out: float, dq: float) -> Record:
        return {"out": {"error": out, "allowed": 1.0}, "dq": {"error": dq, "allowed": 1.0}}

    made = [fwd("fa4:bands", 1.0, seqlen=n, check=check(out, 0.9)) for n, out in ((1024, 0.1), (2048, 0.25), (4096, 0.2))]
    made += [fwd("flex", None, status="wrong") | {"check": check(7.0, 0.0)}, fwd("flex", None, mask="full", status="unsupported")]
    infinite = {"error": None, "allowed": 1.0}  # as a journal keeps it
    made += [
        fwd("sdpa", None, seqlen=n, status="wrong") | {"check": {"out": out}} for n, out in ((4096, infinite), (8192, check(9, 0)["out"]))
    ]
    assert rows(section(text_of(made), "Accuracy")) == [
        ["mask", "fa4:bands", "flex", "sdpa"],
        ["causal", "25 % (out, 2K)", "wrong: 700 % (out, 8K)", "wrong: no number (out, 4K)"],
        ["full", "", "unsupported"],
    ]


def test_what_made_a_kernel_wrong_is_named() -> None:
    """The lse that a backward starts from, or no tensor at all; not the largest error of those that were right."""
    lse = {"lse": {"error": 3.0, "allowed": 1.0}, "dk": {"error": 0.24, "allowed": 1.0}}
    fine = {"dk": {"error": 0.9, "allowed": 1.0}}
    about = {"which": "bwd", "seqlen": 512}
    made = [kernel("a", None, **about, status="wrong") | {"check": lse}, kernel("a", around(1.0), "bwd", seqlen=256, check=fine)]
    made += [kernel("b", None, **about, status="wrong", reason="it changed\nits inputs") | {"check": fine}]
    assert rows(section(text_of(made), "Accuracy"))[1] == ["causal", "wrong: 300 % (lse, 512)", "wrong: it changed its inputs (512)"]
    drawn = [worst_at([row]) for row in naming.rows(results_of(made))]
    assert drawn == [(3.0,) * 3, (0.9,) * 3, None], "in the figure: a point above 1, one below, and W"


def test_memory_is_the_most_of_any_mask_but_of_each_block_pattern() -> None:
    made = [fwd("flex", 1.0, mask=mask, peak_gib=gib) for mask, gib in (("full", 0.5), ("causal", 0.25))]
    made += [fwd("flex", 1.0, mask="full", seqlen=16384, peak_gib=2.0), blocks("flex", [1.0], which="fwd", peak_gib=3.0)]
    found = rows(section(text_of(made), "Memory"))
    assert found == [
        ["mask", "kernel", "8K", "16K"],
        ["any", "flex", "0.5", "2"],
        ["mask", "kernel", "8K"],
        ["uniform_block b=64 ratio=0.5", "flex", "3"],
    ]


def test_preparing_has_medians_and_the_most() -> None:
    times = ((1.0, 10.0, 0.0), (2.0, 20.0, 1234.0), (6.0, 90.0, 5.0))
    made = [fwd("flex", 1.0, seqlen=1024 << i, build_ms=a, plan_ms=b, compile_ms=c) for i, (a, b, c) in enumerate(times)]
    assert rows(section(text_of(made), "Preparing")) == [
        ["kernel", "making the mask", "planning", "compiling (most)"],
        ["flex", "2, 6", "20, 90", "1234"],
    ]


def test_what_nobody_counted_has_no_section() -> None:
    text = text_of([make_record(peak_gib=None)])
    assert "## Memory" not in text
    assert "## Preparing" in text


def test_slow_headlines_are_in_gflops(write: Write, tmp_path: Path) -> None:
    records = [kernel("torch", around(1.0), "fwd", flops=22_000_000), kernel("slow", around(2.0), "fwd", flops=22_000_000)]
    assert main(["report", str(write("cpu", records)), "-o", str(tmp_path / "page.html"), "--md", str(tmp_path / "tables.md")]) == 0
    text = (tmp_path / "tables.md").read_text()
    assert "| causal | fwd | 8K | torch | 22 |" in text
    assert "GFLOP/s" in text
    assert "TFLOP/s" not in text
