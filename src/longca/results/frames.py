"""The axis of a setting's charts and of its first table: tokens, the visible share of block patterns, or GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from longca.results.grouping import grouped
from longca.results.naming import Row
from longca.text import format_size

Place = tuple[str, float]  # the panel, and the place on its axis


class Frame(NamedTuple):
    """How the rows of one setting are laid out. `place` gives the panel of a row and its place on the axis, `line` the name of its line."""

    axis: str  # seqlen, ratio or ranks
    place: Callable[[Row], Place]
    line: Callable[[Row], str] = attrgetter("line")


def frame_of(rows: Sequence[Row], place: str = "GPU") -> Frame:
    """Numbers of ranks where there are several (`place` is what a rank runs on); the visible share where there are more shares than
    lengths; else tokens."""
    if len({row.record.problem.ranks for row in rows}) > 1:
        return _over_ranks(rows, place)
    if all(row.is_pattern for row in rows):
        lengths, ratios = {row.record.problem.seqlen for row in rows}, {row.ratio for row in rows}
        if None not in ratios and len(ratios) > len(lengths):
            return Frame("ratio", _with_length(rows, lambda row: row.family, lambda row: row.ratio or 0.0))
    return Frame("seqlen", attrgetter("panel", "record.problem.seqlen"))


def _with_length(rows: Sequence[Row], name: Callable[[Row], str], x: Callable[[Row], float]) -> Callable[[Row], Place]:
    """A panel per name and length; the length is not mentioned where there is one only."""
    if len({row.record.problem.seqlen for row in rows}) == 1:
        return lambda row: (name(row), x(row))
    return lambda row: (f"{name(row)}, {format_size(row.record.problem.seqlen)}", x(row))


def _over_ranks(rows: Sequence[Row], place: str) -> Frame:
    """Panels with as many tokens on each GPU, or with as many in all: whichever has more lines of two points. A line is a method with any
    grid."""
    series: Callable[[Row], str] = attrgetter("series")
    weak = _lines(rows, lambda row: row.record.problem.seqlen / _ranks(row))
    strong = _lines(rows, lambda row: row.record.problem.seqlen)
    if strong > weak:
        return Frame("ranks", _with_length(rows, lambda row: row.mask_name, _ranks), series)
    if len({row.record.problem.seqlen / _ranks(row) for row in rows}) == 1:
        return Frame("ranks", lambda row: (row.mask_name, _ranks(row)), series)
    return Frame("ranks", lambda row: (f"{row.mask_name}, {_tokens_each(row)} per {place}", _ranks(row)), series)


def _ranks(row: Row) -> int:
    return row.record.problem.ranks


def _tokens_each(row: Row) -> str:
    tokens, rest = divmod(row.record.problem.seqlen, _ranks(row))
    return f"{row.record.problem.seqlen / _ranks(row):.1f}" if rest else format_size(tokens)


def _lines(rows: Sequence[Row], size: Callable[[Row], float]) -> int:
    groups = grouped(rows, lambda row: (row.mask_name, row.series, size(row)))
    return sum(len({row.record.problem.ranks for row in own}) > 1 for own in groups.values())
