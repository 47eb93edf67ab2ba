"""Tables in READMEs and docs, and results/h200/limits.txt, are those of the journals."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_tables_are_those_of_the_journals() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/doc_tables.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}; python tools/doc_tables.py writes them anew"


def test_the_limits_are_those_of_the_journal() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/limits.py"), str(ROOT / "results/h200/paper-kernel")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == (ROOT / "results/h200/limits.txt").read_text()
