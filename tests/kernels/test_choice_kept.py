"""Choices on disk: whole or absent after a kill, measured again when damaged, one trial for processes that start together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from longca import masks
from longca.kernels.base import Case
from longca.kernels.choice import chooser, kept, trial
from longca.kernels.choice.choice import Choice

CASE = Case(64, 64, 2, 1, 16, 16, "fp32")
KEY = {"device": "a CPU", "mask": "causal"}
CHOICE = Choice("torch:plain", "torch:chunked", "trial", {"fwd": "x" * 3000, "bwd": "y"})


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kept.FOLDER, str(tmp_path))
    chooser.forget()


def test_what_is_written_is_read() -> None:
    assert kept.read(KEY) is None
    kept.write(KEY, CHOICE)
    assert kept.read(KEY) == CHOICE
    assert kept.read({**KEY, "mask": "full"}) is None


def test_the_folder_follows_its_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert kept.folder() == tmp_path / "choices"
    monkeypatch.delenv(kept.FOLDER)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert kept.folder() == Path("/somewhere/longca/choices")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert kept.folder() == Path("~/.cache/longca/choices").expanduser()


def damaged(text: str) -> list[bytes]:
    """A file cut anywhere, of another format, of another key, of wrong types, or of anything else."""
    whole = json.loads(text)
    others = [{**whole, "format": 0}, {**whole, "key": {}}, {**whole, "choice": {**whole["choice"], "forward": 3}}, [], {}]
    cuts = [text[: len(text) * part // 7].encode() for part in range(7)]
    return [*cuts, b"\xff\xfe\x00", *(json.dumps(other).encode() for other in others)]


def test_a_damaged_file_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()
    run = trial.run_trial
    monkeypatch.setattr(trial, "run_trial", lambda *given: made.append("") or run(*given))
    mask = masks.causal(64)
    first = chooser.choose(mask, CASE)
    (file,) = kept.folder().glob("*.json")
    broken = damaged(file.read_text())
    for number, contents in enumerate(broken, 2):
        file.write_bytes(contents)
        chooser.forget()
        assert chooser.choose(mask, CASE).source == first.source
        assert len(made) == number
    chooser.forget()
    chooser.choose(mask, CASE)
    assert len(made) == 1 + len(broken)  # the last one was kept


def test_a_file_of_kernels_that_are_gone_is_not_used() -> None:
    asked = chooser.contest(masks.causal(64), CASE)
    kept.write({**asked.key, "kernels": {"forward": ["gone"]}}, Choice("gone", "gone", "trial", {}))
    assert chooser.choose(masks.causal(64), CASE).forward != "gone"


@pytest.mark.parametrize("obstacle", ["a file", "read-only"])
def test_a_folder_that_cannot_be_written_does_no_harm(obstacle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    if obstacle == "a file":
        home.write_text("")
    else:
        home.mkdir()
        monkeypatch.setattr(kept, "NamedTemporaryFile", refuse)
    monkeypatch.setenv(kept.FOLDER, str(home))
    choice = chooser.choose(masks.causal(64), CASE)
    assert choice.source == "trial"
    assert chooser.choose(masks.causal(64), CASE) is choice  # this process remembers


def refuse(**_: object) -> None:
    raise PermissionError(13, "Permission denied")


WRITER = """
from longca.kernels.choice import kept
from longca.kernels.choice.choice import Choice
for number in range(10**9):
    kept.write({"device": "a CPU", "mask": "causal"}, Choice("torch:plain", "torch:chunked", "trial", {"fwd": str(number % 10) * 30000}))
    if number == 3:
        print("writing", flush=True)
"""


def test_a_killed_writer_leaves_a_whole_file() -> None:
    for wait_s in (0.0, 0.005):
        writer = subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"})
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        time.sleep(wait_s)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        choice = kept.read(KEY)
        assert choice is not None
        assert len(choice.why["fwd"]) == 30000


CHOOSER = """
import sys, time
from pathlib import Path
from longca import masks
from longca.kernels.base import Case
from longca.kernels.choice import chooser, trial
run = trial.run_trial
def counted(*given):
    print("trial", flush=True)
    time.sleep(0.5)
    return run(*given)
trial.run_trial = counted
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.01)
choice = chooser.choose(masks.causal(64), Case(64, 64, 2, 1, 16, 16, "fp32"))
print(choice.forward, choice.backward, choice.options["fwd"][0].ms, flush=True)
"""


def test_two_processes_at_once_make_one_trial(tmp_path: Path) -> None:
    marks = [tmp_path / "one", tmp_path / "two"]
    commands = [[sys.executable, "-c", CHOOSER, str(mine), str(other)] for mine, other in (marks, reversed(marks))]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    outputs = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum(lines.count("trial") for lines in outputs) == 1
    assert outputs[0][-1] == outputs[1][-1]
