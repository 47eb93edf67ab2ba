"""The LaTeX tables of made journals. No test needs LaTeX."""

import re

import pytest

from longca.report.latex import escape_latex, render
from longca.results.groups import groups_of
from report.made import Record, around, kernel, results_of

GOLDEN = r"""% Ours and yours: tables of `longca report --latex`.
% Put \usepackage{booktabs} into the preamble. A table that is longer than a page can be cut at an \addlinespace.

\begin{table}\centering\footnotesize
\caption{fwd, NVIDIA H200 $\cdot$ kernel $\cdot$ 64:8 heads of 128 $\cdot$ bf16, in TFLOP/s. \textasciitilde{}: noisy; empty: not measured.}
\label{tab:longca-fwd-nvidia-h200-kernel-64-8-heads-of-128-bf16}
\begin{tabular}{llrr}
\toprule
mask & kernel & 8K & 16K \\
\midrule
causal & a\_b\&c\% & 5.5\textasciitilde{} & oom \\
causal & fa4:bands & 11 & 11 \\
\addlinespace
causal\_document & fa4:bands & 4.71 (n=3) &  \\
\bottomrule
\end{tabular}
\end{table}
"""


def text_of(records: list[Record], title: str = "Ours") -> str:
    return render(groups_of(results_of(records)), title)


def test_the_text_of_a_small_journal() -> None:
    made = [kernel("fa4:bands", around(1.0), "fwd", seqlen=n) for n in (16384, 8192)]
    made += [kernel("a_b&c%", around(2.0), "fwd", noisy=True), kernel("a_b&c%", None, "fwd", seqlen=16384, status="oom")]
    made += [kernel("never", None, "fwd", status="unsupported", reason="no such mask")]
    made += [
        kernel("fa4:bands", around(ms), "fwd", seed=seed, mask_digest=str(seed), mask="causal_document")
        for seed, ms in enumerate((1.0, 2.0, 4.0))
    ]
    assert text_of(made, "Ours\nand yours") == GOLDEN


@pytest.mark.parametrize("name", ["[a]", "*a", r"a\b{c}", "a|<b>#$^", "a\nb"])
def test_names_stay_text(name: str) -> None:
    """Also at the start of a row, where LaTeX takes a bracket or a star for a part of the line break before it."""
    text = text_of([kernel("plain", around(1.0), "fwd"), kernel(name, around(1.0), "fwd", variant=None, mask=name)])
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert not re.search(r"^[\[*]", text, re.MULTILINE)
    assert {line.count(" & ") for line in text.splitlines() if line.endswith(r"\\")} == {2}
    assert text.count(escape_latex(name)) == 2
