"""Ranks that somebody else started: the first one's side, in a job of one rank. tests/bench/many_devices/test_joined.py has whole jobs."""

import resource
from typing import Any

import pytest

from longca.errors import LongcaError
from longca.parallel.comm.local import World
from longca.parallel.joining import Job
from longca.processes.joined import Joined
from longca.processes.ranks import RankFailed


class OneRank:
    """A job of one rank needs no store that others see."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value

    def get(self, key: str) -> str:
        return self.kept[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.kept for key in keys)

    def delete_key(self, key: str) -> None:
        del self.kept[key]


@pytest.fixture
def alone() -> tuple[Joined, OneRank]:
    store, comm = OneRank(), World(1).comms()[0]
    comm.close, comm.reopen = lambda at_once: None, lambda: None  # type: ignore[attr-defined]  # only real ranks can fail alone
    return Joined(Job(comm, store)), store  # type: ignore[arg-type]


def test_what_the_first_rank_raises_is_no_timeout(alone: tuple[Joined, OneRank]) -> None:
    joined, store = alone
    with pytest.raises(RankFailed, match="rank 0 failed: seven is not prime enough") as caught:
        joined.run("parallel.jobs:fail", {"rank": 0}, 60)
    assert caught.value.kind == "error"
    with pytest.raises(RankFailed, match="is not JSON serializable"):
        joined.run("builtins:type", {}, 60)
    assert joined.run("parallel.jobs:hang", {"rank": 1}, 60) == ["done"]  # all have answered, so all can go on
    joined.close()
    assert any("task" in key for key in store.kept)  # a goodbye


def test_ranks_that_are_left_in_the_middle_get_no_task_and_no_goodbye(alone: tuple[Joined, OneRank]) -> None:
    joined, store = alone
    with pytest.raises(RankFailed, match=r"rank 0 did not answer within 0\.2 s") as caught:
        joined.run("parallel.jobs:hang", {"rank": 0}, 0.2)
    assert caught.value.kind == "timeout"
    with pytest.raises(LongcaError, match="no longer answer"):
        joined.run("parallel.jobs:greet", {}, 60)
    joined.close()
    assert [key for key in store.kept if "task" in key] == ["1/task"]  # no goodbye: nobody would hear it


def test_joined_ranks_can_bound_their_memory(alone: tuple[Joined, OneRank], monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(resource, "setrlimit", lambda *limit: given.append(limit))
    alone[0].run("longca.processes.ranks:limit_data", {"size": 1 << 30}, 60)
    assert given == [(resource.RLIMIT_DATA, (1 << 30, 1 << 30))]
