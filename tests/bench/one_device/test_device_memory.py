"""When a worker gives the device's memory back."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from longca.bench.one_device.messages import WorkerJob
from longca.bench.one_device.session import Session


class Given:
    """A device of 100 GiB that counts how often its memory is given back."""

    def __init__(self, session: Session, free_gib: int) -> None:
        self.back = 0
        session._cuda = SimpleNamespace(empty_cache=self._empty, mem_get_info=lambda: (free_gib << 30, 100 << 30))

    def _empty(self) -> None:
        self.back += 1


@pytest.mark.parametrize(
    ("others", "free", "given_back"),
    [
        (False, 80, False),  # taking it again would cost time, and nobody else wants it
        (True, 80, True),
        (False, 30, True),  # a library that allocates past torch would find little
    ],
)
def test_memory_is_given_back_after_a_job_where_others_may_need_it(others: bool, free: int, given_back: bool, tmp_path: Path) -> None:
    session = Session(lambda phase: None, "a GPU")
    session.configure(WorkerJob(cache=str(tmp_path) if others else None))
    device = Given(session, free)
    session.end_job()
    assert device.back == given_back


def test_memory_is_given_back_after_a_problem() -> None:
    session = Session(lambda phase: None, "a GPU")
    device = Given(session, 80)
    session.end_problem()
    assert device.back == 1


def test_a_lost_device_is_not_asked_again(tmp_path: Path) -> None:
    session = Session(lambda phase: None, "a GPU")
    session.configure(WorkerJob(cache=str(tmp_path)))
    device = Given(session, 0)
    session.device_lost = True
    session.end_job()
    session.end_problem()
    assert device.back == 0
