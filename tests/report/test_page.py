"""The page in a real browser. In CI (CI=true) it must be there; elsewhere these tests are skipped without it."""

import csv
import io
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from journals import Write
from report.browser import Browser
from report.made import FLOPS, Record, around, kernel, make_record
from report.opened import FIRST, PAINT, choose, opened, opened_again, press_button, ready_after, series, settle, text

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>"
PARTS = ("#answer", "#speed", "#closeness", "#board", "#records", "#environment")
CELLS = "return [...document.querySelectorAll(`#${arguments[0]} tr`)].map((row) => [...row.cells].map((cell) => cell.innerText))"
RIGHT, ESCAPE = "\ue014", "\ue00c"
LENGTHS = (1024, 4096, 16384)
SPEED = FLOPS / 1e9  # TFLOP/s in one millisecond
MS = {"fast": 1.0, "mid": 2.0, "slow": 4.0}
ENLARGED = "drawn.get(document.querySelector('#enlarged-chart .plot'))"


def hostile() -> list[Record]:
    made = []
    for mask, seqlen, which in product(("causal", "causal_document"), (8192, 32768), ("fwd", "bwd")):
        place = {"mask": mask, "seqlen": seqlen, "pass": which, "mask_digest": mask}
        made.append(make_record([1.0, 1.1, 1.2], **place))
        made.append(make_record([2.0, 2.2, 2.4], **place, kernel="flex", asked="flex", variant=None))
        made.append(make_record([3.0, 3.1, 3.2], **place, kernel=HOSTILE, asked=HOSTILE, variant=None))
        made.append(make_record(None, **place, kernel="fa2", asked="fa2", status="oom", reason="out of memory: 80 GiB"))
    made[3] = make_record(None, mask="causal", kernel="fa2", asked="fa2", status="wrong", reason="</script><script>alert(2)</script>")
    return made


def grid() -> list[Record]:
    """Eight kernels, two masks, three lengths, both passes."""
    made = []
    names = {**MS, **{f"k{n}": 5.0 + n for n in range(5)}}
    for (name, ms), mask, seqlen, which in product(names.items(), ("full", "causal"), LENGTHS, ("fwd", "bwd")):
        ok = name != "slow" or seqlen < 16384
        place = {"mask": mask, "mask_digest": f"{mask}{seqlen}", "seqlen": seqlen, "joules": 3.0 * ms if ok else None}
        failure = {} if ok else {"status": "unsupported", "reason": "too long"}
        made.append(kernel(name, around(ms * (2 if which == "bwd" else 1)) if ok else None, which, **place, **failure))
    return made


@pytest.fixture
def page(write: Write, browser: Browser, tmp_path: Path) -> Browser:
    return opened(browser, write("made", hostile()), tmp_path)


@pytest.fixture
def charts(write: Write, browser: Browser, tmp_path: Path) -> Browser:
    return opened(browser, write("charts", grid()), tmp_path)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [(1200, 900), (360, 700)], ids=["desktop", "phone"])
def test_every_part_is_drawn_without_a_complaint_or_a_request(page: Browser, size: tuple[int, int], dark: bool) -> None:
    page.resize(*size)
    paper = "return getComputedStyle(document.body).backgroundColor"
    before = page.script(paper)
    if dark:
        page.script("document.getElementById('theme').click()")
    assert (page.script(paper) != before) == dark
    for part in PARTS:
        page.script("document.querySelector(arguments[0]).scrollIntoView()", part)
        assert text(page, part).strip()
    page.script(PAINT)
    inked = """return [...document.querySelectorAll('.plot canvas')].map((canvas) => {
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        let count = 0; for (let i = 3; i < pixels.length; i += 4) count += pixels[i] > 0; return count; })"""
    assert min(page.script(inked)) > 200
    assert page.script("return document.documentElement.scrollWidth") <= size[0]
    assert page.script("return performance.getEntriesByType('resource').length") == 0
    assert page.complaints() == []
    assert "32 records" in text(page, "#about")


def test_the_first_screen_answers(page: Browser) -> None:
    head, *rows = page.script(CELLS, "matrix")
    assert head == ["mask", "8K", "32K"]
    assert [row[0] for row in rows] == ["causal", "causal_document"]
    assert [cell.split("\n") for row in rows for cell in row[1:]] == [["fa4:bands", "10?", "2.00× flex"]] * 4
    assert page.script("return document.querySelector('#matrix tbody td button').getBoundingClientRect().bottom") < 900
    assert "wrong fa2:bands, fwd: </script><script>alert(2)</script>" in text(page, "#failures-list")


def test_a_hostile_name_stays_text(page: Browser) -> None:
    page.script(PAINT)
    page.script("setState({ panel: 'causal' })")
    page.script("showCell(cellsNow().find(({ line }) => line === arguments[0]))", HOSTILE)
    assert page.script("return document.querySelectorAll('img').length") == 0
    for place in ("#legend", "#table", "#receipts-text h3", "#enlarged-table", "#board-table"):
        assert HOSTILE in text(page, place).replace("\n", ""), place
    assert page.complaints() == []


def test_filter_sort_csv_and_the_receipt_of_a_record(page: Browser) -> None:
    fill = "const f = document.getElementById('filter'); f.value = arguments[0]; f.dispatchEvent(new Event('input'))"
    page.script(fill, "flex 32K fwd")
    assert text(page, "#shown") == "2 of 32 records"
    rows = list(csv.DictReader(io.StringIO(page.script("return csvText(view.rows)"))))
    assert [(row["kernel"], row["seqlen"], row["pass"], float(row["ms_median"])) for row in rows] == [("flex", "32768", "fwd", 2.2)] * 2
    page.script(fill, "")
    page.script("[...document.querySelectorAll('#table th button')].find((b) => b.textContent === 'TFLOP/s').click()")
    kernels = page.script("return [...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[0].innerText)")
    assert kernels == ["fa4:bands"] * 8 + ["flex"] * 8 + [HOSTILE] * 8 + ["fa2:bands"] * 8
    page.script("document.querySelector('#table tbody tr').click()")
    words = text(page, "#receipts-text")
    for part in (
        "10 TFLOP/s, 1.1 ms",
        "3 samples",
        "±1.0 %",
        "out 1.00e-4 of 3.00e-4 (33 %)",
        "roofline\nnot known: the journal lacks the mask",
        "1980 MHz, 600 W",
        "target=0.02",
        "driver 580.1",
    ):
        assert part in words, part
    command = "longca run --kernels fa4 --masks causal --seqlens 8K --seed 0 --heads 64:8 --head-dim 128 --dtype bf16 --passes fwd,bwd"
    assert command in text(page, "#receipts pre")
    page.press(ESCAPE)
    assert not page.script("return document.getElementById('receipts').open")


def test_10000_records_load_in_three_seconds(write: Write, browser: Browser, tmp_path: Path) -> None:
    places = product(range(11), [f"k{kernel}" for kernel in range(8)], (8192, 16384, 32768, 65536), ("fwd", "bwd"), range(15))
    many = [
        make_record([1.0 + seed / 100], seed=seed, kernel=kernel, asked=kernel, seqlen=seqlen, mask=f"mask{mask}", **{"pass": which})
        for seed, kernel, seqlen, which, mask in places
    ]
    assert len(many) >= 10000
    page = opened(browser, write("many", many), tmp_path)
    times = [ready_after(page)]
    for _ in range(2):  # the best of three: other tests run beside this one
        page.open(tmp_path / "report.html")
        times.append(ready_after(page))
    assert page.complaints() == []
    assert min(times) < 3000


def test_a_journal_without_any_time_says_why(write: Write, browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, write("failed", [make_record(None, reason="no such device")]), tmp_path)
    assert "error fa4:bands, fwd: no such device" in text(page, "#failures-list")
    assert "Nothing here has a time" in text(page, "#matrix")
    assert page.script("return document.querySelectorAll('#charts .plot').length") == 0
    assert page.complaints() == []


def test_small_multiples_share_one_axis_and_colour_the_best_five(charts: Browser) -> None:
    found = charts.script(
        PAINT
        + """return [...document.querySelectorAll('#charts .plot')].map((place) => { const option = drawn.get(place).getOption();
             return [option.yAxis[0].max, option.xAxis[0].name, option.yAxis[0].name,
                     option.series.filter(({ lineStyle }) => lineStyle.color !== css('--faint')).map(({ name }) => name)]; })"""
    )
    assert found == [[15, "tokens", "TFLOP/s", ["fast", "mid", "k0", "k1", "slow"]]] * 2


SWITCHES: dict[str, tuple[float, float]] = {  # by measure the values of `fast` and `mid` in the forward
    "tflops": (SPEED, SPEED / 2),
    "ms": (1.0, 2.0),
    "speedup": (1.0, 0.5),
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


def test_every_measure_pass_and_scale_can_be_shown(charts: Browser) -> None:
    offered = charts.script("return [...document.getElementById('measure').options].map(({ value }) => value)")
    assert set(offered) == {*SWITCHES}, "the limit needs bands, and waiting needs ranks"
    for measure, (fast, mid) in SWITCHES.items():
        choose(charts, "measure", measure)
        shown = series(charts, "full")
        assert [shown[name][0] for name in ("fast", "mid")] == [[1024, pytest.approx(fast)], [1024, pytest.approx(mid)]], measure
    choose(charts, "measure", "ms")
    for which, factor in (("fwd", 1), ("bwd", 2), ("fwd+bwd", 3)):
        press_button(charts, "pass", which)
        assert series(charts, "causal")["mid"] == [[x, pytest.approx(2.0 * factor)] for x in LENGTHS]
    press_button(charts, "scale", "log")
    assert charts.script(FIRST + "return option.yAxis[0].type") == "log"
    press_button(charts, "chart", "bars")
    choose(charts, "at", "1024")
    assert charts.script(FIRST + "return option.yAxis[0].data.slice(0, 3)") == ["fast", "mid", "slow"]
    assert charts.complaints() == []


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
    assert (modes(charts)["fast"], modes(charts)["k4"]) == ("colour", "grey")
    click_chip(charts, "fast")
    assert modes(charts)["fast"] == "hidden"
    assert "fast" not in series(charts, "full")
    click_chip(charts, "mid", detail=2)
    assert list(series(charts, "full")) == ["mid"]
    for name, expected in (("All", {"colour"}), ("None", {"hidden"}), ("Best five", {"colour", "grey"})):
        click_chip(charts, name)
        assert set(modes(charts).values()) == expected


def test_a_view_is_in_the_address_and_comes_back_from_it(charts: Browser, tmp_path: Path) -> None:
    at_first = charts.script("return JSON.stringify(state)")
    for select, value in (("measure", "speedup"), ("base", "k0"), ("tint", "ahead"), ("board-mode", "error")):
        choose(charts, select, value)
    for group, value in (("pass", "bwd"), ("scale", "log")):
        press_button(charts, group, value)
    click_chip(charts, "mid")
    charts.script("document.getElementById('theme').click()")
    charts.script("document.querySelector('#table th button').click()")
    charts.script("[...document.querySelectorAll('#charts .panel-name')][1].click()")
    charts.script(f"{ENLARGED}.dispatchAction({{ type: 'dataZoom', start: 12.5, end: 60 }})")
    settle(charts)
    view, before = charts.script("return [location.hash, JSON.stringify(state)]")
    opened_again(charts, tmp_path, view)
    assert charts.script("return JSON.stringify(state)") == before
    assert text(charts, "#enlarged-title") == "causal"
    assert charts.script(f"return {ENLARGED}.getOption().dataZoom[0].start") == 12.5
    selects = "return ['measure', 'base', 'tint', 'board-mode'].map((id) => document.getElementById(id).value)"
    assert charts.script(selects) == ["speedup", "k0", "ahead", "error"]
    charts.script("location.hash = ''")
    settle(charts)
    assert charts.script("return JSON.stringify(state)") == at_first
    assert charts.complaints() == []


BAD_VIEWS = (
    "#setting=nothing&pass=up&measure=luck&base=nobody&at=7&panel=none&show=x&hide=y&board=z&section=s",
    "#panel=full&theme=pink&sort=-nothing&spans=x&zoom=80-20",
    "#panel=full&zoom=1.2.3-50",
)


@pytest.mark.parametrize("view", BAD_VIEWS)
def test_an_address_of_another_journal_does_no_harm(charts: Browser, view: str) -> None:
    charts.script("location.hash = arguments[0]", view)
    settle(charts)
    assert text(charts, "#matrix tbody td b") == "fast"
    assert charts.script(f"return {ENLARGED}?.getOption().dataZoom[0].end ?? 100") == 100
    assert charts.complaints() == []


def test_the_keyboard_reads_a_chart_and_an_enlarged_one_has_its_numbers(charts: Browser) -> None:
    charts.script(
        "const place = document.querySelector('#charts .plot'); place.scrollIntoView(); if (!drawn.has(place)) paint(place); place.focus()"
    )
    for _ in LENGTHS:
        charts.press(RIGHT)
    settle(charts)
    words = text(charts, ".tip").splitlines()
    assert words[0] == "full, 16K tokens"
    assert [line.split("\t")[0] for line in words if "\t" in line] == ["fast", "mid", *(f"k{n}" for n in range(5))]
    assert words[-1] == "unsupported: slow"
    charts.script("document.querySelector('#charts .panel-name').click()")
    cells = charts.script(CELLS, "enlarged-table")
    assert cells[0] == ["TFLOP/s", "1K", "4K", "16K"]
    assert ["fast", "11", "11", "11"] in cells
    assert ["slow", "2.75", "2.75", "–"] in cells
    charts.script("[...document.querySelectorAll('#enlarged-table td button')][0].click()")
    assert "fast · full · 1K · forward" in text(charts, "#receipts-text")
    charts.press(ESCAPE)
    charts.press(ESCAPE)
    settle(charts)
    assert "panel" not in charts.script("return location.hash")


def test_block_patterns_stand_over_their_visible_share_beside_the_dense_mask(write: Write, browser: Browser, tmp_path: Path) -> None:
    sparse = [
        make_record([ratio * 4], level="sparse", mask="uniform_block", params={"b": 64, "ratio": ratio, "heads": 8}, mask_digest=str(ratio))
        for ratio in (0.2, 0.8)
    ]
    page = opened(browser, write("sparse", [make_record([2.0], mask="full"), *sparse]), tmp_path)
    choose(page, "measure", "ms")
    assert series(page, "uniform_block b=64") == {
        "fa4:bands": [[0.2, 0.8], [0.8, 3.2]],
        "fa4:bands on full": [[0.2, 2.0], [0.8, 2.0]],
    }
    assert page.complaints() == []


def test_methods_stand_over_gpus_and_simulated_points_are_hollow(write: Write, browser: Browser, tmp_path: Path) -> None:
    split = {"level": "cp", "method": "ring", "imbalance": 1.25, "wait_share": 0.1, "bytes_sent": [1 << 30, 1 << 29], "peak_gib": 3.0}
    made = [make_record([8.0 / n], **split, ranks=n, grid=f"1x{n}", mask_digest="d") for n in (2, 4)]
    made += [make_record([4.0 / n], **split, ranks=n, grid=f"1x{n}", simulated="h100-ib", exposed_share=0.2) for n in (2, 64)]
    page = opened(browser, write("both", made), tmp_path)
    assert {name: [x for x, _ in points] for name, points in series(page, "causal").items()} == {
        "ring fa4:bands": [2, 4],
        "ring fa4:bands, simulated on h100-ib": [2, 64],
    }
    styles = "return option.series.map(({ itemStyle, lineStyle }) => [itemStyle.color === css('--paper'), lineStyle.type])"
    assert page.script(FIRST + styles) == [[False, "solid"], [True, "dotted"]]
    for measure, value in (("imbalance", 1.25), ("sent", 1.0), ("wait", 0.1), ("memory", 3.0)):
        choose(page, "measure", measure)
        assert series(page, "causal")["ring fa4:bands"][0] == [2, value]
    assert [row[0] for row in page.script(CELLS, "matrix")[1:]] == ["causal", "causal, simulated on h100-ib"]
    assert page.complaints() == []
