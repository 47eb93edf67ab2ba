"""Figures and Markdown of a made journal."""

from collections.abc import Callable
from pathlib import Path

import pytest

from longca.cli import main
from longca.report.figures import _style
from longca.report.naming import line_names
from longca.report.settings import speed_at
from report.made import make_record

Write = Callable[..., Path]
HOSTILE = "<b>|$x_"


def journal(write: Write) -> Path:
    made = [
        make_record([1.0, 1.1, 1.2], kernel=kernel, asked=kernel, seqlen=seqlen) for kernel in ("fa4", HOSTILE) for seqlen in (8192, 16384)
    ]
    made.append(make_record(None, kernel="fa2", asked="fa2", seqlen=16384, status="unsupported", reason="no | such mask"))
    return write("made", made)


def test_figures_are_written_as_png_and_pdf(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, page = tmp_path / "figures", tmp_path / "page.html"
    assert main(["report", str(journal(write)), "-o", str(page), "--figures", str(folder)]) == 0
    stem = "fwd-nvidia-h200-kernel-64-8-heads-of-128-bf16"
    expected = {f"{kind}-{stem}.{end}" for kind in ("speed", "bars", "memory") for end in ("png", "pdf")}
    assert {path.name for path in folder.iterdir()} == expected
    starts = {".png": b"\x89PNG", ".pdf": b"%PDF"}
    assert all(path.read_bytes().startswith(starts[path.suffix]) for path in folder.iterdir())
    assert "wrote 6 figures" in capsys.readouterr().out


def test_there_is_no_figure_of_memory_that_nobody_counted(write: Write, tmp_path: Path) -> None:
    made = write("cpu", [make_record([1.0] * 5, peak_gib=None)])
    assert main(["report", str(made), "-o", str(tmp_path / "page.html"), "--figures", str(tmp_path / "figures")]) == 0
    assert sorted(path.name.partition("-")[0] for path in (tmp_path / "figures").iterdir()) == ["bars", "bars", "speed", "speed"]


def test_a_folder_that_cannot_be_made_is_a_sentence(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    arguments = ["report", str(journal(write)), "-o", str(tmp_path / "page.html"), "--figures", str(tmp_path / "file")]
    assert main(arguments) == 2
    assert "give another folder with --figures" in capsys.readouterr().err


def test_markdown_holds_the_tables_and_its_cells_stay_cells(write: Write, tmp_path: Path) -> None:
    out = tmp_path / "report.md"
    assert main(["report", str(journal(write)), "-o", str(tmp_path / "page.html"), "--md", str(out), "--title", "Ours"]) == 0
    text = out.read_text()
    assert text.startswith("# Ours\n\n5 records: 4 ok, 1 unsupported.\n")
    assert "| causal | 16K |" in text.replace("16384", "16K")
    assert "| fa2:bands | unsupported | 1 | no \\| such mask |" in text
    assert "&lt;b&gt;\\|$x_" in text
    assert "<b>" not in text
    assert "| device | NVIDIA H200 |" in text


def test_a_point_is_the_median_of_its_records_with_the_spread_of_all() -> None:
    records = [make_record([time] * 5, flops=1e12, seed=seed) for seed, time in enumerate((1.0, 2.0, 4.0))]
    assert speed_at(records) == pytest.approx((500, 250, 1000))
    assert speed_at([make_record(None)]) is None


def test_what_was_simulated_looks_and_is_called_differently() -> None:
    measured, simulated = line_names([make_record(level="cp", method="usp", ranks=64, simulated=name) for name in (None, "h100-ib")])
    assert (measured, simulated) == ("fa4:bands usp ×64", "fa4:bands usp ×64, simulated on h100-ib")
    assert "markerfacecolor" not in _style(0, measured)
    assert _style(0, simulated)["markerfacecolor"] == "none"


def test_a_line_is_called_after_the_variant_that_ran() -> None:
    """As `longca recommend` calls it; what failed before a variant was chosen joins the only one there is."""
    asked = [make_record(asked="fa4", variant="blocks", level="sparse"), make_record(None, asked="fa4", variant=None, level="sparse")]
    several = [
        make_record(asked=name, variant=variant) for name, variant in (("fa4", "native"), ("fa4", "bands"), ("fa4:native", "native"))
    ]
    failed = [make_record(None, asked="fa4", variant=None), make_record(None, asked="fa4:varlen", variant="varlen")]
    plain = [make_record(kernel="flex", asked="flex", variant=None)]
    assert line_names([*asked, *several, *failed, *plain]) == [
        *("fa4:blocks", "fa4:blocks", "fa4:native", "fa4:bands", "fa4:native", "fa4", "fa4:varlen", "flex")
    ]
