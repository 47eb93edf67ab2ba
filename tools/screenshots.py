"""The pictures of the page in the README, from a journal of this repository: `make screenshots` (JOURNAL=DIR takes another one).

report.png and report-charts.png are the page in the light theme, report-dark.png in the dark one, report-phone.png on a phone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from fewer_colours import reduce

from longca.cli import main
from longca.recommend.shipped import shipped
from report.browser import Browser, missing

MOST_BYTES = 200_000


class Shot(NamedTuple):
    name: str
    width: int
    height: int
    view: str  # what stands after the # of the address


SHOTS = (
    Shot("report", 1320, 960, ""),
    Shot("report-charts", 1320, 780, "section=speed"),
    Shot("report-dark", 1320, 900, "theme=dark&pass=bwd&section=closeness"),
    Shot("report-phone", 390, 844, ""),
)


def take(browser: Browser, page: Path, shot: Shot, folder: Path) -> Path:
    target = folder / f"{shot.name}.png"
    browser.resize(shot.width, shot.height)
    browser.open(page.with_name("nothing.html"))  # another address after the # alone would not load the page again
    browser.open(page, f"#{shot.view}")
    time.sleep(1)  # charts are drawn when they come into view
    browser.screenshot(target)
    reduce(target)
    if target.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{target} has {target.stat().st_size} bytes, over {MOST_BYTES}; make it smaller in {__file__}.")
    return target


def screenshots(journals: list[str], folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "report.html"
        page.with_name("nothing.html").write_text("")
        if main(["report", *journals, "-o", str(page)]) != 0:
            raise SystemExit(2)
        browser = Browser(Path(scratch) / "profile")
        try:
            for shot in SHOTS:
                print(f"wrote {take(browser, page, shot, folder)}")
        finally:
            browser.close()


if __name__ == "__main__":
    if missing():
        raise SystemExit(f"{' and '.join(missing())} not found; on Debian: apt-get install chromium chromium-driver")
    chosen = sys.argv[2:] or [str(folder) for folder in shipped()]
    if not chosen:
        raise SystemExit("there is no journal below results/; name one: make screenshots JOURNAL=DIR")
    screenshots(chosen, Path(sys.argv[1]))
