"""Tables for the terminal: drawn where somebody looks, plain columns where a program reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [[str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns, box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
        for row in cells:
            table.add_row(*map(Text, row))  # as it is: a reason may hold brackets, which are no markup
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in [list(columns), *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
