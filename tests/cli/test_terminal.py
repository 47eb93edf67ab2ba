"""What is drawn on a terminal: text arrives as it is, brackets too."""

import contextlib
import os
import pty
import subprocess
import sys

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
