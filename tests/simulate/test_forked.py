"""Forked processes give what this one would, and end with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from longca import masks
from longca.kernels.base import Case
from longca.parallel import recording, registry
from longca.parallel.method import Plan
from longca.parallel.recording import distinct_calls
from longca.simulate import forked, programs

SLEEPING = """
import os, sys, time
from pathlib import Path
from longca.simulate import forked

def sleep(number):
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(60)

list(forked.map_forked(sleep, range(4)))
"""


@pytest.mark.skipif(forked.cores() < 2 or sys.platform != "linux", reason="one core works alone; elsewhere there is no prctl")
@pytest.mark.parametrize(("number", "to_all"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_ctrl_c_and_sigterm_leave_no_process(number: int, to_all: bool, tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", SLEEPING, str(tmp_path)], start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        _wait(lambda: len(list(tmp_path.iterdir())) > 1)
        os.killpg(parent.pid, number) if to_all else parent.send_signal(number)
        parent.wait(20)
        _wait(lambda: not any(_runs(int(path.name)) for path in tmp_path.iterdir()))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


def _wait(ready: Callable[[], bool], limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_programs_recorded_in_other_processes_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = registry.plan("magi", masks.causal_document(512, documents=[200, 12, 300]), Case(512, 512, 4, 2, 64, 64, "bf16", "cuda"), 5)
    here = programs.Programs.of(plan)
    monkeypatch.setattr(programs, "MANY_RANKS", 4)
    monkeypatch.setattr(programs, "PART", 2)
    monkeypatch.setattr(forked, "cores", lambda: 2)
    assert programs.Programs.of(plan).ranks == here.ranks


def test_the_kernel_is_asked_about_each_kind_of_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps of a ring are alike under a full mask. Gathered keys are another call on each rank: of many ranks it is asked about those
    recorded here."""

    def asked(plan: Plan) -> set[str]:
        return {call.mask_digest for call in distinct_calls(programs.Programs.of(plan).ranks)}

    mask, case = masks.causal(512), Case(512, 512, 4, 2, 64, 64, "bf16", "cuda")
    assert len(asked(registry.plan("ring_p2p", masks.full(512), case, 8))) == 1
    plan = registry.plan("ring_allgather", mask, case, 8)
    first_keys = [mask.rows(rows).cols([(0, rows[-1][1])]).digest for rows in plan.shards]
    assert asked(plan) == set(first_keys)
    monkeypatch.setattr(programs, "MANY_RANKS", 4)
    monkeypatch.setattr(programs, "PART", 2)
    monkeypatch.setattr(programs, "RANKS_HERE", 3)
    monkeypatch.setattr(forked, "cores", lambda: 2)
    assert asked(plan) == {first_keys[rank] for rank in (0, 3, 6, 7)}
    monkeypatch.setattr(recording, "MOST_CALLS", 2)
    assert len(asked(plan)) == 2


def test_results_of_forked_processes_come_in_order_and_errors_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "cores", lambda: 3)
    here = os.getpid()
    assert list(forked.map_forked(lambda x: (x, os.getpid() == here), [1, 2, 3])) == [(1, False), (2, False), (3, False)]
    assert list(forked.map_longest_first(lambda x: 2 * x, [1, 3, 2], float)) == [2, 6, 4]
    with pytest.raises(ZeroDivisionError):
        list(forked.map_forked(lambda x: 1 / x, [1, 0]))
    nested = forked.map_forked(lambda x: list(forked.map_forked(lambda y: (x, y), [1, 2])), [3, 4])
    assert list(nested) == [[(3, 1), (3, 2)], [(4, 1), (4, 2)]]
