"""Figures of made journals: which files there are, and that what is drawn is what was recorded."""

import math
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from journals import Write
from longca import masks
from longca.cli import main
from longca.report import figures
from longca.report.figures.style import COLOURS, Line, Styles
from longca.results import naming
from longca.results.groups import groups_of
from longca.results.points import SPEED, point
from report.made import Record, around, blocks, kernel, make_record, results_of, split

HOSTILE = "<b>|$x_"
STEM = "fwd-nvidia-h200-kernel-64-8-heads-of-128-bf16"


def named(name: str, **fields: Any) -> Record:
    ok = fields.setdefault("status", "ok") == "ok"
    return make_record([1.0] if ok else None, kernel=name, asked=name, variant=None, **fields)


def journal(write: Write, **fields: Any) -> Path:
    made = [named(name, seqlen=seqlen, **fields) for name in ("fa4", HOSTILE) for seqlen in (8192, 16384)]
    return write("made", [*made, named("fa2", seqlen=16384, status="unsupported", reason="no such mask")])


def drawn(records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The figures before they are written, by the first word of their file's name, or by all of it."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(figures, "save", lambda figure, stem: found.update({stem.name.partition("-")[0]: figure, stem.name: figure}) or [])
    list(figures.write_figures(groups_of(results_of(records)), tmp_path))
    return found


def speed_at(records: list[Record]) -> tuple[float, float, float] | None:
    return point(naming.rows(results_of(records)), SPEED)


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def handles(figure: Any) -> dict[str, Any]:
    return dict(zip(legend(figure), figure.legends[0].legend_handles, strict=True))


def said(figure: Any) -> str:
    return " ".join(text.get_text().replace("\n", " ") for text in figure.texts)


def panels(figure: Any) -> dict[str, Any]:
    return {axes.get_title(): axes for axes in figure.axes}


def lines(axes: Any) -> list[tuple[list[float], list[float]]]:
    """The values of lines that are no level lines: those span the axes from 0 to 1."""
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines if line.get_transform() == axes.transData]


def levels(axes: Any) -> list[float]:
    return [line.get_ydata()[0] for line in axes.lines if line.get_transform() != axes.transData]


def collisions(figure: Any) -> list[tuple[str, str]]:
    """What lies on something else, or beyond the paper."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = {f"panel {number}": axes.get_tightbbox(renderer) for number, axes in enumerate(figure.axes)}
    boxes |= {text.get_text(): text.get_window_extent(renderer) for text in figure.texts if text.get_text()}
    boxes |= {f"legend {number}": one.get_window_extent(renderer) for number, one in enumerate(figure.legends)}
    paper = figure.bbox.padded(1)
    beyond = [(name, "paper") for name, box in boxes.items() if not (paper.x0 <= box.x0 and box.x1 <= paper.x1 and paper.y0 <= box.y0)]
    found = beyond + [(a, b) for a, b in combinations(boxes, 2) if boxes[a].padded(-1).overlaps(boxes[b].padded(-1))]
    for ticks in (ticks for axes in figure.axes for ticks in (axes.get_xticklabels(), axes.get_yticklabels()) if ticks):
        if not ticks[0].get_rotation() % 90:  # the box of a label that leans is larger than the label
            shown = [(tick.get_text(), tick.get_window_extent(renderer)) for tick in ticks if tick.get_text()]
            pairs = [pair for pair in combinations(shown, 2) if pair[0][0].startswith("\n") == pair[1][0].startswith("\n")]  # of one row
            found += [(a, b) for (a, one), (b, other) in pairs if one.overlaps(other)]
    return found


def test_figures_are_written_as_png_pdf_and_svg(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, page = tmp_path / "figures", tmp_path / "page.html"
    assert main(["report", str(journal(write)), "-o", str(page), "--figures", str(folder)]) == 0
    kinds = ("speed", "memory")
    assert {path.name for path in folder.iterdir()} == {f"{kind}-{STEM}.{end}" for kind in kinds for end in ("png", "pdf", "svg")}
    starts = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}
    assert all(path.read_bytes().startswith(starts[path.suffix]) for path in folder.iterdir())
    assert "wrote 6 files" in capsys.readouterr().out


def test_lines_hold_the_speeds_and_break_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [named("fa3", seqlen=n, tflops=n / 10) for n in (1024, 4096)] + [named("fa3", seqlen=2048, status="oom")]
    made += [named("fa2", seqlen=1024, tflops=7.0), named("never", seqlen=1024, status="error")]
    figure = drawn(made, tmp_path, monkeypatch)["speed"]
    [(places, fa2), (_, fa3)] = lines(figure.axes[0])
    assert (places, fa2[0], fa3[0], fa3[2]) == ([1024, 2048, 4096], 7.0, 102.4, 409.6)
    assert all(map(math.isnan, (fa2[1], fa2[2], fa3[1])))
    assert [text.get_text() for text in figure.axes[0].texts] == ["M"]
    assert legend(figure) == ["fa2", "fa3"]
    assert "M out of memory" in said(figure)
    assert "X3 means that three kernels are unsupported or unavailable." in said(figure)
    assert "Nothing to show of never (error)." in said(figure)


def pattern(name: str, ratio: float, ms: float, **fields: Any) -> Record:
    return blocks(name, [ms], which="fwd", **fields) | {"params": {"b": 64, "ratio": ratio, "heads": 8}, "mask_digest": f"d{ratio}"}


def test_one_length_of_block_patterns_is_drawn_over_their_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the dense mask as a level line, so that one sees where blocks stop being worth it."""
    made = [pattern("flex", ratio, 10 * ratio) for ratio in (0.2, 0.5, 0.8)]
    dense = kernel("fa4:native", [6.0], which="fwd", mask="full")
    other = kernel("cudnn", [1.0], which="fwd", mask="full", heads_kv=64)
    found = drawn([*made, dense, other], tmp_path, monkeypatch)
    [(title, axes)] = panels(found["ratio"]).items()
    assert title == "uniform_block b=64"
    assert lines(axes) == [([0.2, 0.5, 0.8], [2.0, 5.0, 8.0])]
    assert levels(axes) == [6.0]
    assert legend(found["ratio"]) == ["flex", "fa4:native on full (dense)"]
    level = handles(found["ratio"])["fa4:native on full (dense)"]
    assert (level.get_color(), level.get_linestyle()) == ("black", "--"), "no kernel looks like it"
    speed = found["speed-fwd-nvidia-h200-sparse-64-8-heads-of-128-bf16"].axes[0]
    assert lines(speed)[0][1] == [record["tflops"] for record in made]
    assert levels(speed) == [dense["tflops"]]


def test_with_one_length_masks_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [named("fa3", mask=mask, peak_gib=gib) for mask, gib in (("full", 0.5), ("causal", 0.25))]
    found = drawn(made, tmp_path, monkeypatch)
    for kind, values in (("memory", [0.5, 0.25]), ("speed", [11.0, 11.0])):
        [axes] = found[kind].axes
        assert lines(axes) == [([0, 1], values)]
        assert axes.lines[0].get_linestyle() == "None"
        assert [label.get_text() for label in axes.get_xticklabels()] == ["full, 8K", "causal, 8K"]


def test_memory_has_a_panel_for_each_block_pattern_and_one_for_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (8192, 16384)
    made = [make_record(mask="uniform_block", params={"b": b, "ratio": 0.2}, peak_gib=b / 64, seqlen=n) for b in (64, 128) for n in sizes]
    made += [make_record(mask=mask, peak_gib=gib, seqlen=n) for mask, gib in (("full", 0.5), ("causal", 0.25)) for n in sizes]
    figure = drawn(made, tmp_path, monkeypatch)["memory"]
    found = {name: [values for _, values in lines(axes)] for name, axes in panels(figure).items()}
    assert found == {
        "uniform_block b=64 ratio=0.2": [[1, 1]],
        "uniform_block b=128 ratio=0.2": [[2, 2]],
        "the most of any mask": [[0.5, 0.5]],
    }
    assert {axes.get_yscale() for axes in figure.axes} == {"log"}


def test_scaling_is_over_ranks_and_what_was_simulated_looks_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same tokens in all, and with the same on each rank."""
    made = [split("usp", 1.0, ranks, seqlen=1 << 18, tflops=500.0 - ranks) for ranks in (8, 16)]
    made += [split("usp", 1.0, ranks, seqlen=8192 * ranks, tflops=300.0 - ranks) for ranks in (8, 16)]
    made += [split("usp", 1.0, ranks, seqlen=1 << 18, tflops=400.0 - ranks, simulated="h100-ib") for ranks in (16, 64)]
    figure = drawn(made, tmp_path, monkeypatch)["scaling"]
    found = panels(figure)
    assert list(found) == ["causal, 256K tokens", "causal, 8K tokens per rank"]
    measured, simulated = found["causal, 256K tokens"].lines
    assert list(measured.get_ydata())[:2] == [492.0, 484.0]
    assert list(simulated.get_ydata())[1:] == [384.0, 336.0]
    assert [values[:2] for _, values in lines(found["causal, 8K tokens per rank"])] == [[292.0, 284.0]]
    assert legend(figure) == ["usp fa4:bands", "usp fa4:bands, simulated on h100-ib"]
    assert (measured.get_color(), measured.get_marker()) == (simulated.get_color(), simulated.get_marker())
    assert (measured.get_fillstyle(), simulated.get_fillstyle()) == ("full", "none")
    assert (measured.get_linestyle(), simulated.get_linestyle()) == ("-", ":")


def test_a_kernel_looks_the_same_in_all_figures_of_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        named(name, seqlen=n, **more)
        for name in ("a", "b", "z")
        for n in (1024, 2048)
        for more in ({}, {"heads_kv": 64})
        if (name, more) != ("a", {})
    ]
    found = drawn(made, tmp_path, monkeypatch)
    looks: dict[str, set[tuple[Any, ...]]] = {}
    for figure in (figure for name, figure in found.items() if "-" in name):
        for name, handle in handles(figure).items():
            looks.setdefault(name, set()).add((handle.get_color(), handle.get_marker(), handle.get_linestyle()))
    assert len(found) == 6
    assert all(len(several) == 1 for several in looks.values())
    assert len(looks) == len(set.union(*looks.values())) == 3


def test_twenty_kernels_differ_in_colour_and_in_grey() -> None:
    names = [str(number) for number in range(20)]
    styles = Styles([[Line(name, name) for name in names]])
    made = [styles.line(name) for name in names]
    assert len({(style["color"], style["marker"]) for style in made}) == 20
    assert len({(style["marker"], style["linestyle"]) for style in made}) == 20


# what is left of linear red, green and blue without one kind of cones (Machado, Oliveira and Fernandes 2009)
CONES = {
    "all": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
TO_LMS = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
TO_LAB = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]  # Oklab: a distance of 0.02 can just be seen


PAGE = (Path(figures.__file__).parents[1] / "assets" / "page.css").read_text()
LIGHT, DARK = (re.findall(r"--s\d+: (#\w{6});", theme) for theme in PAGE.split("data-theme", 1))


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("cones", CONES)
def test_colours_can_be_told_apart_by_the_colour_blind(cones: str, colours: list[str]) -> None:
    from matplotlib.colors import to_rgb

    shown = np.array([to_rgb(colour) for colour in colours])
    light = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)
    seen = np.cbrt(np.clip(light @ np.transpose(CONES[cones]), 0, 1) @ np.transpose(TO_LMS)) @ np.transpose(TO_LAB)
    apart = {(i, j): float(np.linalg.norm(seen[i] - seen[j])) for i, j in combinations(range(12), 2)}
    assert list(COLOURS) == LIGHT, "the page and the figures look alike"
    assert min(apart.values()) > 0.09, min(apart, key=lambda pair: apart[pair])


@pytest.mark.parametrize("kernels", [3, 19])
def test_nothing_lies_on_anything_else(kernels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts are computed, not found by matplotlib: names are long, and there are many of them."""
    names = [f"kernel{number}:with_a_long_name"[: 8 + number] for number in range(kernels)]
    lengths = [1024 * k for k in (1, 2, 4, 8, 16, 24, 32, 40, 48)]
    made = [named(name, mask=mask, seqlen=n, heads_kv=4) for name in names for mask in ("full", "sliding_window_causal") for n in lengths]
    made += [named(name, mask=mask) for name in names for mask in masks.names()]
    made += [named("none", mask="full", status="unsupported"), named(names[0], mask="causal_document", status="timeout")]
    made += [pattern(name, ratio, 1.0) for name in names for ratio in (0.2, 0.5)]
    found = drawn(made, tmp_path, monkeypatch)
    assert {name: faults for name, figure in found.items() if "-" in name and (faults := collisions(figure))} == {}


def test_spreads_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [kernel("fa4:bands", samples, which="fwd", seqlen=n) for n, samples in ((1024, [1.0]), (2048, around(2.0)))]
    [axes] = drawn(made, tmp_path, monkeypatch)["speed"].axes
    [spread] = [segment.tolist() for collection in axes.collections for segment in collection.get_segments()]
    _, low, high = speed_at(made[1:]) or (0, 0, 0)
    assert spread == [[2048, low], [2048, high]]
