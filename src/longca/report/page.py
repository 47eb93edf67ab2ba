"""The page: one HTML file that holds its data, its styles and its scripts, and asks the network for nothing."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

import msgspec

from longca.report.page_data import page_data
from longca.results.groups import Groups
from longca.results.reading import Results

ASSETS = Path(__file__).with_name("assets")
CHARTS = "echarts.min.js.gz"  # nobody reads it, and compressed it is a third
SCRIPTS = (  # one module: data.js waits for the data; what others need comes first
    *("data", "state", "looks", "measures", "receipts", "answer", "notes", "tooltip"),
    *("axes", "charts", "multiples", "enlarged", "curve", "board", "table", "page"),
)


def render(results: Results, groups: Groups, folders: Sequence[str | Path], title: str) -> str:
    """The page as text; of the folders it shows the names only."""
    data = page_data(results, groups, title, [Path(folder).resolve().name for folder in folders])
    scripts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    packed = b64encode(gzip.compress(msgspec.json.encode(data), mtime=0)).decode()
    parts = {
        "<!--styles-->": f"<style>\n{_asset('page.css')}\n</style>\n",
        "<!--scripts-->": f'<script>\n{_charts()}\n</script>\n<script type="module">\n{scripts}\n</script>\n',
        "<!--data-->": f'<script type="application/octet-stream" id="data">{packed}</script>',  # last, as it is the longest
    }
    page = _asset("page.html")
    for place, text in parts.items():
        before, _, after = page.partition(place)
        page = before + text + after
    return page


def _charts() -> str:
    return gzip.decompress((ASSETS / CHARTS).read_bytes()).decode()


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
