"""Figures and Markdown of a made journal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longca.cli import main
from longca.report import figures
from longca.report.figures import _style
from longca.report.naming import line_names
from longca.report.settings import speed_at
from report.made import Record, make_record

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


def drawn(records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The figures before they are written, by the first word of their file's name."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(figures, "_save", lambda figure, stem: found.update({stem.name.partition("-")[0]: figure}) or [])
    figures.write_figures(records, {}, tmp_path)
    return found


def legend(figure: Any) -> tuple[list[str], str]:
    return [text.get_text() for text in figure.legends[0].get_texts()], figure.legends[0].get_title().get_text().replace("\n", " ")


def named(name: str, **fields: Any) -> Record:
    ok = fields.setdefault("status", "ok") == "ok"
    return make_record([1.0] if ok else None, kernel=name, asked=name, variant=None, **fields)


def test_bars_stand_at_the_longest_length_of_each_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel with a bar somewhere has a bar or a word at every mask; who has none is not in the legend, but is named."""
    made = [named("fa3", mask="full", seqlen=40960), named("flex", mask="full", seqlen=40960), named("flex", mask="full", seqlen=32768)]
    made += [named("fa3", mask="causal", seqlen=32768, status="oom"), named("flex", mask="causal", seqlen=32768)]
    made += [named("late", mask="causal", seqlen=32768), named("never", mask="full", seqlen=40960, status="unsupported")]
    figure = drawn(made, tmp_path, monkeypatch)["bars"]
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["full,\n40K", "causal,\n32K"]
    assert len(axes.patches) == 4
    words = sorted((round(text.get_position()[0]), text.get_text().strip()) for text in axes.texts)
    assert words == [(0, "not run"), (1, "out of memory")]
    assert legend(figure) == (["fa3", "flex", "late"], "Nothing to show of never (unsupported).")


def test_letters_are_explained_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [named("fa3"), named("fa2", seqlen=16384), named("fa2", status="oom"), named("never", status="error")]
    figure = drawn(made, tmp_path, monkeypatch)["speed"]
    names, said = legend(figure)
    assert names == ["fa2", "fa3"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["M"]
    assert "M out of memory" in said
    assert "a number says how many: X3 means that three kernels are unsupported or unavailable." in said
    assert said.endswith("Nothing to show of never (error).")


def test_memory_has_a_panel_for_each_block_pattern_and_one_for_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [make_record(mask="uniform_block", params={"b": b, "ratio": 0.2}, peak_gib=b / 64) for b in (64, 128)]
    bands = [make_record(mask=mask, peak_gib=gib) for mask, gib in (("full", 0.5), ("causal", 0.25))]
    figure = drawn(blocks + bands, tmp_path, monkeypatch)["memory"]
    panels = {axes.get_title(): [list(line.get_ydata()) for line in axes.lines] for axes in figure.axes}
    assert panels == {"uniform_block b=64 ratio=0.2": [[1.0]], "uniform_block b=128 ratio=0.2": [[2.0]], "the most of any mask": [[0.5]]}
    assert {axes.get_yscale() for axes in figure.axes} == {"log"}


def test_labels_of_lengths_that_touch_go_to_a_second_row() -> None:
    lengths = [1024 * k for k in (1, 2, 4, 8, 16, 24, 32, 40)]
    assert figures._spaced(lengths) == ["1K", "2K", "4K", "8K", "16K", "\n24K", "32K", "\n40K"]


def test_a_layout_is_found_once_for_both_files(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    found, execute = [], ConstrainedLayoutEngine.execute
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda engine, figure: found.append(figure) or execute(engine, figure))
    written = figures.write_figures([make_record()], {}, tmp_path / "figures")
    assert (len(written), len(found)) == (6, 3)
