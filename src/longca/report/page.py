"""The page: one HTML file that holds its data, its styles and its scripts, and asks the network for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from longca.report.encoding import embed
from longca.report.page_data import page_data
from longca.results.naming import Row
from longca.results.reading import Results

STYLES = ("uPlot.min.css", "page.css")
SCRIPTS = (  # what others need comes first
    *("uPlot.min.js", "data.js", "styles.js", "charts.js", "lines.js", "bars.js", "tables.js", "sections.js", "table.js", "page.js"),
)


def render(results: Results, rows: Sequence[Row], folders: Sequence[str | Path], title: str) -> str:
    """The page as text; of the folders it shows the names only."""
    data = page_data(results, rows, title, [Path(folder).resolve().name for folder in folders])
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


def _asset(name: str) -> str:
    return files("longca.report").joinpath("assets", name).read_text(encoding="utf-8")
