"""The examples for a kernel author's own CI: their commands are run, small and on a CPU, first without and then with a baseline."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from longca.compare.baseline import pin
from report.made import make_record

ROOT = Path(__file__).parents[2]
SMALL = {"MASKS": "causal", "SEQLENS": "64", "HEADS": "2:1", "HEAD_DIM": "16", "DTYPE": "fp32", "BUDGET": "0.02", "PLUGIN": "my_kernel.py"}
UNCLEAR = " UNCLEAR"  # is not green, and a busy machine makes cells of so few samples unclear


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


@pytest.mark.slow
def test_the_github_action(home: Path) -> None:
    """All steps but those that need GitHub, twice: the first run becomes the baseline, the second is compared with it."""
    text = (ROOT / "examples" / "github-action.yml").read_text()
    install, *steps = run_steps(text)
    assert install == 'pip install "$LONGCA"\n'
    assert re.search(r"^  LONGCA: git\+https://", text, re.MULTILINE)
    commands = [re.findall(r"^ *(longca \w+|git|gh)\b", step, re.MULTILINE) for step in steps]
    assert commands == [
        ["longca verify"], ["longca run"], ["longca compare"], ["longca report", "longca compare"], ["gh"], ["git"] * 3,
        ["longca merge", "longca compare"],
    ]  # fmt: skip
    settings = set(re.findall(r"^  ([A-Z_]+): ", text, re.MULTILINE))
    assert settings == {*SMALL, "LONGCA", "KERNEL", "BASELINE", "THRESHOLD"}
    more = {"BASELINE": "main", "THRESHOLD": "5%", "RENEW": "", "GITHUB_STEP_SUMMARY": str(home / "summary.md")}
    said = []
    for number, taken in (("1", [*steps[:4], steps[6]]), ("2", [*steps[1:4], steps[6]])):  # the kernel is the same: it is verified once
        for step in taken:
            done = shell(home, ["bash", "-e", "-c", step], **more, RUN=f"{number}-abc")
            assert done.returncode == 0 or UNCLEAR in done.stdout, done.stdout + done.stderr
            said.append(done.stdout)
    assert "baseline main: there was none; this run is stored as the baseline (baselines/main)" in said[1]
    counts = r"2 (UNCLEAR|SAME)|1 UNCLEAR, 1 SAME|1 SAME, 1 UNCLEAR"  # the run was resumed: it is compared with itself
    assert re.fullmatch(counts, said[5].splitlines()[-1])
    assert re.match(rf"\*\*({counts})\*\*", (home / "bench" / "comment.md").read_text())
    assert "2 cells in 2 journals" in (home / "summary.md").read_text()
    assert (home / "bench" / "report.html").exists()


STEADY = [1.0 + (7 * n % 30) / 5000 for n in range(30)]  # ms, in no order: a drift would be no evidence
OUTCOMES = {
    "as fast": (1.0, 2, 0, "2 SAME"),
    "slower": (1.5, 2, 1, "SLOWER"),
    "missing": (1.0, 1, 1, ""),
}


MADE = """
import sys

if sys.argv[1] in ("verify", "report"):
    sys.exit(0)
import longca.api.run
from longca.bench.one_device import level
from longca.bench.plan.catalogue import Entry
from longca.bench.run.campaign import Finished
from longca.cli import main
from longca.results.reading import read

level.offered_by = lambda paths, *_: {"my_kernel": Entry("my_kernel", {}, paths[0])}  # no worker has to load the file
longca.api.run.measure = lambda level, planned, out, **_: Finished(read(out), 0, False, 0, 0.0, {})
sys.exit(main())
"""


@pytest.fixture
def made(home: Path) -> Path:
    """The same folder, where `longca run` finds made journals: whatever this machine does to its clock, the times are those."""
    (home / "made.py").write_text(MADE)
    (home / "bin" / "longca").write_text(f'#!/bin/bash\nPYTHONPATH="{ROOT / "src"}" exec "{sys.executable}" "{home / "made.py"}" "$@"\n')
    return home


def made_journal(write: Callable[..., Path], name: str, factor: float = 1.0, cells: int = 2, **more: str) -> Path:
    own = {"kernel": "my_kernel", "asked": "my_kernel", "variant": None}
    return write(name, [make_record([ms * factor for ms in STEADY], seed=seed, **own) | more for seed in range(cells)])


def measure(home: Path, example: str, journal: Path) -> subprocess.CompletedProcess[str]:
    """Runs an example with this journal in the place of what it measures."""
    target = home / "bench" / ("now-7" if example.endswith("slurm") else "now")
    target.parent.mkdir(exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(journal, target)
    more = {"BASELINE": "bench/baseline", "THRESHOLD": "5%", "SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(home)}
    return shell(home, script_of(example, 2), **more)


EXAMPLES = ["kernel-ci.slurm", "github-action.yml"]
SLOW = [("kernel-ci.slurm", "missing"), ("github-action.yml", "as fast")]


@pytest.mark.parametrize(
    ("example", "outcome"),
    [*((example, "slower") for example in EXAMPLES), *(pytest.param(*both, marks=pytest.mark.slow) for both in SLOW)],
)
def test_the_examples_fail_where_a_kernel_became_slower(made: Path, write: Callable[..., Path], example: str, outcome: str) -> None:
    factor, cells, code, said = OUTCOMES[outcome]
    (made / "bench").mkdir()
    pin(made_journal(write, "before"), made / "bench" / "baseline")
    done = measure(made, example, made_journal(write, "after", factor, cells))
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout


def script_of(example: str, step: int) -> list[str]:
    """All of a batch script, or one step of a workflow."""
    path = ROOT / "examples" / example
    return ["bash", str(path)] if example.endswith("slurm") else ["bash", "-e", "-c", run_steps(path.read_text())[step]]


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("status", ["wrong", "ok"])
def test_a_run_with_something_wrong_in_it_is_no_baseline(made: Path, write: Callable[..., Path], example: str, status: str) -> None:
    done = measure(made, example, made_journal(write, "made", status=status))
    assert done.returncode == (status == "wrong")
    assert (made / "bench" / "baseline").exists() == (status == "ok")


def test_without_a_job_no_run_takes_the_folder_of_another(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    takes = 'while [ $# -gt 0 ]; do [ "$1" = --out ] && mkdir -p "$2" && touch "$2/results.jsonl" "$2/env.json"; shift; done; true'
    (home / "bin" / "longca").write_text(f"#!/bin/bash\n{takes}\n")
    for _ in range(2):
        assert shell(home, script_of("kernel-ci.slurm", 0), SLURM_SUBMIT_DIR=str(home)).returncode == 0
    assert len(list((home / "bench").glob("now-*"))) == 2


@pytest.mark.slow
def test_the_slurm_script(home: Path) -> None:
    """Up to the baseline, and up to a kernel that is wrong; what becomes of a slower one, made journals tell above."""
    script = ["bash", str(ROOT / "examples" / "kernel-ci.slurm")]
    first = shell(home, script, SLURM_JOB_ID="1", SLURM_SUBMIT_DIR=str(home))
    assert first.returncode == 0 or UNCLEAR in first.stdout, first.stdout + first.stderr
    assert "this run is stored as the baseline" in first.stdout
    wrong = (home / "my_kernel.py").read_text().replace("* scale", "* scale * 1.1")
    (home / "wrong.py").write_text(wrong)
    second = shell(home, script, SLURM_JOB_ID="2", SLURM_SUBMIT_DIR=str(home), PLUGIN="wrong.py")
    assert second.returncode == 1, second.stdout + second.stderr
    assert not (home / "bench" / "now-2").exists()  # it was not even measured
