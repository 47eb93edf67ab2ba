"""`longca.run`: the records as objects, from names, files and Python objects; errors, threads, signals and progress."""

import inspect
import os
import re
import signal
import sys
import threading
import time
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import longca
from longca.api.request import RunRequest
from longca.results.reading import read
from textbook import attend, right

SMALL: dict[str, Any] = {
    "masks": "causal",
    "seqlens": 64,
    "heads": "2:1",
    "head_dims": 16,
    "dtypes": "fp32",
    "budget": 0.02,
    "device": "cpu",
    "progress": False,
}


def test_an_object_and_a_name_are_measured_in_this_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pids = set[int]()

    @longca.kernel
    def watched(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
        pids.add(os.getpid())
        return attend(q, k, v, torch.from_numpy(mask.dense()), scale)

    threads = torch.get_num_threads()
    run = longca.run(kernels=[watched, "torch:plain"], passes="fwd", out=tmp_path / "out", **SMALL)
    assert run.ok
    assert pids == {os.getpid()}
    assert torch.get_num_threads() == threads
    assert [(row["kernel"], row["pass"], row["status"]) for row in run.rows] == [("torch", "fwd", "ok"), ("watched", "fwd", "ok")]
    assert [record.key for record in run.records] == [record.key for record in read(tmp_path / "out").records]
    assert capsys.readouterr() == ("", "")
    text = repr(run)
    assert "watched against the best other kernel" in text, "it is the user's own kernel"
    assert text.splitlines()[-2] == f"2 cells: 2 ok; written to {tmp_path / 'out'}/results.jsonl"
    assert run._repr_html_().count("<table>") == text.count("\nmask")


def test_what_is_an_object_is_measured_again(tmp_path: Path) -> None:
    """Its code may have changed in a way that nobody can see; a name is resumed."""
    settings: dict[str, Any] = {**SMALL, "passes": "fwd", "out": tmp_path / "out"}
    first, second = (longca.run(kernels=[right, "torch:plain"], **settings) for _ in range(2))
    assert (first.finished.measured, second.finished.measured) == (2, 1)
    assert len(read(tmp_path / "out").records) == 2, "the new record counts in the place of the old one"


def test_arguments_are_those_of_the_command() -> None:
    shown = inspect.signature(longca.run)
    assert {field.name: field.default for field in fields(RunRequest)} == {one.name: one.default for one in shown.parameters.values()}
    assert (next(iter(shown.parameters)), shown.return_annotation) == ("suite", "Run")
    with pytest.raises(TypeError, match="has no argument 'kernel'; did you mean 'kernels'"):
        longca.run(kernel="torch")


def test_a_thread_may_run_and_no_handler_changes(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    made = list[Any]()
    thread = threading.Thread(target=lambda: made.append(longca.run(kernels=right, passes="fwd", out=tmp_path / "out", **SMALL)))
    thread.start()
    thread.join()
    assert made[0].ok
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_interrupt_is_a_keyboard_interrupt_and_the_same_call_goes_on(tmp_path: Path) -> None:
    pressed = list[float]()

    @longca.kernel
    def slow(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
        if not pressed:
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        return attend(q, k, v, torch.from_numpy(mask.dense()), scale)

    before = signal.getsignal(signal.SIGINT)
    settings: dict[str, Any] = {**SMALL, "masks": ["causal", "full"], "passes": "fwd", "out": tmp_path / "out"}
    with pytest.raises(KeyboardInterrupt, match="stopped with 2 cells left; the same call continues"):
        longca.run(kernels=slow, **settings)
    assert signal.getsignal(signal.SIGINT) is before
    assert len(read(tmp_path / "out").records) == 0
    assert longca.run(kernels=slow, **settings).ok


def test_a_notebook_names_the_cell_that_runs_in_a_line_that_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = type("ZMQInteractiveShell", (), {})()
    notebook = ModuleType("IPython")
    notebook.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    longca.run(kernels=right, passes="fwd", out=tmp_path / "out", **{**SMALL, "progress": True})
    shown = capsys.readouterr()
    assert re.match(r"\r\[0/1, .* left\] right causal 64 ", shown.out)
    assert shown.out.endswith("\r")
    assert "\n" not in shown.out
    assert shown.err.startswith("[1/1, 0 s left] right causal 64 fwd: ")
