"""The report as Markdown and on the terminal, of made journals."""

from pathlib import Path
from typing import Any

from journals import Write
from longca.cli import main
from longca.report.markdown import render
from longca.report.terminal import summary_tables
from longca.results.groups import groups_of
from longca.results.tables import plain_table
from report.made import Record, around, blocks, kernel, make_record, results_of, split

HOSTILE = "<b>|$x_"
GOLDEN = Path(__file__).parent / "golden"


def text_of(records: list[Record]) -> str:
    results = results_of(records)
    return render(results, groups_of(results), "Ours")


def section(text: str, title: str) -> str:
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """Cells of all rows of tables."""
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]


def fwd(name: str, ms: float | None, **fields: Any) -> Record:
    return kernel(name, None if ms is None else around(ms), which="fwd", **fields)


def journal() -> list[Record]:
    """Equal, slower and hostile kernels, two seeds, block patterns beside their dense mask, a simulation, and what failed."""
    made = [fwd(name, ms, seqlen=n) for name, ms in (("fa4:bands", 1.0), ("flex", 1.02), (HOSTILE, 2.0)) for n in (8192, 16384)]
    made += [
        fwd("fa4:bands", ms, seed=seed, mask_digest=str(seed), mask="causal_document", noisy=seed == 7) for seed, ms in ((7, 1.0), (3, 2.0))
    ]
    made += [fwd("fa2", None, seqlen=16384, status="unsupported", reason="no | such mask")]
    made += [fwd("bad", None, status="wrong", reason="out is off") | {"check": {"out": {"error": 7.0, "allowed": 1.0}}}]
    made += [fwd("plain", 9.0, seqlen=4096, build_ms=2.5, plan_ms=None, compile_ms=5.0, peak_gib=4.0)]
    made += [fwd("plain", None, seqlen=n, status="skipped", reason=f"{n // 8192} GiB at {n} tokens: --full runs it") for n in (8192, 16384)]
    made += [blocks("flex", [1.0], which="fwd", mask_digest="b"), fwd("fa4:native", 2.0, mask="full", mask_digest="f")]
    return [*made, split("usp", 2.0), split("usp", 1.0, simulated="h100-ib")]


def test_the_text_of_a_journal(write: Write, tmp_path: Path) -> None:
    out = tmp_path / "report.md"
    assert main(["report", str(write("made", journal())), "-o", str(tmp_path / "page.html"), "--md", str(out), "--title", "Ours"]) == 0
    assert out.read_text() == (GOLDEN / "report.md").read_text()


def test_the_tables_of_a_journal_on_the_terminal() -> None:
    tables = [f"{table.title}\n{plain_table(table.columns, table.rows)}\n" for table in summary_tables(results_of(journal()))]
    assert "\n".join(tables) == (GOLDEN / "terminal.txt").read_text()


def test_a_headline_of_several_seeds_has_one_command_for_all() -> None:
    made = [fwd("fa4:bands", 1.0, seed=seed, mask_digest=str(seed), mask="causal_document") for seed in (7, 3)]
    flex = [fwd("flex", ms, seed=seed, mask_digest=str(seed), mask="causal_document", status=status)
            for seed, ms, status in ((7, 0.5, "ok"), (3, None, "oom"))]  # fmt: skip
    text = section(text_of([*made, *flex]), "Headlines")
    assert rows(text)[1][3] == "fa4:bands", "flex failed on one of the two masks"
    assert text.count("longca run") == 1
    assert "--seeds 3,7 " in text


def test_nothing_ends_the_block_of_commands() -> None:
    name = "a```\n# b"
    text = text_of([make_record(kernel=name, asked=name, variant=None)])
    assert "\n````sh\n# causal, fwd: a``` # b\n" in text


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
