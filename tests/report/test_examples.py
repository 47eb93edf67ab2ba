"""The examples for a kernel author's own CI: their commands are run, small and on a CPU, first without and then with a baseline."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = {"MASKS": "causal", "SEQLENS": "64", "HEADS": "2:1", "HEAD_DIM": "16", "DTYPE": "fp32", "BUDGET": "0.02", "PLUGIN": "my_kernel.py"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a kernel, where `longca` is this checkout's and `srun` runs what follows."""
    shutil.copy(ROOT / "examples" / "my_kernel.py", tmp_path)
    (tmp_path / "bin").mkdir()
    commands = {"longca": f'PYTHONPATH="{ROOT / "src"}" exec "{sys.executable}" -m longca "$@"', "srun": 'exec "$@"'}
    for name, text in commands.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def shell(home: Path, script: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    environment = (
        os.environ | SMALL | {"KERNEL": "my_kernel", "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": ""} | more
    )
    return subprocess.run(script, cwd=home, env=environment, capture_output=True, text=True, check=False)


def run_steps(text: str) -> list[str]:
    """The shell texts of a workflow's `run:` steps."""
    steps = []
    for found in re.finditer(r"^( *)(?:- )?run: (\|\n(?:\1  +.*\n|\n)+|.*\n)", text, re.MULTILINE):
        steps.append(textwrap.dedent(found[2].removeprefix("|\n")))
    return steps


def test_the_github_action(home: Path) -> None:
    text = (ROOT / "examples" / "github-action.yml").read_text()
    install, *steps = run_steps(text)
    assert install == 'pip install "$LONGCA"\n'
    assert [re.findall(r"^ *longca (\w+)", step, re.MULTILINE) for step in steps] == [["verify"], ["run", "report"], ["compare"], []]
    settings = set(re.findall(r"^  ([A-Z_]+): ", text, re.MULTILINE))
    assert settings == {*SMALL, "LONGCA", "KERNEL"}
    said = ""
    for step in [*steps, *steps[2:3]]:
        done = shell(home, ["bash", "-e", "-c", step])
        assert done.returncode == 0, done.stdout + done.stderr
        said += done.stdout
    assert "there is no baseline yet" in said
    assert re.fullmatch(r"2 (UNCLEAR|SAME)", said.splitlines()[-1])  # a run compared with itself
    assert (home / "bench" / "report.html").exists()


@pytest.mark.slow
def test_the_slurm_script(home: Path) -> None:
    script = ["bash", str(ROOT / "examples" / "kernel-ci.slurm")]
    first = shell(home, script, SLURM_JOB_ID="1", SLURM_SUBMIT_DIR=str(home))
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stdout.endswith("this run is it from now on\n")
    wrong = (home / "my_kernel.py").read_text().replace("* scale", "* scale * 1.1")
    (home / "wrong.py").write_text(wrong)
    assert shell(home, script, SLURM_JOB_ID="2", SLURM_SUBMIT_DIR=str(home), PLUGIN="wrong.py").returncode == 1
    slow = wrong.replace("* scale * 1.1", "* scale").replace("    group =", "    import time; time.sleep(0.01)\n    group =")
    (home / "slow.py").write_text(slow)
    done = shell(home, script, SLURM_JOB_ID="3", SLURM_SUBMIT_DIR=str(home), PLUGIN="slow.py")
    assert done.returncode == (1 if "SLOWER" in done.stdout else 0)
    assert " causal " in done.stdout
