"""The page of a journal, open in the browser."""

import time
from pathlib import Path
from typing import Any

from longca.cli import main
from report.browser import Browser

PAINT = "for (const place of [...pending.keys()]) paint(place); "  # charts that are not in view, too
FIRST = PAINT + "const option = drawn.get(document.querySelector('#charts .plot')).getOption(); "  # of the first chart


def opened(browser: Browser, folder: Path | list[Path], tmp_path: Path, *more: str) -> Browser:
    folders = folder if isinstance(folder, list) else [folder]
    out = tmp_path / "report.html"
    assert main(["report", *map(str, folders), "-o", str(out), *more]) == 0
    browser.complaints()  # what an earlier page left
    browser.resize(1200, 900)
    browser.open(out)
    ready_after(browser)
    return browser


def ready_after(page: Browser) -> int:
    """Milliseconds until the page had put itself together."""
    for _ in range(100):  # a busy browser may answer before the page's scripts have run
        found = page.script("return document.documentElement.dataset.ready")
        if found:
            return int(found)
        time.sleep(0.1)
    raise AssertionError(f"the page did not get ready: {page.complaints()}")


def opened_again(page: Browser, tmp_path: Path, view: str) -> None:
    """Opens the page with this address; another page lies between, as a change after the # alone does not load it again."""
    (tmp_path / "other.html").write_text("<p>another page</p>")
    page.open(tmp_path / "other.html")
    page.open(tmp_path / "report.html", view)
    ready_after(page)


def settle(page: Browser) -> None:
    """Waits until the page has answered to a change of its address, or has written the end of a zoom into it."""
    page.script("return new Promise((done) => setTimeout(done, 300))")


def text(page: Browser, selector: str) -> str:
    return str(page.script("return document.querySelector(arguments[0]).innerText", selector))


def choose(page: Browser, select: str, value: str) -> None:
    """Chooses an entry of a select, as a reader does."""
    page.script(
        "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))", select, value
    )


def press_button(page: Browser, group: str, value: str) -> None:
    """Presses one of a group of buttons."""
    page.script("document.querySelector(`#${arguments[0]} [data-value='${arguments[1]}']`).click()", group, value)


def series(page: Browser, panel: str) -> dict[str, Any]:
    """By kernel its points [x, y] in the chart of a mask."""
    return dict(
        page.script(
            PAINT
            + """const cards = [...document.querySelectorAll('#charts article')];
               const card = cards.find((box) => box.querySelector('h3').innerText === arguments[0]);
               return drawn.get(card.querySelector('.plot')).getOption().series.filter(({ name }) => name)
                 .map(({ name, data }) => [name, data.map((point) => point.value ?? point).filter(([, y]) => y !== null)])""",
            panel,
        )
    )
