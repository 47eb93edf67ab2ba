"""The page of a journal, open in the browser."""

import time
from pathlib import Path

from longca.cli import main
from report.browser import Browser


def opened(browser: Browser, folder: Path | list[Path], tmp_path: Path) -> Browser:
    folders = folder if isinstance(folder, list) else [folder]
    out = tmp_path / "report.html"
    assert main(["report", *map(str, folders), "-o", str(out)]) == 0
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


def text(page: Browser, selector: str) -> str:
    return str(page.script("return document.querySelector(arguments[0]).innerText", selector))
