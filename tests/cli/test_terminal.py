"""What is drawn on a terminal: text arrives as it is, brackets too, and nothing is cut off."""

import contextlib
import os
import pty
import subprocess
import sys

import pytest

from longca.cli._tables import show_table

PROGRAM = """
from types import SimpleNamespace
from longca.bench.run.progress import Progress, TimeLeft
from longca.cli._tables import show_table
from longca.results.problem import Pass
from longca.results.record import BuiltMask, LevelName, Record, Status
from made_cells import make_cell
show_table(("kernel", "why"), [("a", "pip install longca[cu13]"), ("b", "cannot load [/usr/lib/x.so]")])
planned = make_cell(kernel="k:v", mask="causal", seqlen=64, pass_=Pass.FWD)
cell = dict(schema=3, key="k", env="e", level=LevelName.KERNEL, kernel="k", asked="k:v", variant="v", problem=planned.problem)
cell |= dict(built=BuiltMask("d", 1, 64, 64), flops=1)
with Progress([SimpleNamespace(cell=planned)], TimeLeft({"k": 7.0})) as watcher:
    watcher.begin(SimpleNamespace(cell=planned))
    watcher.say("said [/usr/lib/z.so]")
    watcher.finished(Record(status=Status.ERROR, reason="in [/usr/lib/y.so]", **cell))
"""


def on_a_terminal(program: str) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    settings = {**os.environ, "COLUMNS": "160", "TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs, env=settings)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal ends
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    return process.wait(60), shown.decode()


def test_brackets_in_texts_are_shown_and_break_nothing() -> None:
    code, shown = on_a_terminal(PROGRAM)
    assert code == 0, shown
    for text in ("longca[cu13]", "[/usr/lib/x.so]", "[/usr/lib/y.so]", "[/usr/lib/z.so]"):
        assert text in shown
    assert "[0/1, 7 s left] k:v causal 64" in shown
    assert "[1/1, 0 s left] k:v causal 64 fwd: error: in [/usr/lib/y.so]" in shown


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
    assert "─" in lines[1] + lines[2]
    row = next(line for line in lines if "cudnn_flex:documents" in line)
    assert all(figure in row for figure in figures)
    assert " ".join(" ".join(line[row.index("it ") - 1 :].split()) for line in lines[lines.index(row) :]).strip() == why
