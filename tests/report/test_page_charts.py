"""The charts of the page, every switch, and the view in the address, in a real browser as test_page.py."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from journals import mask_line
from longca import masks
from report.browser import Browser
from report.made import ENVIRONMENT, FLOPS, Record, around, kernel, make_record
from report.opened import FIRST, choose, opened, opened_again, press_button, series, settle, text

Write = Callable[..., Path]
RIGHT, ESCAPE = "\ue014", "\ue00c"
LENGTHS = (1024, 4096, 16384)
SPEED = FLOPS / 1e9  # TFLOP/s in one millisecond
ENLARGED = "drawn.get(document.querySelector('#enlarged-chart .plot'))"
MS = {"fast": 1.0, "mid": 2.0, "slow": 4.0}


def grid() -> list[Record]:
    """Eight kernels, two masks, three lengths, both passes."""
    made = []
    for (name, ms), mask, seqlen, which in product(
        {**MS, **{f"k{n}": 5.0 + n for n in range(5)}}.items(), ("full", "causal"), LENGTHS, ("fwd", "bwd")
    ):
        ok = name != "slow" or seqlen < 16384
        place = {"mask": mask, "mask_digest": f"{mask}{seqlen}", "seqlen": seqlen, "joules": 3.0 * ms if ok else None}
        failure = {} if ok else {"status": "unsupported", "reason": "too long"}
        made.append(kernel(name, around(ms * (2 if which == "bwd" else 1)) if ok else None, which, **place, **failure))
    return made


@pytest.fixture
def charts(write: Write, browser: Browser, tmp_path: Path) -> Browser:
    return opened(browser, write("charts", grid()), tmp_path)


def test_small_multiples_share_one_axis_and_colour_the_best_five(charts: Browser) -> None:
    found = charts.script(
        """for (const place of [...pending.keys()]) paint(place);
           return [...document.querySelectorAll('#charts .plot')].map((place) => { const option = drawn.get(place).getOption();
             return [option.yAxis[0].max, option.xAxis[0].name, option.yAxis[0].name,
                     option.series.filter(({ lineStyle }) => lineStyle.color !== css('--faint')).map(({ name }) => name)]; })"""
    )
    assert len(found) == 2
    for top, x, y, coloured in found:
        assert (top, x, y) == (15, "tokens", "TFLOP/s")
        assert coloured == ["fast", "mid", "k0", "k1", "slow"]


SWITCHES: dict[str, tuple[float, float]] = {  # by measure the values of `fast` and `mid` in the forward
    "tflops": (SPEED, SPEED / 2),
    "ms": (1.0, 2.0),
    "tokens": (1024e3, 512e3),
    "joules": (3.0, 6.0),
    "memory": (1.5, 1.5),
    "peak": (SPEED / 989, SPEED / 2 / 989),
    "close": (1.0, 0.5),
    "plan": (2.0, 2.0),
    "compile": (900.0, 900.0),
    "build": (0.5, 0.5),
    "error": (1 / 3, 1 / 3),
}


def test_every_measure_can_be_shown(charts: Browser) -> None:
    offered = charts.script("return [...document.getElementById('measure').options].map(({ value }) => value)")
    assert set(offered) == {*SWITCHES, "speedup"}, "the limit needs bands, and waiting needs ranks"
    for measure, (fast, mid) in SWITCHES.items():
        choose(charts, "measure", measure)
        shown = series(charts, "full")
        assert shown["fast"][0] == [1024, pytest.approx(fast, rel=1e-3)], measure
        assert shown["mid"][0] == [1024, pytest.approx(mid, rel=1e-3)], measure
        assert f"measure={measure}" in charts.script("return location.hash") or measure == "tflops"
    assert charts.complaints() == []


def test_speed_up_is_over_the_chosen_kernel(charts: Browser) -> None:
    choose(charts, "measure", "speedup")
    choose(charts, "base", "mid")
    assert {name: points[0][1] for name, points in series(charts, "full").items() if name in MS} == {"fast": 2, "mid": 1, "slow": 0.5}
    assert not charts.script("return document.getElementById('base-label').hidden")


def test_slow_speeds_are_in_gflops(write: Write, browser: Browser, tmp_path: Path) -> None:
    page = opened(
        browser,
        write("cpu", [kernel("torch", around(1.0), "fwd", flops=22_000_000, seqlen=n, mask_digest=str(n)) for n in LENGTHS]),
        tmp_path,
    )
    assert series(page, "causal")["torch"][0] == [1024, 22.0]
    assert text(page, "#matrix tbody td .figure") == "22"
    assert "GFLOP/s" in text(page, "#matrix caption")
    speed = "return [...document.querySelector('#table').rows].slice(0, 2).map((row) => row.cells[5].innerText)"
    assert page.script(speed) == ["GFLOP/s", "22"]
    page.script("document.querySelector('.answer').click()")
    assert text(page, "#receipts dd").startswith("22 GFLOP/s, 1 ms")
    page.script("document.getElementById('receipts').close()")


def test_of_two_devices_each_speed_has_its_unit(write: Write, browser: Browser, tmp_path: Path) -> None:
    cpu = write("cpu", [kernel("torch", around(1.0), "fwd", flops=22_000_000, env="c")])
    (cpu / "env.json").write_text(json.dumps({"c": ENVIRONMENT | {"device": "Some CPU", "device_kind": "cpu"}}))
    page = opened(browser, [cpu, write("gpu", [kernel("fa4:bands", around(1.0), "fwd")])], tmp_path)
    heads = page.script("return [...document.querySelectorAll('#table th')].map((head) => head.innerText)")
    speeds = page.script(
        "return [...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[arguments[0]].innerText)", heads.index("speed")
    )
    assert sorted(speeds) == ["11 TFLOP/s", "22 GFLOP/s"]
    page.script("showReceipts(ALL)")
    shown = page.script("return [...document.querySelectorAll('#receipts dl')].map((list) => list.querySelector('dd').innerText)")
    assert sorted(line.partition(",")[0] for line in shown) == sorted(speeds)
    page.script("document.getElementById('receipts').close()")


def test_each_setting_shows_its_own_longest_mask(write: Write, browser: Browser, tmp_path: Path) -> None:
    """Two head counts at two lengths: the picture of the longer mask does not stand beside the shorter one."""
    drawn = {n: masks.build("causal_document", n, seed=0) for n in (1024, 4096)}
    fields = {"mask": "causal_document"}
    made = [kernel("fa4", around(1.0), "fwd", heads_q=n // 64, seqlen=n, mask_digest=mask.digest, **fields) for n, mask in drawn.items()]
    folder = write("lengths", made)
    (folder / "masks.jsonl").write_text("".join(map(mask_line, drawn.values())))
    page = opened(browser, folder, tmp_path)
    for number, mask in enumerate(drawn.values()):
        choose(page, "setting", page.script("return DATA.settings[arguments[0]].title", number))
        title = page.script("return document.querySelector('#charts .panel-name').title")
        assert title.startswith(f"{100 * mask.density:.1f} % visible at {('1K', '4K')[number]}")


def test_passes_are_switched_and_both_is_their_sum(charts: Browser) -> None:
    choose(charts, "measure", "ms")
    for which, factor in (("fwd", 1), ("bwd", 2), ("fwd+bwd", 3)):
        press_button(charts, "pass", which)
        assert series(charts, "causal")["mid"] == [[x, pytest.approx(2.0 * factor, rel=1e-3)] for x in LENGTHS]
        assert text(charts, "#matrix tbody td b") == "fast"
    choose(charts, "measure", "joules")
    assert series(charts, "causal")["fast"][0][1] == 6.0


def test_scale_and_kind_of_chart(charts: Browser) -> None:
    axis = FIRST + "return option.yAxis[0].type"
    assert charts.script(axis) == "value"
    press_button(charts, "scale", "log")
    assert charts.script(axis) == "log"
    press_button(charts, "chart", "bars")
    assert charts.script("return document.getElementById('at').value") == "16384"
    bars = FIRST + """return option.yAxis[0].data.map((name, i) => [name, option.series[0].data[i].value])"""
    shown = charts.script(bars)
    assert [name for name, _ in shown[:3]] == ["fast", "mid", "k0"], "slow is unsupported there"
    choose(charts, "at", "1024")
    assert charts.script(bars)[2] == ["slow", pytest.approx(SPEED / 4, rel=1e-3)]
    assert charts.complaints() == []


def test_one_length_alone_makes_bars(write: Write, browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, write("one", [record for record in grid() if record["seqlen"] == 1024]), tmp_path)
    assert page.script(FIRST + "return option.series.map(({ type }) => type)") == ["bar"]
    assert page.script("return document.getElementById('chart').hidden")


def modes(page: Browser) -> dict[str, str]:
    chips = page.script("return [...document.querySelectorAll('#legend .chip:not(.all)')].map((chip) => [chip.innerText, chip.className])")
    return {name: classes.split()[1] for name, classes in chips}


def click_chip(page: Browser, name: str, **event: Any) -> None:
    page.script(
        """const chip = [...document.querySelectorAll('#legend .chip')].find(({ innerText }) => innerText === arguments[0]);
           chip.dispatchEvent(new MouseEvent('click', { bubbles: true, ...arguments[1] }))""",
        name,
        event,
    )


def test_the_legend_hides_shows_and_isolates(charts: Browser) -> None:
    assert modes(charts)["fast"] == "colour"
    assert modes(charts)["k4"] == "grey"
    click_chip(charts, "fast")
    assert modes(charts)["fast"] == "hidden"
    curve = "[...document.querySelectorAll('#curve-legend .chip')].find(({ innerText }) => innerText === 'fast')"
    assert "hidden" in charts.script(f"return {curve}.className"), "the curves have the same legend"
    assert "fast" not in series(charts, "full")
    click_chip(charts, "k4")
    assert modes(charts)["k4"] == "colour"
    click_chip(charts, "mid", detail=2)
    assert {name for name, mode in modes(charts).items() if mode != "hidden"} == {"mid"}
    assert list(series(charts, "full")) == ["mid"]
    click_chip(charts, "mid", shiftKey=True)
    assert modes(charts)["fast"] == "colour"
    for name, expected in (("All", {"colour"}), ("None", {"hidden"}), ("Best five", {"colour", "grey"})):
        click_chip(charts, name)
        assert set(modes(charts).values()) == expected
    assert charts.complaints() == []


def test_a_view_is_in_the_address_and_comes_back_from_it(charts: Browser, tmp_path: Path) -> None:
    for select, value in (("measure", "speedup"), ("base", "k0"), ("tint", "ahead"), ("board-mode", "error")):
        choose(charts, select, value)
    for group, value in (("pass", "bwd"), ("scale", "log")):
        press_button(charts, group, value)
    click_chip(charts, "mid")
    charts.script("[...document.querySelectorAll('#charts .panel-name')][1].click()")
    view = charts.script("return location.hash")
    before = charts.script("return JSON.stringify(state)")
    opened_again(charts, tmp_path, view)
    assert charts.script("return JSON.stringify(state)") == before
    assert charts.script("return document.getElementById('enlarged').open")
    assert text(charts, "#enlarged-title") == "causal"
    selects = "return ['measure', 'base', 'tint', 'board-mode'].map((id) => document.getElementById(id).value)"
    assert charts.script(selects) == ["speedup", "k0", "ahead", "error"]
    assert modes(charts)["mid"] == "hidden"
    charts.script("location.hash = '#pass=fwd'")
    settle(charts)
    assert charts.script("return [state.measure, state.pass, state.panel]") == ["tflops", "fwd", ""]
    assert charts.complaints() == []


def look(page: Browser) -> dict[str, Any]:
    """The theme, the sorting of the table and the zoom of the enlarged chart as a reader sees them."""
    sorting = """const heads = [...document.querySelectorAll('#table th')], at = heads.findIndex((head) => head.hasAttribute('aria-sort'));
                 const rows = [...document.querySelectorAll('#table tbody tr')];
                 return at < 0 ? null : [heads[at].innerText, heads[at].ariaSort, rows.map((row) => row.cells[at].innerText)]"""
    zoom = f"return {ENLARGED}?.getOption().dataZoom.map(({{ start, end }}) => [start, end])"
    paper = "return getComputedStyle(document.body).backgroundColor"
    return {"paper": page.script(paper), "sorting": page.script(sorting), "zoom": page.script(zoom)}


def test_theme_sorting_and_zoom_are_in_the_address_and_come_back_from_it(charts: Browser, tmp_path: Path) -> None:
    at_first = look(charts)
    charts.script("document.getElementById('theme').click()")
    sort = "[...document.querySelectorAll('#table th button')].find((head) => head.innerText.startsWith(arguments[0])).click()"
    charts.script(sort, "ms")
    assert look(charts)["sorting"][:2] == ["ms ▼", "descending"]
    charts.script(sort, "ms")
    charts.script("setState({ panel: 'causal' })")
    charts.script(f"{ENLARGED}.dispatchAction({{ type: 'dataZoom', start: 12.5, end: 60 }})")
    settle(charts)
    chosen = look(charts)
    head, order, times = chosen["sorting"]
    assert (head, order) == ("ms ▲", "ascending")
    measured = [float(ms) for ms in times if ms]
    assert measured == sorted(measured)
    assert times[len(measured) :] == [""] * 4, "records without a time come last"
    assert chosen["zoom"] == [[12.5, 60], [12.5, 60]]
    assert chosen["paper"] != at_first["paper"]
    view = charts.script("return location.hash")
    assert set(view[1:].split("&")) == {"theme=dark", "sort=ms_median", "zoom=12.5-60", "panel=causal"}
    opened_again(charts, tmp_path, view)
    assert look(charts) == chosen
    press_button(charts, "scale", "log")
    assert look(charts) == chosen, "a chart that is drawn again keeps its zoom"
    charts.script("location.hash = ''")
    settle(charts)
    assert look(charts) == at_first
    assert charts.complaints() == []


def test_the_numbers_of_an_enlarged_chart_say_that_they_go_on_to_the_right(charts: Browser) -> None:
    charts.script("setState({ panel: 'causal' })")
    more = "return document.getElementById('enlarged-table').classList.contains('more')"
    assert not charts.script(more)
    charts.script("setState({ panel: '' })")
    charts.resize(200, 844)
    charts.script("setState({ panel: 'causal' })")
    assert charts.script(more)
    charts.script("document.getElementById('enlarged-table').scrollLeft = 1e4")
    settle(charts)
    assert not charts.script(more)


def test_a_closed_chart_forgets_its_zoom(charts: Browser) -> None:
    charts.script("setState({ panel: 'causal', zoom: '25-75' })")
    charts.script("document.getElementById('enlarged').close()")
    settle(charts)
    assert charts.script("return location.hash") == ""
    charts.script("setState({ panel: 'full' })")
    assert look(charts)["zoom"] == [[0, 100], [0, 100]]


@pytest.mark.parametrize("zoom", ["80-20", "-5-50", "0-101", "1.2.3-50", "50-50", "all", "0-100"])
def test_a_bad_theme_sorting_or_zoom_is_ignored(charts: Browser, zoom: str) -> None:
    at_first = look(charts)
    charts.script("location.hash = arguments[0]", f"#panel=full&theme=pink&sort=-nothing&spans=x&zoom={zoom}")
    settle(charts)
    assert look(charts) == at_first | {"zoom": [[0, 100], [0, 100]]}
    assert charts.complaints() == []


def test_an_address_of_another_journal_does_no_harm(charts: Browser) -> None:
    charts.script("location.hash = '#setting=nothing&pass=up&measure=luck&base=nobody&at=7&panel=none&show=x&hide=y&board=z&section=s'")
    settle(charts)
    assert text(charts, "#matrix tbody td b") == "fast"
    assert series(charts, "full")
    assert charts.complaints() == []


def test_one_tooltip_has_all_kernels_the_fastest_first_and_those_without_a_time(charts: Browser) -> None:
    box = charts.script(
        """const place = document.querySelector('#charts .plot');
           place.scrollIntoView({ block: 'center' });
           if (!drawn.has(place)) paint(place);
           const [x, y] = drawn.get(place).convertToPixel({ gridIndex: 0 }, [16384, 5]), { left, top } = place.getBoundingClientRect();
           return [left + x, top + y]"""
    )
    charts.point_at(*box)
    read = (
        """return new Promise((done) => setTimeout(() => done([...document.querySelectorAll('.tip')].map((tip) => tip.innerText)), 300))"""
    )
    (words,) = charts.script(read)
    assert words.splitlines()[0] == "full, 16K tokens"
    names = [line.split("\t")[0] for line in words.splitlines() if "\t" in line]
    assert names == ["fast", "mid", *(f"k{n}" for n in range(5))]
    assert "11 TFLOP/s" in words
    assert words.splitlines()[-1] == "unsupported: slow"


def test_the_keyboard_reads_a_chart_too(charts: Browser) -> None:
    charts.script(
        "const place = document.querySelector('#charts .plot'); place.scrollIntoView(); if (!drawn.has(place)) paint(place); place.focus()"
    )
    charts.press(RIGHT)
    shown = "return new Promise((done) => setTimeout(() => done(document.querySelector('.tip')?.innerText.split('\\n')[0]), 200))"
    assert charts.script(shown) == "full, 1K tokens"
    charts.press(RIGHT)
    assert charts.script(shown) == "full, 4K tokens"
    visible = """return new Promise((done) => setTimeout(() => done([...document.querySelectorAll('.tip')]
                 .filter((tip) => tip.checkVisibility({ visibilityProperty: true })).map((tip) => tip.innerText.split('\\n')[0])), 300))"""
    charts.script("document.activeElement.blur()")
    assert charts.script(visible) == [], "leaving a chart hides its tooltip"
    charts.script(
        "const place = document.getElementById('curve'); place.scrollIntoView(); if (!drawn.has(place)) paint(place); place.focus()"
    )
    charts.press(RIGHT)
    charts.press(RIGHT)
    assert charts.script(visible) == ["at least 52 % of the fastest speed in"]
    label = charts.script("return document.querySelector('#charts .plot').getAttribute('aria-label')")
    assert "full, 16K: fast, 11 TFLOP/s; 2.00× the speed of mid" in label


def test_an_enlarged_chart_has_zoom_an_image_and_its_numbers(charts: Browser) -> None:
    charts.script("document.querySelector('#charts .panel-name').click()")
    assert charts.script("return document.getElementById('enlarged').open")
    cells = charts.script(
        "return [...document.querySelectorAll('#enlarged-table tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    assert cells[0] == ["TFLOP/s", "1K", "4K", "16K"]
    assert ["fast", "11", "11", "11"] in cells
    assert ["slow", "2.75", "2.75", "–"] in cells
    option = "return drawn.get(document.querySelector('#enlarged-chart .plot')).getOption()"
    zoom = option + ".dataZoom.map(({ type, end }) => [type, Math.round(end)])"
    assert charts.script(zoom) == [["inside", 100], ["slider", 100]]
    charts.script("drawn.get(document.querySelector('#enlarged-chart .plot')).dispatchAction({ type: 'dataZoom', start: 0, end: 50 })")
    assert charts.script(zoom)[0] == ["inside", 50]
    press = "[...document.querySelectorAll('#enlarged-tools button')].find(({ innerText }) => innerText === arguments[0]).click()"
    charts.script(press, "Reset zoom")
    assert charts.script(zoom)[0] == ["inside", 100]
    saved = charts.script(
        f"""let saved; const links = HTMLAnchorElement.prototype, {{ click }} = links;
            links.click = function () {{ saved = [this.download, this.href.slice(0, 22)]; }};
            {press.replace("arguments[0]", "'Download image'")};
            links.click = click; return saved"""
    )
    assert saved == ["full_fwd_tflops.png", "data:image/png;base64,"]
    charts.script(press, "Next mask ›")
    assert text(charts, "#enlarged-title") == "causal"
    charts.script("[...document.querySelectorAll('#enlarged-table td button')][0].click()")
    assert "fast · causal · 1K · forward" in text(charts, "#receipts-text")
    charts.press(ESCAPE)
    charts.press(ESCAPE)
    assert not charts.script("return document.getElementById('enlarged').open")
    assert "panel" not in charts.script("return location.hash")


def test_block_patterns_stand_over_their_visible_share_beside_the_dense_mask(write: Write, browser: Browser, tmp_path: Path) -> None:
    """The page opens on the patterns, not on the dense mask that was measured only to be compared with."""
    sparse = [
        make_record(
            [ratio * b / 16], level="sparse", mask="uniform_block", params={"b": b, "ratio": ratio, "heads": 8}, mask_digest=f"{b}{ratio}"
        )
        for b in (64, 128)
        for ratio in (0.2, 0.8)
    ]
    dense = [make_record([2.0], mask="full")]
    page = opened(browser, write("sparse", dense + sparse), tmp_path)
    assert "sparse" in page.script("return document.getElementById('setting').value")
    assert page.script("return [...document.querySelectorAll('#matrix thead th')].map((cell) => cell.innerText)") == [
        "mask",
        "20 %",
        "80 %",
    ]
    choose(page, "measure", "ms")
    for b in (64, 128):
        assert series(page, f"uniform_block b={b}") == {
            "fa4:bands": [[0.2, 0.2 * b / 16], [0.8, 0.8 * b / 16]],
            "fa4:bands on full": [[0.2, 2.0], [0.8, 2.0]],
        }
    assert page.complaints() == []


def test_methods_stand_over_gpus_and_simulated_points_are_hollow(write: Write, browser: Browser, tmp_path: Path) -> None:
    split = {"level": "cp", "method": "ring", "imbalance": 1.25, "wait_share": 0.1, "bytes_sent": [1 << 30, 1 << 29], "peak_gib": 3.0}
    measured = [make_record([8.0 / n], **split, ranks=n, grid=f"1x{n}", mask_digest="d", seqlen=8192) for n in (2, 4)]
    also = [
        make_record([4.0 / n], **split, ranks=n, grid=f"1x{n}", simulated="h100-ib", exposed_share=0.2, hidden_share=0.75) for n in (2, 64)
    ]
    page = opened(browser, write("both", measured + also), tmp_path)
    shown = series(page, "causal")
    assert {name: [x for x, _ in points] for name, points in shown.items()} == {
        "ring fa4:bands": [2, 4],
        "ring fa4:bands, simulated on h100-ib": [2, 64],
    }
    styles = "return option.series.map(({ itemStyle, lineStyle }) => [itemStyle.color === css('--paper'), lineStyle.type])"
    hollow = page.script(FIRST + styles)
    assert hollow == [[False, "solid"], [True, "dotted"]]
    offered = page.script("return [...document.getElementById('measure').options].map(({ value }) => value)")
    assert {"wait", "exposed", "hidden", "imbalance", "sent", "memory"} <= set(offered)
    for measure, value in (("imbalance", 1.25), ("sent", 1.0), ("wait", 0.1), ("memory", 3.0)):
        choose(page, "measure", measure)
        assert series(page, "causal")["ring fa4:bands"][0] == [2, value]
    rows = page.script("return [...document.querySelectorAll('#matrix tbody th')].map((cell) => cell.innerText)")
    assert rows == ["causal", "causal, simulated on h100-ib"], "what was simulated is never compared with what was measured"
    page.script("showCell(cellsNow().find(({ line, x }) => line.includes('simulated') && x === 64))")
    assert "Simulated on h100-ib, not measured." in text(page, "#receipts-text")
    assert page.complaints() == []


def test_a_kernel_has_one_colour_in_all_charts_and_settings(write: Write, browser: Browser, tmp_path: Path) -> None:
    dense = [kernel(f"k{number:02}", around(1.0), "fwd", mask=mask) for number in range(13) for mask in ("full", "causal")]
    names = ("k11", "new1", "new2", "new3", "new4")
    params = [{"b": 64, "ratio": ratio, "heads": 8} for ratio in (0.2, 0.5)]
    sparse = [kernel(name, around(2.0), "fwd", level="sparse", mask="uniform_block", params=some) for name in names for some in params]
    page = opened(browser, [write("kernels", dense), write("sparse", sparse)], tmp_path)
    read = "return Object.fromEntries(orderedLines().map((name) => [name, Object.values(lookOf(name)).slice(0, 2).join(' ')]))"
    first = page.script(read)
    page.script("const s = document.getElementById('setting'); s.selectedIndex = 1; s.dispatchEvent(new Event('change'))")
    second = page.script(read)
    assert len(set(first.values())) == 13
    assert second["k11"] == first["k11"]
    assert set(second) == set(names)
    assert len({look.split()[0] for look in second.values()}) == 5, "who is seen together differs in colour while there are enough"


def test_ranks_of_one_method_share_its_colour(write: Write, browser: Browser, tmp_path: Path) -> None:
    made = [
        make_record([8.0 / ranks], level="cp", method=method, ranks=ranks, grid=f"1x{ranks}", **also)
        for method, ranks, also in product(("ring", "magi"), (2, 4), ({}, {"simulated": "h100-ib"}))
    ]
    page = opened(browser, write("ranks", made), tmp_path)
    looks: dict[str, Any] = page.script("return Object.fromEntries([...LOOKS.keys()].map((name) => [name, lookOf(name)]))")
    for method, other in (("ring", "magi"), ("magi", "ring")):
        own = [look for name, look in looks.items() if name.startswith(f"{method} ")]
        assert len(own) == 6
        assert {look["colour"] for look in own} == {looks[f"{method} fa4:bands"]["colour"]} != {looks[f"{other} fa4:bands"]["colour"]}
