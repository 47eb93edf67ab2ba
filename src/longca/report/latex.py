"""The report's tables as LaTeX for papers. They fit the text of the `article` class, which is narrower than that of most papers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from string import ascii_uppercase
from typing import NamedTuple

from longca.report.latex_tables import Block, PaperTable, paper_tables
from longca.results.naming import Row

PREAMBLE = r"""% Put \usepackage{array, booktabs, longtable} into the preamble. A table that is longer than a page is a longtable,
% which LaTeX sets in one column only: in a paper with two columns, \input this file after \onecolumn."""
FLOAT = r"\begin{table*}"
HELD = 40  # floats without text between them that LaTeX places; it holds 52
LINE = 80.0  # ens that fit the text of the `article` class (345 pt) in \footnotesize
GAPS = (1.9, 1.7, 1.5, 1.3, 1.2)  # ens between columns: the widest with which a table fits
NARROW = GAPS[-1]
POINTS = 4.25  # of an en
TITLE = 1.1  # the width of italics over that of upright letters
PARTS = 12  # in which spare width is shared out
INDENT = 2.0  # ens of the second line of a cell and of those below it
PAGE = 38  # lines that fit a page below a caption
LONGEST = 30.0  # ens of a name that is not broken
WHOLE = 16  # rows of one mask that stay on one page
_WIDTHS = {".,:;'!|()[]ijl \u00a0": 0.6, "frt_-/": 0.8, "ces": 0.9, "bdhknpquvxy": 1.1, "mw%×": 1.7, ascii_uppercase + "=+<>": 1.5}
_ENS = {letter: ens for letters, ens in _WIDTHS.items() for letter in letters}  # of Computer Modern; a digit has 1
_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
        "[": "{[}", "*": "{*}", "×": r"$\times$", "·": r"$\cdot$", "²": r"$^2$", "\u00a0": "~", "\n": " ", "\r": " ",
    }
)  # fmt: skip


class Layout(NamedTuple):
    """In ens: the width of each column, and the space between two."""

    widths: list[float]
    gap: float


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is, also at the start of a row."""
    return text.translate(_SPECIAL)


def render(rows: Sequence[Row], title: str) -> str:
    parts = [f"% {' '.join(title.split())}: tables of `longca report --latex`.\n{PREAMBLE}"]
    used: Counter[str] = Counter()
    for table in (part for whole in paper_tables(rows) for part in _parts(whole)):
        used[table.name] += 1
        again = f"-{used[table.name]}" if used[table.name] > 1 else ""
        parts.append(_latex(table, f"tab:longca-{table.name}{again}"))
    floats = sum(part.startswith(FLOAT) for part in parts)
    if floats > HELD:
        parts.insert(1, rf"\extrafloats{{{floats}}}")
    return "\n\n".join(parts) + "\n"


def _parts(table: PaperTable) -> list[PaperTable]:
    """The table, or several with some columns of figures each, if these are too wide for a page."""
    if len(table.words) > 1:
        return [table]
    first, *figures = _natural(table)
    room = LINE - NARROW - min(first, LONGEST)
    for count in range(1, len(figures) + 1):
        size = math.ceil(len(figures) / count)
        starts = range(0, len(figures), size)
        if all(sum(figures[start : start + size]) + NARROW * size <= room for start in starts):
            break
    return [table] if len(starts) == 1 else [_part(table, slice(start + 1, start + 1 + size), start // size + 1) for start in starts]


def _part(table: PaperTable, columns: slice, number: int) -> PaperTable:
    """The table with the first column and these. Rows without figures are left out."""
    heads = [[head[0], *head[columns]] for head in table.heads]
    blocks = [Block(title, [[row[0], *row[columns]] for row in rows if any(row[columns])]) for title, rows in table.blocks]
    return table._replace(name=f"{table.name}-part-{number}", heads=heads, blocks=[block for block in blocks if block.rows])


@cache
def _ens(text: str) -> float:
    """The width of a text, nearly. A `~` at its end stands in the space between columns."""
    return sum(_ENS.get(letter, 1.0) for letter in text.removesuffix("~"))


def _natural(table: PaperTable) -> list[float]:
    """The width of each column without line breaks."""
    return [max(map(_ens, column)) for column in zip(*table.lines, strict=True)]


def _layout(table: PaperTable) -> Layout:
    """Columns of words share what the others leave, so that rows take few lines. The first is so wide that titles of blocks fit."""
    widths = _natural(table)
    figures = sum(width for n, width in enumerate(widths) if n not in table.words)
    longest = {n: min(LONGEST, max(ens for row in table.lines for _, ens in _words(row[n]))) for n in table.words}
    gap = next((gap for gap in GAPS if figures + sum(longest.values()) + gap * len(widths) <= LINE), NARROW)
    room = max(LINE / 4, LINE - figures - gap * len(widths))
    if sum(widths[n] for n in table.words) > room:
        widths = min(_wrapped(widths, longest, room), key=lambda option: sum(_height(row, option) for row in table.lines))
    title = TITLE * max(_ens(block.title) for block in table.blocks)
    widths[0] += max(0.0, min(title, LINE) - sum(widths) - gap * len(widths))
    return Layout(widths, gap)


def _wrapped(natural: Sequence[float], longest: Mapping[int, float], room: float) -> Iterator[list[float]]:
    """Ways to share the room among columns of words: each gets the width of its longest word, and a part of what is left."""
    needed = sum(longest.values())
    least = {n: width * min(1.0, room / needed) for n, width in longest.items()}
    for parts in product(range(PARTS + 1), repeat=len(least)):
        if sum(parts) == PARTS:
            shares = dict(zip(least, parts, strict=True))
            yield [least[n] + max(0.0, room - needed) * shares[n] / PARTS if n in least else width for n, width in enumerate(natural)]


def _latex(table: PaperTable, label: str) -> str:
    layout = _layout(table)
    natural = enumerate(zip(layout.widths, _natural(table), strict=True))
    columns = "".join("r" if n not in table.words else "l" if width == own else _column(width) for n, (width, own) in natural)
    caption = rf"\caption{{{escape_latex(table.caption)}}}\label{{{label}}}"
    heads = "\n".join(_row(head, layout, r"\\") for head in table.heads)
    body = "[4pt]\n".join(_block(block, layout) for block in table.blocks)
    lines = sum(_height(row, layout.widths) for row in table.lines) + 2 * sum(bool(block.title) for block in table.blocks)
    size = rf"\footnotesize\setlength{{\tabcolsep}}{{{POINTS * layout.gap / 2:.1f}pt}}"
    return (_long if lines > PAGE else _float)(size, caption, columns, heads, body)


def _float(size: str, caption: str, columns: str, heads: str, body: str) -> str:
    """A table as wide as the page, also in a paper with two columns."""
    return "\n".join(
        [
            rf"{FLOAT}\centering{size}\setlength{{\belowcaptionskip}}{{6pt}}",
            caption,
            rf"\begin{{tabular}}{{{columns}}}",
            *(r"\toprule", heads, r"\midrule", body, r"\bottomrule"),
            r"\end{tabular}",
            r"\end{table*}",
        ]
    )


def _long(size: str, caption: str, columns: str, heads: str, body: str) -> str:
    """A table that is longer than a page; its head is repeated on each."""
    return "\n".join(
        [
            rf"{{{size}\setlength{{\LTcapwidth}}{{\linewidth}}",
            rf"\begin{{longtable}}{{{columns}}}",
            *(caption + r" \\", r"\toprule", heads, r"\midrule", r"\endfirsthead"),
            *(r"\caption[]{(continued)} \\", r"\toprule", heads, r"\midrule", r"\endhead"),
            *(r"\bottomrule", r"\endfoot", body),
            r"\end{longtable}}",
        ]
    )


def _column(ens: float) -> str:
    return rf">{{\raggedright\hangindent=1em\arraybackslash}}p{{{ens / 2:.1f}em}}"


def _height(row: Sequence[str], widths: Sequence[float]) -> int:
    """The number of lines of a row."""
    return max(map(_line_count, row, widths))


def _line_count(cell: str, width: float) -> int:
    count, used = 1, 0.0
    for word, alone in _words(cell):
        together = used + _ens(word)
        count, used = (count + 1, alone) if used and together > width else (count, together)
        used += _ens(" ")
    return count


def _words(cell: str) -> list[tuple[str, float]]:
    """The words of a cell, each with the width that it needs at the start of a line."""
    return [(word, _ens(word) + (INDENT if number else 0.0)) for number, word in enumerate(cell.split(" "))]


def _block(block: Block, layout: Layout) -> str:
    """The rows below their title. If they are few, no page ends between them."""
    end = r"\\*" if block.title and len(block.rows) <= WHOLE else r"\\"
    title = [rf"\multicolumn{{{len(layout.widths)}}}{{l}}{{{_title(block.title)}}} \\*"] if block.title else []
    *rows, last = block.rows
    return "\n".join([*title, *(_row(row, layout, end) for row in rows), _row(last, layout, r"\\")])


def _title(title: str) -> str:
    text = rf"\textit{{{escape_latex(title)}}}"
    return text if TITLE * _ens(title) <= LINE else rf"\parbox[t]{{0.95\linewidth}}{{\raggedright {_breakable(text)}\strut}}"


def _row(row: Sequence[str], layout: Layout, end: str) -> str:
    return f"{' & '.join(map(_cell, row, layout.widths))} {end}"


def _cell(text: str, width: float) -> str:
    """The text of a cell. A `~` at its end takes no width, so that digits are aligned; words that are too long can be broken."""
    if text.endswith("~"):
        return rf"{escape_latex(text[:-1])}\rlap{{\textasciitilde}}"
    return " ".join(_breakable(escape_latex(word)) if ens > width else escape_latex(word) for word, ens in _words(text))


def _breakable(text: str) -> str:
    """The text with places where a line may end."""
    return text.replace(r"\_", r"\_\allowbreak{}").replace(":", r":\allowbreak{}")
