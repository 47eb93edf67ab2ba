"""The speeds of all kernels as LaTeX tables: those of the Markdown report, with a column per length. They need booktabs."""

from __future__ import annotations

from collections.abc import Sequence

from longca.report.terminal import contest_title
from longca.results.export import UNSUPPORTED
from longca.results.groups import Group, Groups
from longca.results.naming import Contest
from longca.results.points import grouped
from longca.results.summary import typical_speeds
from longca.results.tables import speed_unit
from longca.text import format_size, slug

PREAMBLE = r"% Put \usepackage{booktabs} into the preamble. A table that is longer than a page can be cut at an \addlinespace."
MARKS = "~: noisy; empty: not measured."
_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
        "[": "{[}", "*": "{*}", "×": r"$\times$", "·": r"$\cdot$", "\n": " ", "\r": " ",
    }
)  # fmt: skip


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is, also at the start of a row, where a bracket or a star would belong to the line break before it."""
    return text.translate(_SPECIAL)


def render(groups: Groups, title: str) -> str:
    """A table per setting and pass, measured or simulated."""
    own = grouped(groups.measured, lambda group: group.contest._replace(mask_name="", seqlen=0, ranks=1))
    tables = [_latex(contest, several) for contest, several in own.items()]
    start = f"% {' '.join(title.split())}: tables of `longca report --latex`.\n{PREAMBLE}"
    return "\n\n".join([start, *filter(None, tables)]) + "\n"


def _latex(contest: Contest, groups: Sequence[Group]) -> str:
    """A row per mask and kernel, a column per length; rows of one mask stand together. Empty where nothing is supported."""
    unit = speed_unit(row.record.speed for group in groups for row in group.rows if row.record.ok)
    masks: dict[str, dict[str, dict[int, str]]] = {}
    for group in groups:
        for kernel, text in typical_speeds(group, unit).items():
            if text not in UNSUPPORTED:
                masks.setdefault(group.first.panel, {}).setdefault(kernel, {})[group.contest.seqlen] = text
    lengths = sorted({seqlen for kernels in masks.values() for texts in kernels.values() for seqlen in texts})
    blocks = [
        "\n".join(_line([mask, kernel, *(texts.get(seqlen, "") for seqlen in lengths)]) for kernel, texts in sorted(kernels.items()))
        for mask, kernels in masks.items()
    ]
    title = f"{contest.pass_}, {contest_title(contest)}"
    each = " of each rank" if contest.is_split else ""
    lines = [
        r"\begin{table}\centering\footnotesize",
        rf"\caption{{{escape_latex(f'{title}, in {unit.name}{each}. {MARKS}')}}}",
        rf"\label{{tab:longca-{slug(title)}}}",
        rf"\begin{{tabular}}{{ll{'r' * len(lengths)}}}",
        *(r"\toprule", _line(["mask", "kernel", *map(format_size, lengths)]), r"\midrule"),
        "\n\\addlinespace\n".join(blocks),
        *(r"\bottomrule", r"\end{tabular}", r"\end{table}"),
    ]
    return "\n".join(lines) if blocks else ""


def _line(cells: Sequence[str]) -> str:
    return rf"{' & '.join(map(escape_latex, cells))} \\"
