"""What commands print: tables, drawn on a terminal and plain columns in a pipe; sentences; and JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from longca.text import printable

if TYPE_CHECKING:
    from longca.results.shown import Part, Shown

PROSE = 30  # columns wider than this hold sentences and may be folded; figures and names may not
NARROWEST = 18


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from longca.results.tables import plain_table

    cells = [list(map(printable, map(str, row))) for row in rows]
    if sys.stdout.isatty():
        _draw(columns, cells, [max(map(len, column)) for column in zip(columns, *cells, strict=True)])
    else:
        print(plain_table(columns, cells))


def show_parts(parts: Iterable[Part], markdown: bool = False) -> None:
    """Prints tables, each below its title, and sentences."""
    from longca.results.tables import markdown_table

    for part in parts:
        if isinstance(part, str):
            print_text(part)
            continue
        if part.title:
            print_text(f"### {part.title}\n" if markdown else part.title)
        if markdown:
            print_text(markdown_table(part.columns, part.rows))
        else:
            show_table(part.columns, part.rows)


def show(found: Shown, as_json: bool, lines: bool = False) -> None:
    """Prints what a function returned: its tables and sentences, or one JSON text, or as `lines` one JSON object per row."""
    if not as_json:
        show_parts(found.parts())
    elif lines:
        print_lines(found.rows)
    else:
        print_json(found.to_json())


def print_text(text: str) -> None:
    """Prints lines without what a journal of somebody else would do to the terminal."""
    print("\n".join(map(printable, text.split("\n"))))


def print_json(value: object, indent: int = 1) -> None:
    """Prints a value as one JSON text."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(value), indent=indent).decode())


def print_lines(values: Iterable[object]) -> None:
    """Prints one JSON object per line, at once."""
    import msgspec

    for value in values:
        print(msgspec.json.encode(value).decode(), flush=True)


def _draw(columns: Sequence[str], cells: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    """Draws a table as wide as the terminal, or wider if figures and names need it, so that nothing is cut off."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name, width in zip(columns, widths, strict=True):
        table.add_column(name, no_wrap=width <= PROSE, overflow="fold", min_width=min(width, NARROWEST))
    for row in cells:
        table.add_row(*map(Text, row))  # brackets in a reason are not markup
    console = Console()
    needed = sum(width if width <= PROSE else NARROWEST for width in widths) + 3 * len(widths)
    console.width = max(console.width, needed)
    console.print(table)
