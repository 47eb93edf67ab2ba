"""What single sections of the page say, in a real browser as test_page.py."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longca.report.figures import heat
from longca.report.markdown import SECTIONS, render
from longca.report.terminal import fastest_tables
from longca.results import naming
from longca.results.reading import read
from longca.results.shares import fastest_speeds
from longca.results.summary import headlines
from report.browser import Browser
from report.made import Record, around, kernel, make_record, split
from report.opened import opened, text

Write = Callable[..., Path]
HOSTILE = "<img src=x onerror=alert(1)>"
RIGHT, DOWN, ESCAPE = "\ue014", "\ue015", "\ue00c"
CELLS = "return [...document.querySelectorAll(`#${arguments[0]} tr`)].map((row) => [...row.cells].map((cell) => cell.innerText))"
FRAMES = "const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); "
CHART = "const chart = document.querySelectorAll('#bars .plot')[arguments[0]].chart; "


SHARES = ((1024, "full", 0.3), (2048, "full", 0.25), (4096, "full", 0.5), (1024, "causal", 0.6), (2048, "causal", 0.03))


def chosen(page: Browser, select: str, value: str) -> None:
    page.script(
        "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))", select, value
    )


def many() -> list[Record]:
    """Fourteen kernels, of which some run at some lengths only, as on a GPU."""
    made = []
    for number, seqlen, which in product(range(14), [1024 * k for k in (1, 2, 4, 8, 16, 24, 32, 40, 48)], ("fwd", "bwd")):
        name = HOSTILE if number == 13 else f"k{number:02}"
        status = {1: "unsupported", 2: "oom", 3: "wrong"}.get(number, "ok") if seqlen > 8192 else "ok"
        place = {"seqlen": seqlen, "status": status, "reason": f"{status} there" if status != "ok" else ""}
        made.append(kernel(name, around(1 + number / 10) if status == "ok" else None, which, **place))
    made += [kernel("never", None, which, status="unavailable", seqlen=49152, reason="not installed") for which in ("fwd", "bwd")]
    made.append(kernel("bad", None, "fwd", status="wrong", seqlen=49152, reason="failed its check"))
    return made


@pytest.fixture
def bars(write: Write, browser: Browser, tmp_path: Path) -> Browser:
    return opened(browser, write("bars", many()), tmp_path)


def test_bars_stand_beside_each_other_with_words_where_there_is_none(bars: Browser) -> None:
    read = (
        CHART + "return chart.slots.map(({series, index}) => [chart.lines[series], chart.places[index], chart.points[series][index].value])"
    )
    shown = bars.script(read, 0)
    names = [HOSTILE, "bad", *(f"k{number:02}" for number in range(13))]
    assert [(name, place) for name, place, _ in shown] == [(name, 49152) for name in names], "all but who is unavailable everywhere"
    assert {name for name, _, value in shown if value is None} == {"bad", "k01", "k02", "k03"}
    written = """const words = [], context = CanvasRenderingContext2D.prototype, {fillText} = context;
                 context.fillText = function (text, ...at) { words.push(text); return fillText.call(this, text, ...at); };
                 paint(chart);
                 return frames().then(() => { context.fillText = fillText; return words; })"""
    words = bars.script(FRAMES + CHART + written, 0)
    assert [word for word in words if word[0] in "XMWTE"] == ["W wrong", "X unsupported", "M out of memory", "W wrong"]
    assert {"11", "5.5"} <= set(words), "each bar has its figure"
    label = bars.script(CHART + "return chart.plot.getAttribute('aria-label')", 0)
    assert label.endswith("; without a bar: bad wrong, k01 unsupported, k02 out of memory, k03 wrong")
    chosen(bars, "bars-length", "8192")
    assert all(value is not None for _, _, value in bars.script(read, 0))
    chosen(bars, "bars-length", "all")
    assert {place for _, place, _ in bars.script(read, 0)} == {1024 * k for k in (1, 2, 4, 8, 16, 24, 32, 40, 48)}
    assert bars.complaints() == []


def test_a_bar_has_the_colour_and_the_height_of_its_kernel(bars: Browser) -> None:
    ink = """let all; paint(chart); const {u} = chart;
             return frames().then(() => { all = u.ctx.getImageData(0, 0, u.ctx.canvas.width, u.ctx.canvas.height); }).then(() =>
             chart.slots.map(({series, index, x}) => {
               const at = (value, scale) => u.valToPos(value, scale, true), {value} = chart.points[series][index];
               const wanted = styleOf(lookOf(chart.lines[series])).color, rgb = [1, 3, 5].map((i) => parseInt(wanted.slice(i, i + 2), 16));
               const first = (part) => 4 * (Math.round(at((value ?? 4) * part, 'y')) * all.width + Math.round(at(x + 0.3, 'x')));
               const like = (part) => String(all.data.slice(first(part), first(part) + 3)) === String(rgb);
               return [chart.lines[series], value !== null, [0.2, 0.95, 1.1].map(like)]; }))"""
    for name, measured, inked in bars.script(FRAMES + CHART + ink, 0):
        assert inked == ([True, True, False] if measured else [False] * 3), name


def test_all_lengths_keep_room_for_words_and_scroll_in_their_box(bars: Browser) -> None:
    chosen(bars, "bars-length", "all")
    for width in (1200, 390):
        bars.resize(width, 900)
        bars.script(CHART + "if (!chart.u) paint(chart)", 0)
        room, slots, box = bars.script(
            CHART + "return [chart.u.valToPos(1, 'x') - chart.u.valToPos(0, 'x'), chart.slots.length, chart.plot.parentNode.clientWidth]", 0
        )
        assert slots == 9 * 14 + 1
        assert room >= 12
        assert room * slots > box, "or there would be nothing to scroll"
        assert bars.script("return document.documentElement.scrollWidth") <= width


def test_pointer_and_keys_read_the_bars(bars: Browser) -> None:
    bars.script(CHART + "chart.plot.scrollIntoView({block: 'center'}); if (!chart.u) paint(chart)", 0)
    spot = bars.script(
        CHART
        + """const box = chart.u.over.getBoundingClientRect(), [x] = chart.spot(chart, chart.lines.indexOf('k02'), 0);
             return [box.left + x, box.top + box.height / 2]""",
        0,
    )
    bars.point_at(*spot)
    assert text(bars, "#hover strong") == "k02 · 48K · out of memory"
    assert "reason oom there" in text(bars, "#hover")
    bars.point_at(5, 5)
    chosen(bars, "bars-length", "all")
    bars.script(CHART + "chart.plot.focus()", 0)
    read = []
    for key in (RIGHT, RIGHT, DOWN):
        bars.press(key)
        read.append(text(bars, "#hover strong"))
    assert [line.rsplit(" · ", 1)[0] for line in read] == [f"{HOSTILE} · 1K", "k00 · 1K", "k00 · 2K"]
    assert bars.script("return document.querySelectorAll('img').length") == 0
    assert HOSTILE in text(bars, "#bars-legend")
    bars.press(ESCAPE)
    assert bars.script("return document.getElementById('hover').hidden")
    assert bars.complaints() == []


def test_bars_of_block_patterns_are_grouped_by_their_share(write: Write, browser: Browser, tmp_path: Path) -> None:
    made = [
        kernel(name, around(ms), "fwd", level="sparse", mask="uniform_block", params={"b": 64, "ratio": ratio, "heads": 8})
        for (name, ms), ratio in product((("a", 1.0), ("b", 2.0)), (0.2, 0.5))
    ]
    page = opened(browser, write("patterns", made), tmp_path)
    assert page.script(CHART + "return [chart.x, chart.places.map(chart.label), chart.lines]", 0) == [
        "ratio",
        ["ratio 0.2", "ratio 0.5"],
        ["a", "b"],
    ]
    assert page.script("return document.querySelectorAll('#bars .plot').length") == 1


def test_accuracy_is_shown_at_each_length_the_worst_first(write: Write, browser: Browser, tmp_path: Path) -> None:
    shares = {("a", "causal"): (0.1, 0.2), ("a", "full"): (0.3, 0.4), (HOSTILE, "causal"): (0.05, 0.6), (HOSTILE, "full"): (0.1, 0.1)}
    made = [
        kernel(
            name, around(1.0), "fwd", mask=mask, mask_digest=mask, seqlen=seqlen, check={"out": {"error": share * 1e-3, "allowed": 1e-3}}
        )
        for (name, mask), several in shares.items()
        for seqlen, share in zip((8192, 16384), several, strict=True)
    ]
    page = opened(browser, write("accuracy", made), tmp_path)
    assert page.script(CELLS, "errors") == [["kernel", "causal", "full"], [f"{HOSTILE} fwd", "60 %", "10 %"], ["a fwd", "20 %", "40 %"]]
    masks = "return [...document.getElementById('errors-mask').options].map((option) => option.text)"
    assert page.script(masks) == ["causal: 60 %", "full: 40 %"]
    expected = [
        ["kernel", "8K", "16K"],
        [f"{HOSTILE} fwd", "5.0 %\nout 5.0e-5", "60 %\nout 6.0e-4"],
        ["a fwd", "10 %\nout 1.0e-4", "20 %\nout 2.0e-4"],
    ]
    assert page.script(CELLS, "errors-lengths") == expected
    chosen(page, "errors-mask", "full")
    assert [row[0] for row in page.script(CELLS, "errors-lengths")] == ["kernel", "a fwd", f"{HOSTILE} fwd"]
    wrong = kernel("bad", None, "fwd", mask="full", mask_digest="full", status="wrong", reason="failed its check")
    (tmp_path / "again").mkdir()
    page = opened(browser, write("wrong", [*made, wrong]), tmp_path / "again")
    assert page.script(masks) == ["full: wrong", "causal: 60 %"]
    assert page.script(CELLS, "errors-lengths")[1] == ["bad fwd", "W", ""]


def test_preparing_is_three_figures_and_the_most_of_any_mask(write: Write, browser: Browser, tmp_path: Path) -> None:
    times = {"causal": (1.0, 3.0, 23770.0), "full": (2.0, 1.0, 1.0), "sliding_window": (1.0, 2.0, 0.8)}
    made = [
        kernel(name, around(1.0), "fwd", mask=mask, mask_digest=mask, build_ms=build, plan_ms=plan, compile_ms=compiling)
        for mask, (build, plan, compiling) in times.items()
        for name in ("a", "b")
    ]
    page = opened(browser, write("preparing", made), tmp_path)
    charts = page.script("""return [...document.querySelectorAll('#preparing .chart')].map((figure) => {
        const {chart} = figure.querySelector('.plot');
        const values = chart.lines.map((line, i) => [line, chart.points[i][0].value]);
        return [figure.querySelector('figcaption').innerText, Object.fromEntries(values)]; })""")
    assert charts == [
        ["planning for the kernel, ms", {"a": 3, "b": 3}],
        ["first call (compiling), ms", {"a": 23770, "b": 23770}],
        ["making the mask, ms", {"causal": 1, "full": 2, "sliding_window": 1}],
    ]
    hover = (
        "showHover(document.querySelectorAll('#preparing .plot')[1].chart, 0, 0, 0, 0); return document.getElementById('hover').innerText"
    )
    assert "compile_ms 23770" in page.script(hover), "the record that took so long, not any of them"


def test_a_kernel_looks_the_same_in_all_charts_and_settings(write: Write, browser: Browser, tmp_path: Path) -> None:
    dense = [kernel(f"k{number:02}", around(1.0), "fwd", mask=mask) for number in range(13) for mask in ("full", "causal")]
    names = ("k11", "new1", "new2", "new3", "new4")
    params = [{"b": 64, "ratio": ratio, "heads": 8} for ratio in (0.2, 0.5)]
    sparse = [kernel(name, around(2.0), "fwd", level="sparse", mask="uniform_block", params=some) for name in names for some in params]
    page = opened(
        browser,
        [write("kernels", dense), write("sparse", [*sparse, kernel("k05", around(3.0), "fwd", mask="full", env="e", seed=1)])],
        tmp_path,
    )
    read = """const charts = [...document.querySelectorAll('.plot')].map(({chart}) => chart).filter(({ofMasks}) => !ofMasks);
              const look = (style) => `${style.color} ${style.shape}`;
              return Object.fromEntries(charts.flatMap((chart) => chart.lines.map((line) => [line, look(styleOf(chart.look(line)))])))"""
    first = page.script(read)
    page.script("const s = document.getElementById('setting'); s.selectedIndex = 1; s.dispatchEvent(new Event('change'))")
    second = page.script(read)
    assert len(set(first.values())) == 13
    assert second["k11"] == first["k11"]
    ink = page.script("return css('--ink')")
    assert second.pop("k05 on full") == f"{ink} null", "of the dense ones that of this run alone, in no kernel's colour"
    assert set(second) == set(names)
    colours = {look.split()[0] for look in [*second.values(), first["k05"]]}
    assert len(colours) == 6, "who is seen together differs in colour while there are enough"


def test_ranks_of_one_method_share_its_colour(write: Write, browser: Browser, tmp_path: Path) -> None:
    made = [
        make_record([8.0 / ranks], level="cp", method=method, ranks=ranks, grid=f"1x{ranks}", **also)
        for method, ranks, also in product(("ring", "magi"), (2, 4), ({}, {"simulated": "h100-ib"}))
    ]
    page = opened(browser, write("ranks", made), tmp_path)
    looks: dict[str, Any] = page.script("return Object.fromEntries([...LOOKS].map(([name, look]) => [name, styleOf(look)]))")
    for method, other in (("ring", "magi"), ("magi", "ring")):
        own = [look for name, look in looks.items() if name.startswith(f"{method} ")]
        assert len(own) == 6
        assert {look["color"] for look in own} == {looks[f"{method} fa4:bands"]["color"]} != {looks[f"{other} fa4:bands"]["color"]}
        ranks = [looks[f"{method} 1x{ranks} fa4:bands"] for ranks in (2, 4)]
        assert ranks[0]["shape"] != ranks[1]["shape"]


def test_the_headline_calls_kernels_equal_within_three_percent(write: Write, browser: Browser, tmp_path: Path) -> None:
    times = {"causal": (1.0, 1.02, 1.2), "full": (1.0, 1.04, 1.2), "sliding_window": (1.0, 1.01, 1.02)}
    made = [
        kernel(name, around(ms), "fwd", mask=mask, mask_digest=mask, noisy=noisy)
        for mask, several in times.items()
        for name, ms, noisy in zip((HOSTILE, "b", "c"), several, (False, True, False), strict=True)
    ]
    page = opened(browser, write("equal", made), tmp_path)
    rows = {row[0]: (row[3], row[6]) for row in page.script(CELLS, "headline")[1:]}
    assert rows == {
        "causal": (f"{HOSTILE}, b ~ within\xa03\xa0%", "1.20× c"),
        "full": (HOSTILE, "1.040× b ~"),
        "sliding_window": (f"{HOSTILE}, b ~, c within\xa03\xa0%", "no other"),
    }
    assert page.script("return document.querySelectorAll('img').length") == 0


LOG_AXIS = """const {chart} = document.querySelector('#memory-charts .plot'), seen = [];
              const [minima, wide] = arguments, next = (i) => {
                if (i === minima.length) return seen;
                chart.points.flat().forEach((point, j) => { point.value = minima[i] * (1 + j * wide); });
                paint(chart);
                return new Promise((done) => setTimeout(done)).then(() => { seen.push(chart.u.axes[1]._splits); return next(i + 1); });
              };
              return next(0)"""


@pytest.mark.parametrize("wide", [0.0, 40.0])
def test_a_log_axis_may_begin_anywhere(wide: float, write: Write, browser: Browser, tmp_path: Path) -> None:
    """Just below a power of ten, half of the least value once made uPlot add marks until the memory was full."""
    page = opened(browser, write("log", [kernel("fa4:bands", around(1.0), seqlen=1024 * k) for k in (1, 2)]), tmp_path)
    random = np.random.default_rng(0)
    minima = [0.198875, 0.0195, 0.0199, 0.19, *(10 ** random.uniform(-4, 4, 200)).tolist()]
    page.script("document.querySelector('#memory-charts .plot').scrollIntoView()")
    for least, marks in zip(minima, page.script(LOG_AXIS, minima, wide), strict=True):
        assert marks == sorted(set(marks)), least
        assert least / 2 <= marks[0] < marks[-1] <= 2 * least * (1 + wide), "at least two, all on the axis"
    assert page.complaints() == []


def test_what_a_rule_skipped_has_a_word_and_a_letter_of_its_own(write: Write, browser: Browser, tmp_path: Path) -> None:
    made = [kernel(name, around(1.0), "fwd", seqlen=n) for name, n in (("fa3", 1024), ("fa3", 2048), ("plain", 1024))]
    reason = {"status": "unsupported", "reason": "a rule skips it beyond 1024 tokens"}
    made += [kernel("plain", None, "fwd", seqlen=2048, limited=True, **reason), kernel("old", None, "fwd", seqlen=2048, **reason)]
    page = opened(browser, write("limited", made), tmp_path)
    assert "(3 ok, 1 skipped, 1 unsupported)" in text(page, "#about")
    feet = page.script("const {chart} = document.querySelector('#charts .plot'); return feetAt(chart, 1).map(({letter}) => letter)")
    assert feet == ["L"], "who has no time anywhere has no letter"
    assert page.script(CELLS, "heat")[1:] == [["fa3 fwd", "1.1 %"], ["plain fwd", "L"]]
    assert "L plain, fwd: a rule skips it" in text(page, "#charts .words")
    label = page.script("return document.querySelector('#bars-charts .plot').getAttribute('aria-label')")
    assert label.endswith("; without a bar: plain skipped by a rule")
    page.script("const f = document.getElementById('filter'); f.value = 'rule'; f.dispatchEvent(new Event('input'))")
    assert "2 of 5" in text(page, "#shown"), "the reason of the old one says it, too"
    status = page.script("return [...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[4].innerText)")
    assert status == ["skipped", "unsupported"]


def test_shares_are_those_of_the_chosen_length(write: Write, browser: Browser, tmp_path: Path) -> None:
    """A kernel that is fast at short lengths only does not look fast: the longest length that all masks have comes first."""
    made = [
        kernel("cudnn", around(1.0), "fwd", seqlen=n, mask=mask, mfu=mfu, tflops=989 * mfu, mask_digest=mask) for n, mask, mfu in SHARES
    ]
    page = opened(browser, write("shares", made), tmp_path)
    assert page.script("return document.getElementById('peak-length').value") == "2048"
    assert page.script(CELLS, "heat")[1] == ["cudnn fwd", "25 %", "3.0 %"]
    assert text(page, "#peak-note").startswith("At 2K, ")
    chosen(page, "peak-length", "best")
    assert page.script(CELLS, "heat")[1] == ["cudnn fwd", "50 %\n4K", "60 %\n1K"], "the length of each stands below it"
    assert page.complaints() == []


def test_block_patterns_have_shares_by_their_parameters(write: Write, browser: Browser, tmp_path: Path) -> None:
    """The best of several parameters would say nothing about the others."""
    params = {0.5: {"b": 64, "ratio": 0.2, "heads": 8}, 0.25: {"b": 64, "ratio": 0.8, "heads": 8}}
    made = [kernel("flex", around(1.0), "fwd", level="sparse", mask="uniform_block", params=own, mfu=mfu) for mfu, own in params.items()]
    page = opened(browser, write("patterns", made), tmp_path)
    assert [cell.replace("\n", " ") for cell in page.script(CELLS, "heat")[0][1:]] == [f"uniform_block b=64 ratio={r}" for r in (0.2, 0.8)]
    assert page.script(CELLS, "heat")[1] == ["flex fwd", "50 %", "25 %"]


def test_tokens_per_second_are_of_the_entire_sequence(write: Write, browser: Browser, tmp_path: Path) -> None:
    made = [kernel("fa4:bands", [2.0], "fwd", seqlen=1024), kernel("flex", None, "fwd", seqlen=1024, status="oom"), split("usp", 4.0)]
    page = opened(browser, write("tokens", made), tmp_path)
    assert page.script("return [0, 1, 2].map((record) => get(record, 'tokens_s'))") == [512000, None, 8192 / 4 * 1000]
    assert "tokens_s 512000" in page.script("return fieldList(fieldsOf(0)).textContent")
    assert "512000" in text(page, "#table tbody tr")
    assert "tokens_s" in page.script("return csvText(ALL).split('\\n')[0]").split(",")


def test_what_is_wrong_somewhere_has_no_share_on_the_page_in_markdown_or_in_a_figure(
    write: Write, browser: Browser, tmp_path: Path
) -> None:
    made = [kernel(name, around(ms), "fwd", seqlen=256) for name, ms in (("fast", 1.0), ("bad", 2.0))]
    made.append(kernel("bad", None, "fwd", seqlen=128, status="oom"))
    made.append(kernel("bad", None, "fwd", seqlen=512, status="wrong", reason="out is off"))
    for name, peak in (("known", 0.5), ("unknown", None)):
        (tmp_path / f"page-{name}").mkdir()
        folder = write(name, [record | {"mfu": record["tflops"] and peak} for record in made])
        page = opened(browser, folder, tmp_path / f"page-{name}")
        assert page.script(CELLS, "heat")[1:] == [["bad fwd", "W"], ["fast fwd", "50 %" if peak else "100 %"]]
        assert page.script("return document.querySelector('#heat td.mark').title") == "wrong: out is off"
        rows = naming.rows(read(folder))
        assert SECTIONS["Share of peak"]("", rows).rows[0][1:] == ["wrong", "50 %" if peak else "100 %"]
        fastest = None if peak else fastest_speeds(rows)
        assert heat._cell([row for row in rows if row.record.kernel == "bad"], fastest)[1] == "W"


def test_the_page_shows_what_counts(write: Write, browser: Browser, tmp_path: Path) -> None:
    """A kernel whose text changed has another key; its last record counts."""
    mine = {"seqlen": 1024, "which": "fwd"}
    wrong = {"status": "wrong", "reason": "out is off", "check": {"out": {"error": 1.0, "allowed": 0.1}}}
    versions = [kernel("mine", None, **mine) | wrong, kernel("mine", around(4.0), **mine), kernel("mine", around(20.0), **mine)]
    keyed = [record | {"key": f"v{number}"} for number, record in enumerate(versions)]
    page = opened(browser, write("edited", [keyed[0], kernel("fa4:bands", around(10.0), **mine), *keyed[1:]]), tmp_path)
    assert "2.00× mine" in text(page, "#headline")
    assert "W" not in text(page, "#errors tbody")


def test_a_doubtful_record_has_its_letter_and_reason_and_no_rank(write: Write, browser: Browser, tmp_path: Path) -> None:
    fast = kernel("fast", around(0.1), "fwd") | {"check": None}
    page = opened(browser, write("doubtful", [fast, kernel("flex", around(1.0), "fwd")]), tmp_path)
    assert page.script(CELLS, "headline")[1][3:] == ["flex", "11", "1 %", "the only one"]
    assert "D fast, fwd: it has a time but no check (8K)" in text(page, "#charts .words")
    assert "1 doubtful" in text(page, "#about")


@pytest.mark.parametrize("name", ["constructor", "__proto__", "toString"])
def test_names_of_javascript_are_names_like_others(name: str, write: Write, browser: Browser, tmp_path: Path) -> None:
    made = [kernel(one, around(1.0), "fwd", mask=mask, mask_digest=mask) for one in (name, "flex") for mask in (name, "causal")]
    made += [kernel(name, None, "fwd", mask=name, seqlen=1024, status="oom", reason=name)]
    page = opened(browser, write("names", made), tmp_path)
    assert page.complaints() == []
    assert {row[0] for row in page.script(CELLS, "headline")[1:]} == {name, "causal"}
    assert name in text(page, "#legend")


def test_the_headline_is_that_of_markdown_and_of_the_terminal(write: Write, browser: Browser, tmp_path: Path) -> None:
    """Three seeds; the fastest kernel failed on one of them and was not measured on another."""
    times = {"flash": (2.0, 2.0, 2.0), "chunked": (1.0, None), "slow": (4.0, 4.0, 4.0)}
    made = []
    for name, several in times.items():
        for seed, ms in enumerate(several):
            place = {"seed": seed, "mask_digest": str(seed), "mask": "causal_document", "status": "oom" if ms is None else "ok"}
            made.append(kernel(name, None if ms is None else around(ms), "fwd", **place))
    folder = write("verdict", made)
    page = opened(browser, folder, tmp_path)
    results = read(folder)
    rows = naming.rows(results)
    (headline,) = headlines(rows)
    assert page.script(CELLS, "headline")[1] == headline.row
    assert headline.row[3:] == ["flash", "5.5", "1 %", "2.00× slow"]
    assert fastest_tables(rows)[0].rows == [["causal_document", "flash 5.5 (n=3)"]]
    assert " | ".join(headline.row) in render(results, rows, "")
