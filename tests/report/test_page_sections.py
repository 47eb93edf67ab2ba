"""What single sections of the page say, in a real browser as test_page.py."""

import json
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from longca import masks
from longca.cli import main
from longca.kernels import registry
from longca.report.figures import heat
from longca.report.markdown import SECTIONS, render
from longca.report.terminal import fastest_tables
from longca.results import naming
from longca.results.export import to_markdown
from longca.results.reading import read
from longca.results.shares import fastest_speeds
from longca.results.statuses import Coverage
from longca.results.summary import headlines
from longca.results.tables import TFLOPS
from report.browser import Browser
from report.made import around, kernel, make_record, split
from report.opened import PAINT, choose, opened, opened_again, press_button, settle, text

Write = Callable[..., Path]
HOSTILE = "<img src=x onerror=alert(1)>"
CELLS = "return [...document.querySelectorAll(`#${arguments[0]} tr`)].map((row) => [...row.cells].map((cell) => cell.innerText))"
SHARES = ((1024, "full", 0.3), (2048, "full", 0.25), (4096, "full", 0.5), (1024, "causal", 0.6), (2048, "causal", 0.03))


def answers(page: Browser) -> dict[str, list[str]]:
    """By mask the lines of its cell in the first table, of pages with one length."""
    return {row[0]: row[1].split("\n") for row in page.script(CELLS, "matrix")[1:]}


def test_the_first_table_calls_kernels_equal_within_three_percent(write: Write, browser: Browser, tmp_path: Path) -> None:
    times = {"causal": (1.0, 1.02, 1.2), "full": (1.0, 1.04, 1.2), "sliding_window": (1.0, 1.01, 1.02)}
    made = [
        kernel(name, around(ms), "fwd", mask=mask, mask_digest=mask, noisy=noisy)
        for mask, several in times.items()
        for name, ms, noisy in zip((HOSTILE, "b", "c"), several, (False, True, False), strict=True)
    ]
    page = opened(browser, write("equal", made), tmp_path)
    found = answers(page)
    assert (found["causal"][:2], found["causal"][-1]) == ([HOSTILE, "11~"], "= b")
    assert (found["full"][:2], found["full"][-1]) == ([HOSTILE, "11"], "1.040× b")
    assert (found["sliding_window"][:2], found["sliding_window"][-1]) == ([HOSTILE, "11~"], "= 2 others")
    title = page.script("return document.querySelector('.answer').title")
    assert title == f"causal, 8K: {HOSTILE}, as fast: b, 11 TFLOP/s; 1.20× the speed of c."
    assert page.script("return document.querySelectorAll('img').length") == 0


@pytest.mark.parametrize("width", [1320, 1000, 390])
def test_names_and_figures_of_twelve_lengths_fit_their_cells(write: Write, browser: Browser, tmp_path: Path, width: int) -> None:
    """The longest name of a kernel, with the widest figures: a noisy speed and a share of three digits."""
    lengths = [1024 * n for n in (1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128)]
    digests = {"causal": masks.build("causal", 8192).digest, "full": "full"}  # a journal made by `write` has the first of these masks
    made = [
        kernel("cudnn_flex:documents", [11 / 666] * 6, "fwd", mask=mask, seqlen=n, mask_digest=digest, noisy=True)
        for (mask, digest), n in product(digests.items(), lengths)
    ]
    page = opened(browser, write("narrow", made), tmp_path)
    page.resize(width, 900)
    settle(page)
    (cells,) = (row[1:] for row in page.script(CELLS, "matrix") if row[0] == "causal")
    assert len(cells) == len(lengths)
    assert cells[-1].split("\n")[:3] == ["cudnn_flex:documents", "666~", "102 %"]
    cut = """return [...document.querySelectorAll('.answer b, .figures, .figures small')]
               .filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.innerText)"""
    assert page.script(cut) == []


def test_the_first_table_has_the_answer_of_markdown_and_of_the_terminal(write: Write, browser: Browser, tmp_path: Path) -> None:
    """Three seeds; the fastest kernel failed on one of them and was not measured on another."""
    times = {"flash": (2.0, 2.5, 1.76), "chunked": (1.0, None), "slow": (4.0, 4.0, 4.0)}
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
    assert headline.cells(TFLOPS)[3:] == ["flash", "5.27 (4.4 to 6.25)", "1 %", "1.92× slow"]
    assert answers(page) == {"causal_document": ["flash", "5.27", "4.4 to 6.25", "1.92× slow"]}
    page.script("document.querySelector('.answer').click()")
    assert "flash, 5.27 TFLOP/s (over 3 seeds, 4.4 to 6.25); 1.92× the speed of slow." in text(page, "#receipts-text")
    spreads = """const flash = cellsNow().find(({ line }) => line === 'flash');
                 return ['tflops', 'ms'].map((key) => spreadOf(MEASURES.find((measure) => measure.key === key), flash))"""
    assert page.script(spreads) == [[pytest.approx(4.4, rel=1e-3), pytest.approx(6.25, rel=1e-3)], [1.76, 2.5]]
    assert fastest_tables(rows)[0].rows == [["causal_document", "flash 5.27 (n=3)"]]
    assert " | ".join(headline.cells(TFLOPS)) in render(results, rows, "")


def test_speeds_of_several_seeds_are_of_the_masks_on_which_kernels_are_compared(write: Write, browser: Browser, tmp_path: Path) -> None:
    """`wide` has more seeds than the others, `few` fewer, and `apart` another one."""
    seeds = {"flash": {0: 2.0, 1: 2.5, 2: 1.76}, "slow": {0: 4.0, 1: 4.0, 2: 4.0}, "few": {1: 5.5}, "apart": {9: 1.0}}
    seeds["wide"] = {0: 3.0, 1: 3.1, 2: 3.2, 3: 50.0, 4: 60.0}
    made = [
        kernel(name, around(ms), "fwd", seed=seed, mask_digest=str(seed), mask="causal_document")
        for name, times in seeds.items()
        for seed, ms in times.items()
    ]
    folder = write("seeds", made)
    page = opened(browser, folder, tmp_path)
    cells = {line: own for line, *own in page.script("return cellsNow().map((cell) => [cell.line, cell.masks, cell.compared, cell.ms])")}
    assert cells == {"flash": [3, 3, 2.0867], "slow": [3, 3, 4.0], "wide": [3, 3, 3.1], "few": [1, 3, 5.5], "apart": [1, 0, 1.0]}
    exported = to_markdown(read(folder))
    assert all(words in exported for words in ("3.55 (n=3)", "2 (n=1 of 3)", "11 (other masks)")), exported

    def note(line: str) -> str:
        page.script("showCell(cellsNow().find((cell) => cell.line === arguments[0]))", line)
        return text(page, "#receipts-text").split("\n")[0]

    assert note("wide").endswith("(3.44 to 3.67); this is the record nearest to it.")
    assert note("few") == "It was measured on 1 of the 3 masks (seeds) on which kernels are compared."
    assert note("apart") == "Other kernels are compared on other masks (seeds)."


def test_masks_with_the_most_lengths_come_first(write: Write, browser: Browser, tmp_path: Path) -> None:
    """Documents of another distribution, of a journal that is read first, have few."""
    made = [kernel("flash", around(2.0), "fwd", mask="causal_document", mask_digest="c", given={"distribution": "chatqa2"})]
    made += [
        kernel("flash", around(2.0), "fwd", mask=mask, seqlen=n, mask_digest=f"{mask}{n}")
        for mask in ("full", "causal_document")
        for n in (4096, 8192)
    ]
    page = opened(browser, write("order", made), tmp_path)
    assert page.script("return setting().panels.map(([panel]) => panel)") == ["full", "causal_document", "causal_document chatqa2"]


def test_where_nothing_is_compared_no_masks_are_others(write: Write, browser: Browser, tmp_path: Path) -> None:
    """The only kernel failed on one of three seeds."""
    place = {"mask": "causal_document"}
    made = [kernel("flash", around(2.0), "fwd", seed=seed, mask_digest=str(seed), **place) for seed in (0, 1)]
    made.append(kernel("flash", None, "fwd", seed=2, mask_digest="2", status="oom", **place))
    folder = write("alone", made)
    page = opened(browser, folder, tmp_path)
    assert page.script("return cellsNow().map((cell) => [cell.masks, cell.compared])") == [[2, 2]]
    assert "5.5 (n=2 of 3)" in to_markdown(read(folder))


def test_the_share_of_the_limit_stands_beside_the_speed(write: Write, browser: Browser, tmp_path: Path) -> None:
    """The limit of a causal mask: its area over that of the tiles it touches (16 tokens of 8 heads, 128 keys), times the dense speed."""
    digest = masks.build("causal", 8192).digest
    made = [kernel("fa3", around(1.0), "fwd", mask="full", mask_digest="full"), kernel("fa3", around(2.0), "fwd", mask_digest=digest)]
    page = opened(browser, write("limit", made), tmp_path)
    touched = sum(16 * min(8192, 128 * ((16 * row + 15) // 128 + 1)) for row in range(8192 // 16))
    limit = masks.build("causal", 8192).area / touched
    entry = page.script("return setting().matrix.find(({ panel }) => panel === 'causal').limit")
    assert entry == pytest.approx(0.5 / limit, rel=1e-3)
    assert answers(page)["causal"][2] == f"{100 * 0.5 / limit:.0f} %"


def test_a_mask_that_is_another_one_at_some_length_says_so(write: Write, browser: Browser, tmp_path: Path) -> None:
    """A window as long as the sequence hides nothing: every kernel of the full mask runs there, and none of them can do windows."""
    made = []
    for seqlen, name in product((1024, 2048), ("full", "sliding_window")):
        mask = masks.build(name, seqlen, **({"w": 1024} if name != "full" else {}))
        place = {"mask": name, "params": mask.params, "seqlen": seqlen, "mask_digest": mask.digest}
        able = name == "full" or seqlen == 1024
        about = {"kernel": "fa3", "asked": "fa3", "variant": None}
        made.append(make_record([1.0] if able else None, **place, **about, status="ok" if able else "unsupported", reason="no windows"))
        made.append(make_record([4.0], **place, kernel="flex", asked="flex", variant=None))
    page = opened(browser, write("degenerate", made), tmp_path)
    assert page.script(CELLS, "matrix")[2][1].split("\n")[2] == "as full"
    states = dict(
        page.script(
            "return [...document.querySelectorAll('#board-table tbody tr')].map((row) => [row.cells[0].innerText, row.cells[2].className])"
        )
    )
    assert states == {"fa3": "state unsupported", "flex": "state measured"}, "a time of fa3 at 1K says nothing about windows"
    choose(page, "board-mode", "peak")
    choose(page, "board-place", "1024")
    assert [row[2] for row in page.script(CELLS, "board-table")[1:]] == ["= full", "= full"]
    page.script("showCell(cellsNow().find(({ panel, x, line }) => panel === 'sliding_window' && x === 1024 && line === 'fa3'))")
    assert "At this length the mask sliding_window is the same as full." in text(page, "#receipts-text")


def test_the_board_says_what_became_of_every_kernel_on_every_mask(write: Write, browser: Browser, tmp_path: Path) -> None:
    made = [
        kernel("good", around(1.0), "fwd", mask=mask, seqlen=n, mask_digest=f"{mask}{n}")
        for mask in ("full", "causal")
        for n in (1024, 2048)
    ]
    statuses = {"wrong": "wrong", "grey": "unsupported", "rule": "skipped", "big": "oom"}
    made += [kernel(name, None, "fwd", mask="full", seqlen=1024, status=status, reason=status) for name, status in statuses.items()]
    made += [
        kernel("some", around(2.0), "fwd", mask="full", seqlen=1024),
        kernel("some", None, "fwd", mask="full", seqlen=2048, status="oom"),
    ]
    made += [kernel("wrong", around(9.0), "fwd", mask="full", seqlen=2048)]
    made += [kernel("model", around(3.0), "fwd", mask="full", seqlen=1024, simulated="h100-ib")]
    made += [
        kernel("half", around(4.0), "fwd", mask="full", seqlen=1024, simulated="h100-ib"),
        kernel("half", None, "fwd", mask="full", seqlen=2048, simulated="h100-ib", status="unsupported"),
    ]
    page = opened(browser, write("board", made), tmp_path)
    found = page.script(
        "return [...document.querySelectorAll('#board-table tbody tr')].map((row) =>"
        " [row.cells[0].innerText, row.cells[1].className, row.cells[2].className])"
    )
    states = {name: (first.removeprefix("state "), second.removeprefix("state ")) for name, first, second in found}
    assert states == {
        "good": ("measured", "measured"),
        "some": ("measured-in-part", "not-run"),
        "wrong": ("wrong", "not-run"),
        "grey": ("unsupported", "not-run"),
        "rule": ("not-run", "not-run"),
        "big": ("failed", "not-run"),
        "model, simulated on h100-ib": ("simulated", "not-run"),
        "half, simulated on h100-ib": ("simulated-in-part", "not-run"),
    }
    colour = "return getComputedStyle(document.querySelector('td.state.unsupported')).backgroundColor"
    parts = [float(part) for part in re.findall(r"[\d.]+", page.script(colour))[:3]]
    assert max(parts) - min(parts) < 12, "unsupported is quiet"
    shown = page.script(
        "return [...document.querySelectorAll('#board-key > span')].map((entry) => entry.innerText.trim().split('\\n').at(-1))"
    )
    assert len(shown) == len(Coverage)


def test_shares_are_those_of_the_chosen_length(write: Write, browser: Browser, tmp_path: Path) -> None:
    """A kernel that is fast at short lengths only does not look fast: the longest length that all masks have comes first."""
    made = [
        kernel("cudnn", around(1.0), "fwd", seqlen=n, mask=mask, mfu=mfu, tflops=989 * mfu, mask_digest=f"{mask}{n}")
        for n, mask, mfu in SHARES
    ]
    page = opened(browser, write("shares", made), tmp_path)
    choose(page, "board-mode", "peak")
    assert page.script("return document.getElementById('board-place').value") == "2048"
    assert page.script(CELLS, "board-table")[1] == ["cudnn", "25 %", "3.0 %"]
    choose(page, "board-place", "1024")
    assert page.script(CELLS, "board-table")[1] == ["cudnn", "30 %", "60 %"]
    assert page.complaints() == []


def test_accuracy_the_worst_kernel_first_and_at_each_length(write: Write, browser: Browser, tmp_path: Path) -> None:
    shares = {("a", "causal"): (0.1, 0.2), ("a", "full"): (0.3, 0.4), (HOSTILE, "causal"): (0.05, 0.6), (HOSTILE, "full"): (0.1, 0.1)}
    made = [
        kernel(
            name,
            around(1.0),
            "fwd",
            mask=mask,
            mask_digest=f"{mask}{seqlen}",
            seqlen=seqlen,
            check={"out": {"error": share * 1e-3, "allowed": 1e-3}},
        )
        for (name, mask), several in shares.items()
        for seqlen, share in zip((8192, 16384), several, strict=True)
    ]
    wrong = kernel("bad", None, "fwd", mask="full", mask_digest="full8192", status="wrong", reason="failed its check")
    page = opened(browser, write("accuracy", [*made, wrong]), tmp_path)
    choose(page, "board-mode", "error")
    rows = [[cell.split("\n")[0] for cell in row] for row in page.script(CELLS, "board-table")]
    assert rows == [["kernel", "causal", "full"], ["bad", "", "✗"], [HOSTILE, "60 %", "10 %"], ["a", "20 %", "40 %"]]
    choose(page, "board-place", "8192")
    assert page.script(CELLS, "board-table")[2] == [HOSTILE, "5.0 %\nout", "10 %\nout"]
    page.script("[...document.querySelectorAll('#board-table td button')][0].click()")
    assert "out 5.00e-5 of 0.001 (5.0 %)" in text(page, "#receipts-text")


def test_each_pass_answers_for_its_own_tensors(write: Write, browser: Browser, tmp_path: Path) -> None:
    errors = {"out": 0.1, "lse": 0.2, "dq": 0.3, "dk": 0.5, "dv": 0.4}
    check = {name: {"error": error, "allowed": 1.0} for name, error in errors.items()}
    page = opened(browser, write("passes", [make_record(check=check, **{"pass": which}) for which in ("fwd", "bwd")]), tmp_path)
    choose(page, "board-mode", "error")
    for which, share in (("fwd", "20 %\nlse"), ("bwd", "50 %\ndk")):
        press_button(page, "pass", which)
        assert page.script(CELLS, "board-table")[1] == ["fa4:bands", share]


def test_the_curve_is_the_share_of_cells_in_which_a_kernel_is_close(write: Write, browser: Browser, tmp_path: Path) -> None:
    """Of four cells: b is as fast in one, reaches 80 % in another and half in a third, and has no time in the fourth."""
    times = {1024: (1.0, 1.0), 2048: (1.0, 1.25), 4096: (1.0, 2.0), 8192: (1.0, None)}
    made = [
        kernel(name, None if ms is None else around(ms), "fwd", seqlen=n, mask_digest=str(n), status="oom" if ms is None else "ok")
        for n, several in times.items()
        for name, ms in zip("ab", several, strict=True)
    ]
    page = opened(browser, write("curve", made), tmp_path)
    curves = {
        name: dict(zip(page.script("return DATA.steps"), curve, strict=True))
        for name, _, curve in page.script("return setting().order[0][1]")
    }
    assert set(curves["a"].values()) == {1.0}
    assert {step: curves["b"][step] for step in (0.5, 0.6, 0.8, 0.9, 1.0)} == {0.5: 0.75, 0.6: 0.5, 0.8: 0.5, 0.9: 0.25, 1.0: 0.25}
    assert page.script(PAINT + "return drawn.get(document.getElementById('curve')).getOption().series.length") == 2


def test_what_changed_names_versions_and_times(write: Write, browser: Browser, tmp_path: Path) -> None:
    """Steady samples of an edited kernel: it became twice as fast on one mask, and broke on another."""
    steady = [1.0 + (7 * n % 30) / 5000 for n in range(30)]
    place: dict[str, Any] = {"which": "fwd", "schema": 2}
    old = [
        kernel("mine", [2 * ms for ms in steady], **place, mask=mask, mask_digest=mask, versions={"code": "one"})
        for mask in ("full", "causal")
    ]
    place |= {"versions": {"code": "two"}}
    new = [
        kernel("mine", steady, **place, mask="full", mask_digest="full"),
        kernel("mine", None, **place, mask="causal", mask_digest="causal", status="wrong", reason="out is off"),
    ]
    keyed = [record | {"key": f"v{number}"} for number, record in enumerate([*old, *new])]
    page = opened(browser, write("changed", keyed), tmp_path)
    words = text(page, "#changes-list")
    assert "2 cells were measured more than once" in words
    assert "1 broken, 1 faster" in words
    assert "faster mine · full · 8K · fwd" in words
    assert "(2.00× as fast)" in words
    assert "code one → code two" in words
    assert "broken mine · causal · 8K · fwd out is off" in words


def test_what_changed_between_two_folders_with_the_same_versions(write: Write, browser: Browser, tmp_path: Path) -> None:
    """The same cells with the same keys: one became slower, and of a copy nothing is said."""
    steady = [1.0 + (7 * n % 30) / 5000 for n in range(30)]
    before = [kernel("mine", steady, "fwd", mask=mask, mask_digest=mask) for mask in ("full", "causal")]
    slower = kernel("mine", [2 * ms for ms in steady], "fwd", mask="full", mask_digest="full")
    old, new = write("before", before), write("after", [slower, before[1]])
    assert slower["key"] == before[0]["key"]
    words = text(opened(browser, [old, new], tmp_path), "#changes-list")
    assert "1 cell was measured more than once" in words
    assert "slower mine · full · 8K · fwd" in words
    page = opened(browser, [old, write("copy", before)], tmp_path)
    assert page.script("return document.getElementById('changes').hidden")


def test_a_page_of_methods_on_cpus_speaks_of_methods_and_ranks(write: Write, browser: Browser, tmp_path: Path) -> None:
    made = [split(name, 1.0, ranks, mask_digest=str(ranks), seqlen=64 * ranks) for name in ("usp", "magi") for ranks in (8, 16)]
    page = opened(browser, write("gloo", made, {"device": "Some CPU", "device_kind": "cpu"}), tmp_path)
    assert [text(page, f"#{name} h2") for name in ("answer", "speed")] == ["The fastest method for each mask", "All methods on every mask"]
    assert "ranks across; in each cell the fastest method, TFLOP/s per rank" in text(page, "#matrix caption")
    assert text(page, "#board-table th") == "method"
    (tmp_path / "gpus").mkdir()
    page = opened(browser, write("nccl", made), tmp_path / "gpus")
    assert "GPUs across; in each cell the fastest method, TFLOP/s per GPU" in text(page, "#matrix caption")


def test_numbers_of_older_code_are_counted(write: Write, browser: Browser, tmp_path: Path) -> None:
    def of(mask: str, **versions: str) -> dict[str, Any]:
        return kernel("torch:chunked", around(1.0), "fwd", mask=mask, mask_digest=mask, schema=2, versions=versions or None)

    code = str(registry.versions(registry.get("torch:chunked"))["code"])
    page = opened(browser, write("mixed", [of("full", code=code), of("causal", code="0"), of("causal_document")]), tmp_path)
    assert "2 of 3 times are of older kernel code" in text(page, "#older-note")
    words = []
    for number in range(3):
        page.script("document.querySelectorAll('.answer')[arguments[0]].click()", number)
        words.append(text(page, "#receipts-text"))
    assert ["newer version of this kernel's code" in said for said in words] == [False, True, True]
    assert "exists" in words[1]
    assert "does not have the version" in words[2]


def test_what_failed_comes_before_what_was_never_tried(write: Write, browser: Browser, tmp_path: Path) -> None:
    made = [kernel(name, around(1.0), "fwd", seqlen=n) for name, n in (("fa3", 1024), ("fa3", 2048), ("plain", 1024))]
    reason = {"status": "unsupported", "reason": "a rule skips it beyond 1024 tokens"}
    made += [kernel("plain", None, "fwd", seqlen=2048, limited=True, **reason), kernel("old", None, "fwd", seqlen=2048, **reason)]
    made += [kernel(name, None, "fwd", seqlen=2048, status="oom", reason=f"asked for {gib} GiB") for name, gib in (("a", 80), ("b", 81))]
    page = opened(browser, write("limited", made), tmp_path)
    assert "(3 ok, 2 oom, 1 skipped, 1 unsupported)" in text(page, "#about")
    assert text(page, "#failures-list .notes").startswith("out of memory a, b, fwd: asked for 80 GiB 2 records; causal")
    assert "2 reasons for what was not run" in text(page, "#failures-list summary")
    assert "Without any time here: old, a, b." in text(page, "#untimed")
    page.script("const f = document.getElementById('filter'); f.value = 'rule'; f.dispatchEvent(new Event('input'))")
    assert "2 of 7" in text(page, "#shown"), "the reason of the old one says it, too"


def test_what_is_wrong_somewhere_has_no_share_in_markdown_or_in_a_figure(write: Write, browser: Browser, tmp_path: Path) -> None:
    made = [kernel(name, around(ms), "fwd", seqlen=256) for name, ms in (("fast", 1.0), ("bad", 2.0))]
    made.append(kernel("bad", None, "fwd", seqlen=128, status="oom"))
    made.append(kernel("bad", None, "fwd", seqlen=512, status="wrong", reason="out is off"))
    for name, peak in (("known", 0.5), ("unknown", None)):
        (tmp_path / f"page-{name}").mkdir()
        folder = write(name, [record | {"mfu": record["tflops"] and peak} for record in made])
        page = opened(browser, folder, tmp_path / f"page-{name}")
        assert page.script("return document.querySelectorAll('#board-table td.wrong').length") == 1
        assert "wrong bad, fwd: out is off" in text(page, "#failures-list")
        modes = page.script("return [...document.getElementById('board-mode').options].map(({ value }) => value)")
        assert ("peak" in modes) == (peak is not None), "there is no share of a peak that is not known"
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
    assert answers(page)["causal"][-1] == "2.00× mine"
    assert page.script("return document.querySelectorAll('td.wrong').length") == 0


def test_a_doubtful_record_has_its_reason_and_no_rank(write: Write, browser: Browser, tmp_path: Path) -> None:
    fast = kernel("fast", around(0.1), "fwd") | {"check": None}
    page = opened(browser, write("doubtful", [fast, kernel("flex", around(1.0), "fwd")]), tmp_path)
    assert answers(page)["causal"] == ["flex", "11", "the only one"]
    assert "doubtful fast, fwd: it has a time but no check" in text(page, "#failures-list")
    assert "1 doubtful" in text(page, "#about")


@pytest.mark.parametrize("name", ["constructor", "__proto__", "toString"])
def test_names_of_javascript_are_names_like_others(name: str, write: Write, browser: Browser, tmp_path: Path) -> None:
    made = [kernel(one, around(1.0), "fwd", mask=mask, mask_digest=mask) for one in (name, "flex") for mask in (name, "causal")]
    made += [kernel(name, None, "fwd", mask=name, seqlen=1024, status="oom", reason=name)]
    page = opened(browser, write("names", made), tmp_path)
    assert page.complaints() == []
    assert {row[0] for row in page.script(CELLS, "matrix")[1:]} == {name, "causal"}
    assert name in text(page, "#legend")


def test_a_trace_becomes_a_timeline(write: Write, browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "rank 0"}},
              {"ph": "X", "cat": "attention", "name": HOSTILE, "pid": 0, "tid": 0, "ts": 1000.0, "dur": 500.0, "args": {}},
              {"ph": "b", "cat": "transfer", "name": "kv", "pid": 1, "tid": 1, "id": 7, "ts": 250.0, "args": {"bytes": 1024}},
              {"ph": "e", "cat": "transfer", "name": "kv", "pid": 1, "tid": 1, "id": 7, "ts": 2000.0}]  # fmt: skip
    trace = tmp_path / "ring.json"
    trace.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
    folder = write("made", [make_record()])
    page = opened(browser, folder, tmp_path, "--trace", str(trace))
    spans = page.script("return DATA.timelines[0].spans")
    assert spans == [[0, 0, 0, 1.0, 1.5, 0], [1, 1, 1, 0.25, 2.0, 1024]]
    assert text(page, "#timelines h3") == "ring"
    page.script(PAINT)
    assert page.script("return drawn.get(document.querySelector('#timelines .plot')).getOption().yAxis[0].data") == ["rank 0", "rank 1"]
    assert not page.script("return document.getElementById('to-parallel').hidden")
    zoom = "return drawn.get(document.querySelector('#timelines .plot')).getOption().dataZoom.map(({ start, end }) => [start, end])"
    page.script("drawn.get(document.querySelector('#timelines .plot')).dispatchAction({ type: 'dataZoom', start: 20, end: 30 })")
    settle(page)
    assert page.script("return location.hash") == "#spans=20-30"
    opened_again(page, tmp_path, "#spans=20-30")
    page.script(PAINT + "document.getElementById('theme').click(); " + PAINT)
    assert page.script(zoom) == [[20, 30], [20, 30]]
    assert page.complaints() == []
    trace.write_text(json.dumps({"traceEvents": events, "otherData": {"title": HOSTILE}}))
    assert text(opened(browser, folder, tmp_path, "--trace", str(trace)), "#timelines h3") == HOSTILE
    trace.write_text("{}")
    assert main(["report", str(folder), "-o", str(tmp_path / "x.html"), "--trace", str(trace)]) == 2
    assert "is no trace of `longca simulate --trace`" in capsys.readouterr().err
    assert main(["report", str(folder), "-o", str(tmp_path / "x.html"), "--trace", "nowhere.json"]) == 2
    assert "cannot read nowhere.json" in capsys.readouterr().err


def test_there_is_no_timeline_without_a_trace(write: Write, browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, write("made", [make_record()]), tmp_path)
    assert page.script("return [document.getElementById('parallel').hidden, document.getElementById('to-parallel').hidden]") == [True, True]
