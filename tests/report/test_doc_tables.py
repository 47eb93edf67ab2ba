"""Figures in README and docs are those of the journals that they name."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tables_are_those_of_the_journals() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/doc_tables.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}; python tools/doc_tables.py writes them anew"
