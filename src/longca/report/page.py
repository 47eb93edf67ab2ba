"""The page: one HTML file that holds its data, its styles and its scripts, and asks the network for nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from longca.report import PRACTICAL
from longca.report.gather import Gathered, page_data

STYLES = ("uPlot.min.css", "page.css")
SCRIPTS = (
    *("uPlot.min.js", "data.js", "styles.js", "charts.js", "lines.js", "bars.js"),  # what others need comes first
    *("shares.js", "overview.js", "accuracy.js", "scaling.js", "sections.js", "table.js", "page.js"),
)
# what could end a script element, or a line of JavaScript, may not stand in the data as it is
ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def render(found: Gathered, folders: Sequence[str | Path], title: str) -> str:
    """The page as text; of the folders it says the names only."""
    about = {"title": title, "folders": [Path(folder).resolve().name for folder in folders], "practical": PRACTICAL}
    data = page_data(found) | about
    parts = {
        "<!--styles-->": "".join(f"<style>\n{_asset(name)}\n</style>\n" for name in STYLES),
        "<!--data-->": f'<script type="application/json" id="data">{embed(data)}</script>',
        "<!--scripts-->": "".join(f"<script>\n{_asset(name)}\n</script>\n" for name in SCRIPTS),
    }
    page = _asset("page.html")
    for place, text in parts.items():
        before, _, after = page.partition(place)
        page = before + text + after
    return page


def embed(data: Any) -> str:
    """JSON that can stand inside a script element, whatever the strings in it say."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(ESCAPES)


def _asset(name: str) -> str:
    return files("longca.report").joinpath("assets", name).read_text(encoding="utf-8")
