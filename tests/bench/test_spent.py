"""What a run's time is counted for, and when a worker gives memory back."""

import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from longca.bench import cp_catalogue, cp_executor, plan
from longca.bench import suite as suites
from longca.bench.catalogue import Catalogue
from longca.bench.session import Session
from longca.bench.suite import Limits
from longca.bench.supervisor import Gone, Worker
from longca.parallel.pool import RankFailed

TALKS = """
import os, sys, time
commands, replies = map(int, sys.argv[1:3])
listen = lambda: os.read(commands, 1 << 16)
say = lambda text: os.write(replies, text.encode() + b"\\n")
listen()
say('{"ready": []}')
listen()
say('{"phase": "check"}')
time.sleep(2)
say('{"phase": "time"}')
time.sleep(.1)
say('{"done": true}')
listen()
say('{"phase": "SECOND"}')
time.sleep(600)
"""


@pytest.fixture
def talking(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Workers that come through a first job, and begin a second with the phase given here."""
    start = subprocess.Popen

    def with_second(phase: str) -> Worker:
        program = ["-c", TALKS.replace("SECOND", phase)]
        monkeypatch.setattr(subprocess, "Popen", lambda words, **more: start([words[0], *program, *words[-3:]], **more))
        worker = Worker(Limits(build_s=2), "cpu", "")
        worker.wait_ready()
        assert list(worker.run({})) == [{"done": True}]
        return worker

    return with_second


def test_seconds_are_counted_by_phase_even_of_a_worker_that_is_killed(talking: Any) -> None:
    worker = talking("reference")
    spent = worker.take_seconds()
    assert spent["start"] > 0
    # messages are counted when they are read, which a busy machine does late: wide margins
    assert spent["check"] > 1 > spent["time"] > 0
    time.sleep(2)  # between jobs it costs nobody anything
    worker.wait_ready()
    with pytest.raises(Gone, match=r"^the reference took longer than its 2 s$"):
        list(worker.run({}))
    spent = worker.take_seconds()
    assert spent["reference"] > 1.5
    assert spent.keys() <= {"build", "reference", "time"}
    assert spent["time"] < 1


def test_a_phase_that_nobody_knows_is_no_word_of_a_worker(talking: Any) -> None:
    worker = talking("lunch")
    with pytest.raises(Gone, match=r"^something wrote to the worker's own pipe during building$"):
        list(worker.run({}))


class SlowGroup:
    """Ranks that die after a while."""

    lost = False

    def run(self, job: str, given: dict[str, Any], seconds: float) -> list[Any]:
        time.sleep(0.1)
        raise RankFailed(0, "died", "died with exit status 9", "")

    def close(self) -> None: ...


def test_seconds_of_ranks_are_counted_by_phase_even_if_they_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp_executor.Ranks, "_begin", lambda *given: SlowGroup())
    suite = suites.Suite(level="cp", methods=("ring_p2p",), nproc=2, masks=("causal",), seqlens=("64",), heads=("2:1",), passes=("fwd",))
    (job,) = plan.jobs(plan.plan(cp_catalogue.cells(suite, ["torch:chunked"], "cpu"), "a CPU", {"torch:chunked": {}}))
    ranks = cp_executor.Ranks(suite, Catalogue(), "cpu", "a CPU", tmp_path, False)
    assert [fields["status"] for _, fields in ranks.run(job)] == ["error"]
    assert ranks.spent_s.keys() == {"build"}
    assert 0.1 <= ranks.spent_s["build"] < 10


@pytest.mark.parametrize(
    ("last", "others", "free", "given_back"),
    [
        (False, False, 80, False),  # taking it again would cost time, and nobody else wants it
        (False, True, 80, True),
        (False, False, 30, True),  # a library that allocates past torch would find little
        (True, False, 80, True),
    ],
)
def test_memory_is_given_back_where_others_may_need_it(last: bool, others: bool, free: int, given_back: bool, tmp_path: Path) -> None:
    emptied = list[bool]()
    session = Session(lambda message: None, "a GPU")
    session._cuda = SimpleNamespace(empty_cache=lambda: emptied.append(True), mem_get_info=lambda: (free << 30, 100 << 30))
    session.cache = tmp_path if others else None
    session.after_job(last)
    assert bool(emptied) == given_back
    session.fatal = True
    session.after_job(last)
    assert len(emptied) <= 1  # a device that is lost is not asked again
