"""The picture of the page in the README: `PYTHONPATH=src:tests python tests/report/screenshot.py DIR docs/images/report.png`."""

import sys
import tempfile
import time
from pathlib import Path

from longca.cli import main
from report.browser import Browser

WIDTH, HEIGHT = 1200, 1000


def screenshot(journal: str, target: Path, section: str = "#speed") -> None:
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "report.html"
        if main(["report", journal, "-o", str(page)]) != 0:
            raise SystemExit(2)
        browser = Browser(Path(scratch) / "profile")
        try:
            browser.resize(WIDTH, HEIGHT)
            browser.open(page)
            browser.script("document.querySelector(arguments[0]).scrollIntoView()", section)
            time.sleep(1)  # charts are drawn when they come into view
            browser.screenshot(target)
        finally:
            browser.close()
    print(f"wrote {target}")


if __name__ == "__main__":
    screenshot(sys.argv[1], Path(sys.argv[2]))
