"""Runs that are cut short: killed again and again, stopped with Ctrl-C, started twice; what is there in the end is always the same."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.run.test_runner import Answering
from longca.bench.plan.suite import Suite
from longca.bench.run import runner
from longca.results.files import read_results
from longca.results.journal import Journal
from longca.results.problem import Pass
from longca.results.reading import read
from longca.results.record import Record, Status
from made_cells import made_jobs

PLUGIN = Path(__file__).parents[1] / "plugins" / "cheap.py"
KILLS = 6
GRID = ["--masks", "all", "--seqlens", "16,17,18,19,20,21,22,23", "--passes", "fwd", "--kernels", "cheap"]


@pytest.fixture
def cheap(start_run: Any) -> Any:
    def start(out: Path, seconds: float = 0.0, *more: object, **environment: object) -> Any:
        arguments = ["--plugin", PLUGIN, *GRID, "--out", out, *more]
        return start_run(*arguments, CHEAP_S=seconds, **environment)

    return start


def keys(folder: Path) -> list[str]:
    return [record.key for record in read_results(folder).entries]


def finish(process: Any) -> str:
    """What a run printed to its end; one that measured nothing, as `cheap` alone does, ends with 1."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == ("nothing was measured" in output), errors
    return str(output + errors)


@pytest.mark.slow
def test_killed_again_and_again_and_resumed_gives_the_same_cells(cheap: Any, run_here: Any, tmp_path: Path) -> None:
    run_here("--plugin", PLUGIN, *GRID, "--out", tmp_path / "whole")
    out, log, rng, kills = tmp_path / "killed", tmp_path / "log", random.Random(0), 0
    for _ in range(KILLS):
        process = cheap(out, 0.04, CHEAP_LOG=log)
        before = log.stat().st_size if log.exists() else 0
        while process.poll() is None and (log.stat().st_size if log.exists() else 0) == before:
            time.sleep(0.01)  # until it works
        time.sleep(rng.uniform(0.0, 0.25))  # killed at any place between two lines of the journal
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    text = finish(cheap(out, CHEAP_LOG=log))
    assert kills == KILLS
    assert "resuming" in text
    assert sorted(keys(out)) == sorted(keys(tmp_path / "whole"))
    assert len(set(keys(out))) == len(keys(out)) > 60
    asked = Counter(tuple(line.split()[1:]) for line in log.read_text().splitlines())
    assert sum(asked.values()) - len(keys(out)) <= kills  # cells that were begun and lost: at most one per kill


def test_a_planned_stop_is_no_interrupt_and_says_how_to_go_on(cheap: Any, tmp_path: Path) -> None:
    out = tmp_path / "with a space"
    process = cheap(out, 0.1, "--stop-after", 0.3, "--passes", "fwd")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 3, errors
    left = 96 - len(keys(out))
    last = output.splitlines()[-1]
    assert last.startswith(f"stopped with {left} cells left; to continue: longca run --masks causal ")
    assert f"--out '{out}'" in last


@pytest.mark.parametrize("signals", [["SIGINT", "SIGINT"], pytest.param(["SIGTERM"], marks=pytest.mark.slow)])
def test_a_signal_stops_at_once_and_says_how_to_go_on(signals: list[str], cheap: Any, tmp_path: Path) -> None:
    process = cheap(tmp_path, 2.0)
    while not (tmp_path / "results.jsonl").exists() or not keys(tmp_path):
        time.sleep(0.02)
    for name in signals:
        process.send_signal(signal.Signals[name])
        time.sleep(0.05)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    done = len(read(tmp_path).records)
    assert 1 <= done <= 3
    assert f"\n{done} cell{'s' * (done > 1)}: {done} unsupported; written to {tmp_path}/results.jsonl\n" in output
    assert output.splitlines()[-1].startswith(f"stopped with {96 - done} cells left; to continue: longca run --masks causal ")
    assert not (tmp_path / ".cache").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "kernels"),
    [
        (["--kernels", "good,hangs"], ["good"]),
        (["--level", "cp", "--nproc", "2", "--methods", "ulysses", "--kernels", "hangs"], []),
    ],
)
def test_one_ctrl_c_ends_a_run_that_hangs(
    arguments: list[str], kernels: list[str], start_run: Any, plugins: Path, tmp_path: Path, living_workers: Any
) -> None:
    """The kernel hangs in native code that holds the interpreter's lock, in a worker or in all ranks; its deadline is minutes away."""
    out = tmp_path / "out"
    process = start_run("--plugin", plugins / "hostile.py", *arguments, "--passes", "fwd", "--out", out, LONGCA_TEST=tmp_path)
    while not (tmp_path / "hanging").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    assert living_workers(tmp_path)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert time.monotonic() - start < 10  # one second on a machine that does nothing else
    assert process.returncode == 130, errors
    assert [(record.kernel, record.status) for record in read(out).records] == [(kernel, Status.OK) for kernel in kernels]
    assert output.splitlines()[-1].startswith("stopped with 1 cell left; to continue: longca run ")
    assert not living_workers(tmp_path)


class SignalledJournal(Journal):
    """A signal comes just when the first record is on the disk."""

    def add(self, record: Record) -> None:
        super().add(record)
        if len(self.records) == 1:
            signal.raise_signal(signal.SIGTERM)


def test_a_record_that_is_written_when_the_signal_comes_is_counted(tmp_path: Path) -> None:
    suite = Suite(masks=("causal",), seqlens=(16, 17), passes=(Pass.FWD, Pass.BWD), heads=("2:1",), head_dims=("8",))
    runner.make_cache(tmp_path)
    with SignalledJournal(tmp_path) as journal, runner.signals_restored():
        ended = runner.execute(made_jobs(suite), Answering(), journal, "here", Answering())
    assert ended == (3, True)
    assert len(keys(tmp_path)) == 1


def test_a_signal_after_an_interrupted_run_does_not_cost_its_summary(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in runner.SIGNALS]
    with runner.signals_restored():
        stop = runner.Stop()
        with pytest.raises(KeyboardInterrupt), stop.listening():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # the run has ended, and its summary is being printed
        signal.raise_signal(signal.SIGTERM)
    assert stop.pressed
    assert [signal.getsignal(number) for number in runner.SIGNALS] == before


def test_a_run_that_measured_nothing_says_so_and_fails(run_here: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # also where nothing is left to try
        assert run_here("--plugin", PLUGIN, *GRID, "--seqlens", "16,17", "--masks", "causal,full", "--out", tmp_path) == 1
        last = "nothing was measured, so the exit code is 1: all 4 cells are unsupported; cheap: cheap is only here to be asked."
        assert capsys.readouterr().out.splitlines()[-1] == last


def test_a_full_disk_ends_the_run_with_one_sentence_and_keeps_what_was_measured(tmp_path: Path, plugins: Path) -> None:
    out = tmp_path / "out"
    verb = ["run", "--device", "cpu", "--plugin", str(plugins / "cheap.py"), *GRID, "--heads", "2:1", "--out", str(out)]
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))"
    program = f"{limit}; import sys; from longca.cli import main; sys.exit(main({verb!r}))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    advice = "what was measured before is kept: make room and run again to go on."
    assert ended.stderr.splitlines()[-1] == f"longca: cannot write {out}/results.jsonl: File too large; {advice}"
    assert "Traceback" not in ended.stderr
    assert 5 < len(read(out).records) < 20
    assert read_results(out).torn == 0
