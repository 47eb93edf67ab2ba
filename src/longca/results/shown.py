"""What the functions of the Python API return: rows for programs, and the tables and sentences that the command line prints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape
from importlib import import_module
from typing import Any

from longca.errors import Unavailable
from longca.results.tables import Table, escape_markdown, markdown_table, plain_table
from longca.text import plural

MOST_ROWS = 100  # of a table in a comment, which may have 65,536 letters
Part = Table | str  # an empty text is an empty line


class Shown(ABC):
    """A result. `rows` are plain dictionaries; `parts` are what a person reads, in order."""

    @property
    @abstractmethod
    def ok(self) -> bool:
        """Whether nothing failed."""

    @property
    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per row, with the same keys in each."""

    @abstractmethod
    def parts(self) -> list[Part]:
        """Tables and sentences."""

    def to_json(self) -> Any:
        """What `--json` prints as one text: the rows, unless a result has more."""
        return self.rows

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame; raises Unavailable without pandas."""
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise Unavailable("to_pandas() needs pandas; pip install pandas, or use .rows, a list of dictionaries.") from error
        return pandas.DataFrame(self.rows)

    def __repr__(self) -> str:
        return "\n".join(part if isinstance(part, str) else _plain(part) for part in self.parts()).strip("\n")

    def _repr_html_(self) -> str:
        return "\n".join(f"<div>{escape(part)}</div>" if isinstance(part, str) else _table_html(part) for part in self.parts() if part)


def comment(parts: Sequence[Part]) -> str:
    """Markdown for a comment on a pull request: the last sentence first and bold, tables of bounded length, sentences as a list."""
    *others, headline = [part for part in parts if part]
    text = [f"**{escape_markdown(str(headline))}**"]
    for part in others:
        if isinstance(part, str):
            text.append(f"* {escape_markdown(part)}")
            continue
        left_out = len(part.rows) - MOST_ROWS
        title = [f"### {escape_markdown(part.title)}"] if part.title else []
        text += [*title, markdown_table(part.columns, part.rows[:MOST_ROWS])]
        text += [f"* {plural(left_out, 'more row')}"] if left_out > 0 else []
    return "\n\n".join(text)


def _plain(table: Table) -> str:
    text = plain_table(table.columns, table.rows)
    return f"{table.title}\n{text}" if table.title else text


def _table_html(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    title = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
