"""What is drawn on a terminal: text arrives as it is, brackets too."""

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = """
from longca.bench.progress import progress
from longca.cli._tables import show_table
show_table(("kernel", "why"), [("a", "pip install longca[cu13]"), ("b", "cannot load [/usr/lib/x.so]")])
record = {"status": "error", "reason": "in [/usr/lib/y.so]", "kernel": "k", "variant": "v", "mask": "causal", "seqlen": 64, "pass": "fwd"}
with progress(1) as watcher:
    assert type(watcher).__name__ == "LiveProgress"
    watcher.say("said [/usr/lib/z.so]")
    watcher.finished(record)
"""


def on_a_terminal(program: str) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    settings = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "160", "TERM": "xterm"}
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
