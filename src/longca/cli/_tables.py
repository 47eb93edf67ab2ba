"""Tables and progress for the terminal: drawn where somebody looks, plain columns where a program reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence

PROSE = 30  # characters from which on a column holds sentences, which may be folded; figures and names may not
NARROWEST = 18
LINE = 79  # letters of a line that is written over again and again: one that wraps cannot be


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    if sys.stdout.isatty():
        cells = [[str(cell) for cell in row] for row in rows]
        _draw(columns, cells, [max(map(len, column)) for column in zip(columns, *cells, strict=True)])
    else:
        print(format_table(columns, rows), end="")


def format_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The table in plain columns."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    line = "  ".join(f"{{:<{width}}}" for width in widths)
    return "".join(line.format(*row).rstrip() + "\n" for row in [columns, *cells])


def _draw(columns: Sequence[str], cells: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    """As wide as the terminal, or wider where figures and names need it: what is cut off nobody can read."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name, width in zip(columns, widths, strict=True):
        table.add_column(name, no_wrap=width <= PROSE, overflow="fold", min_width=min(width, NARROWEST))
    for row in cells:
        table.add_row(*map(Text, row))  # as it is: a reason may hold brackets, which are no markup
    console = Console()
    needed = sum(width if width <= PROSE else NARROWEST for width in widths) + 3 * len(widths)
    console.width = max(console.width, needed)
    console.print(table)


def write_over(text: str) -> None:
    """How far it is, on a terminal, in the place of what stood there; nothing clears the line."""
    if sys.stderr.isatty():
        print(f"\r{text:<{LINE}.{LINE}}", end="\r", file=sys.stderr, flush=True)
