"""Tables of text, and how they are written as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from longca.results.ratio import ENOUGH_SAMPLES
from longca.text import format_size

_MARKDOWN = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "\\|", "\n": " ", "\r": " "})


class Table(NamedTuple):
    title: str
    columns: list[str]
    rows: list[list[str]]


def entry_table(entries: Sequence[Mapping[str, object]], columns: Sequence[str]) -> Table:
    """A row per entry with these of its values."""
    return Table("", list(columns), [[_entry(entry[column]) for column in columns] for entry in entries])


def _entry(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={item}" for name, item in value.items())
    if value is None or value is False:
        return "-"
    return "yes" if value is True else f"{value:.6g}" if isinstance(value, float) else str(value)


class SpeedUnit(NamedTuple):
    """The unit of the speeds in a table; records hold TFLOP/s."""

    name: str
    per_tflops: float

    def text(self, tflops: float, noisy: bool = False) -> str:
        """Returns the speed in three digits, followed by `~` if it is noisy."""
        return format_figure(tflops * self.per_tflops) + ("~" if noisy else "")


TFLOPS, GFLOPS = SpeedUnit("TFLOP/s", 1.0), SpeedUnit("GFLOP/s", 1000.0)
NOISY = "~: noisy"
FEW = f"?: fewer than {ENOUGH_SAMPLES} samples"


def speed_unit(tflops: Iterable[float]) -> SpeedUnit:
    """Returns the unit for a table of these speeds: GFLOP/s if all are below 1 TFLOP/s."""
    return GFLOPS if max(tflops, default=1.0) < 1 else TFLOPS


def length_table(title: str, texts: Mapping[tuple[str, int], str]) -> Table:
    """A row per mask and a column per length, of texts by both."""
    lengths, names = sorted({seqlen for _, seqlen in texts}), dict.fromkeys(name for name, _ in texts)
    cells = [[name, *(texts.get((name, seqlen), "") for seqlen in lengths)] for name in names]
    return Table(title, ["mask", *map(format_size, lengths)], cells)


def escape_markdown(text: str) -> str:
    """Text that stays text in a Markdown table: no cell ends, no element begins, no line breaks."""
    return text.translate(_MARKDOWN)


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns that are as wide as their longest cell, two spaces apart."""
    lines = [list(columns), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head, *lines = (f"| {' | '.join(map(escape_markdown, cells))} |" for cells in (columns, *rows))
    return "\n".join([head, f"|{'---|' * len(columns)}", *lines])


def markdown_section(table: Table) -> str:
    """A table below its title."""
    return f"### {escape_markdown(table.title)}\n\n{markdown_table(table.columns, table.rows)}"


def code_block(text: str) -> str:
    """A block of shell commands. Its fence is longer than any row of backticks in the text, which therefore cannot end it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{fence}sh\n{text}\n{fence}"


def format_figure(value: float) -> str:
    """A speed or an amount in three digits, from 100 on without a fraction."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
