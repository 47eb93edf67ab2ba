"""The report's tables for papers: LaTeX with booktabs, one `table` of headlines and one `longtable` of speeds per setting and pass."""

from __future__ import annotations

from collections.abc import Sequence

from longca.report.markdown import HEADLINES
from longca.results.dense import only_beside
from longca.results.export import NOISY, speed_tables
from longca.results.naming import Row
from longca.results.points import grouped
from longca.results.record import Status
from longca.results.summary import headline_table, headlines
from longca.results.tables import Table

PREAMBLE = "% \\usepackage{booktabs, longtable} in the preamble; made by `longca report --latex`"
DASH = "--"
_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "×": r"$\times$", "·": r"$\cdot$", "²": r"$^2$", "\n": " ", "\r": " ",
    }
)  # fmt: skip


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return text.translate(_SPECIAL)


def render(rows: Sequence[Row], title: str) -> str:
    settings = {setting: group for setting, group in grouped(rows, lambda row: row.setting).items() if not only_beside(group, rows)}
    parts = [PREAMBLE, f"% {' '.join(title.split())}", f"% {' '.join(HEADLINES.split())}"]
    for setting, group in settings.items():
        lines = headlines(group)
        if lines:
            parts.append(_table(headline_table(setting.title, lines)))
    parts += [f"% {NOISY} `{DASH}`: unsupported.", *map(_long_table, speed_tables(rows))]
    return "\n\n".join(parts) + "\n"


def _rows(table: Table) -> tuple[str, str]:
    """The head and the body; unsupported cells are dashes, so that tables stay narrow."""
    lines = [
        " & ".join(DASH if cell == Status.UNSUPPORTED else escape_latex(cell) for cell in cells) + r" \\"
        for cells in (table.columns, *table.rows)
    ]
    return lines[0], "\n".join(lines[1:])


def _table(table: Table) -> str:
    head, body = _rows(table)
    columns = "l" * len(table.columns)
    return "\n".join(
        [
            r"\begin{table}\centering\small",
            rf"\caption{{{escape_latex(table.title)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            *(r"\toprule", head, r"\midrule", body, r"\bottomrule"),
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _long_table(table: Table) -> str:
    """A table that may be longer than a page; its head is repeated on each."""
    head, body = _rows(table)
    columns = "ll" + "r" * (len(table.columns) - 2)
    return "\n".join(
        [
            rf"{{\scriptsize\setlength{{\tabcolsep}}{{3pt}}\begin{{longtable}}{{{columns}}}",
            rf"\caption{{{escape_latex(table.title)}}} \\",
            *(r"\toprule", head, r"\midrule", r"\endhead", r"\bottomrule", r"\endfoot", body),
            r"\end{longtable}}",
        ]
    )
