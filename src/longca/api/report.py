"""`longca.report`: a page, tables and figures of what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from longca.api.files import write_text
from longca.api.journals import folders_of
from longca.report import page
from longca.report.terminal import summary_parts
from longca.results import reading
from longca.results.export import as_rows
from longca.results.groups import groups_of
from longca.results.record import AT_FAULT, Record
from longca.results.shown import Part, Shown

HEIGHT = 900  # pixels of the page in a notebook


class Report(Shown):
    """The records of some journals, drawn when asked for."""

    def __init__(self, folders: Sequence[str], title: str) -> None:
        self.folders, self.title = list(folders), title
        self.results = reading.read_some(self.folders)
        self._groups = groups_of(self.results)

    @property
    def records(self) -> list[Record]:
        return self.results.records

    @property
    def ok(self) -> bool:
        """Whether no record is wrong, invalid or doubtful, failed or timed out."""
        return not any(record.status in AT_FAULT for record in self.records)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per cell with every field of its record; docs/results.md explains them."""
        return as_rows(self.results)

    def parts(self) -> list[Part]:
        return summary_parts(self.results)

    @cached_property
    def html(self) -> str:
        """The page: one HTML file that needs no network."""
        return page.render(self.results, self._groups, self.folders, self.title)

    @cached_property
    def markdown(self) -> str:
        from longca.report import markdown

        return markdown.render(self.results, self._groups, self.title)

    @cached_property
    def latex(self) -> str:
        """Tables for papers, with booktabs."""
        from longca.report import latex

        return latex.render(self._groups, self.title)

    def save(self, path: str | Path) -> Path:
        """Writes the page."""
        return write_text(path, self.html)

    def save_figures(self, folder: str | Path, show: Callable[[Path], object] = lambda path: None) -> list[Path]:
        """Writes figures for papers as PNG, PDF and SVG, and returns their paths. `show` gets each path when it is written."""
        from longca.report import figures  # with matplotlib, which takes a second

        written = []
        for path in figures.write_figures(self._groups, str(folder)):
            show(path)
            written.append(path)
        return written

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'


def report(*journals: Any, title: str = "LongCA results", out: str | Path | None = None) -> Report:
    """Reads journals and returns a report with the page, Markdown and figures.

    Journals are folders that a run wrote, folders of such folders, or results of `longca.run`. `out` is a file to which the page
    is written. A notebook displays the report.

    >>> longca.report("out/mine", out="report.html")
    """
    made = Report(folders_of(journals), title)
    if out is not None:
        made.save(out)
    return made
