"""What a run's time is counted for, and when a worker gives memory back."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from longca.bench.catalogue import Catalogue
from longca.bench.session import Session

from longca.bench import cp_catalogue, cp_executor, plan
from longca.bench import suite as suites
from longca.processes.ranks import RankFailed


class SlowGroup:
    """Ranks that die after a while."""

    lost = False

    def run(self, job: str, given: dict[str, Any], seconds: float) -> list[Any]:
        time.sleep(0.1)
        raise RankFailed(0, "died", "ended with exit code 9", "")

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
