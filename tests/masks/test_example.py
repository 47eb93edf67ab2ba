import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_runs() -> None:
    done = subprocess.run([sys.executable, ROOT / "examples" / "masks.py"], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert "varlen: 17 documents, window -1, 0" in lines
    assert lines[-1] == "prefix_lm_causal as varlen: it is not documents in a row with one window for all."
