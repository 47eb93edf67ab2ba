"""The speeds of all kernels as LaTeX tables: those of the Markdown report, with a column per length. They need booktabs."""

from __future__ import annotations

from collections.abc import Sequence

from longca.results.groups import Groups
from longca.results.summary import REFUSED, Speeds, speeds
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
    start = f"% {' '.join(title.split())}: tables of `longca report --latex`.\n{PREAMBLE}"
    return "\n\n".join([start, *map(_latex, speeds(groups))]) + "\n"


def _latex(own: Speeds) -> str:
    """A row per mask and kernel, a column per length; rows of one mask stand together. Nothing is said where a kernel is refused."""
    masks: dict[str, dict[str, dict[int, str]]] = {}
    for (panel, seqlen), texts in own.places.items():
        for kernel, text in texts.items():
            if text not in REFUSED:
                masks.setdefault(panel, {}).setdefault(kernel, {})[seqlen] = text
    lengths = sorted({seqlen for _, seqlen in own.places})
    blocks = [
        "\n".join(_line([mask, kernel, *(texts.get(seqlen, "") for seqlen in lengths)]) for kernel, texts in sorted(kernels.items()))
        for mask, kernels in masks.items()
    ]
    lines = [
        r"\begin{table}\centering\footnotesize",
        rf"\caption{{{escape_latex(f'{own.contest.title}, in {own.each}. {MARKS}')}}}",
        rf"\label{{tab:longca-{slug(own.contest.title)}}}",
        rf"\begin{{tabular}}{{ll{'r' * len(lengths)}}}",
        *(r"\toprule", _line(["mask", "kernel", *map(format_size, lengths)]), r"\midrule"),
        "\n\\addlinespace\n".join(blocks),
        *(r"\bottomrule", r"\end{tabular}", r"\end{table}"),
    ]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return rf"{' & '.join(map(escape_latex, cells))} \\"
