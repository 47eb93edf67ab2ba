"""Tables on a terminal that is narrower than they are."""

import sys

import pytest

from longca.cli._tables import show_table


@pytest.mark.parametrize("width", [40, 80, 200])
def test_figures_and_names_are_never_cut_and_sentences_are_folded(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    figures = [f"{number}.8e-07/2.4e-06" for number in range(4)]
    why = "it takes [block] patterns, and this mask is made of bands, which another kernel takes"
    show_table(("kernel", *"abcd", "why"), [["cudnn_flex:documents", *figures, why]])
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if "cudnn_flex:documents" in line)
    assert all(figure in row for figure in figures)
    assert " ".join(" ".join(line[row.index("it ") - 1 :].split()) for line in lines[lines.index(row) :]).strip() == why
