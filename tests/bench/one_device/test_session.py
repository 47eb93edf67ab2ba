"""What a worker keeps between jobs: the mask of a problem, the device; and how it measures memory."""

import time

import pytest

from longca.bench.one_device.session import Session
from longca.bench.run.outcomes import CellFailed
from longca.results.problem import Pass
from longca.results.record import Status
from longca.results.settings import ClockSettings
from made_cells import make_cell

CELL = make_cell("torch:plain", mask="causal", seqlen=96, pass_=Pass.FWD)


@pytest.fixture
def session() -> Session:
    return Session(lambda phase: None, "a CPU")


def test_another_mask_than_planned_is_an_error(session: Session) -> None:
    digest = CELL.problem.build_mask().digest
    with pytest.raises(CellFailed, match=rf"^the worker built another mask \({digest}\) than was planned \(other\)$") as failed:
        session.mask(CELL, "other")
    assert failed.value.status is Status.ERROR
    assert session.mask(CELL, digest).digest == digest


class FakeCuda:
    """Counts bytes as torch does: what is held now, and the most since the last reset."""

    def __init__(self) -> None:
        self.held = self.most = 0
        self.running_s = 0.0  # of what was enqueued

    def take(self, size: int) -> None:
        self.held += size
        self.most = max(self.most, self.held)

    def memory_allocated(self) -> int:
        return self.held

    def max_memory_allocated(self) -> int:
        return self.most

    def reset_peak_memory_stats(self) -> None:
        self.most = self.held

    def synchronize(self) -> None:
        time.sleep(self.running_s)
        self.running_s = 0.0

    def empty_cache(self) -> None:
        pass


def test_peak_memory_is_the_calls_own_whatever_was_there_before(session: Session) -> None:
    cuda = FakeCuda()
    session.start_device("cpu")
    session._cuda, session.clock = cuda, ClockSettings(warmup_s=0.0, least=2, most=2)
    cuda.take(240 << 20)  # the flush buffer
    cuda.take(7000)  # inputs
    cuda.take(9999)
    cuda.take(-9999)  # an earlier, higher peak

    def call() -> None:
        cuda.take(500)
        cuda.take(-400)

    def change() -> None:  # what changes the inputs is not the kernel's memory
        cuda.take(9999)
        cuda.take(-9999)

    peak_bytes, timing = session.time(call, change)
    assert peak_bytes == 500
    assert session.allocated() == (240 << 20) + 7000 + 100 * (1 + len(timing.samples))


@pytest.mark.parametrize(("device_s", "warming"), [(0.03, 0), (0.0, 1)])
def test_the_call_that_shows_the_memory_warms_up_as_far_as_it_loads_the_device(session: Session, device_s: float, warming: int) -> None:
    """A host that compiles in it lets the device rest."""
    session.start_device("cpu")
    cuda, calls = FakeCuda(), list[None]()
    session._cuda, session.clock = cuda, ClockSettings(warmup_s=0.02, least=6, target=1.0)

    def call() -> None:
        calls.append(time.sleep(0.03))
        cuda.running_s = device_s

    changes = list[None]()
    session.time(call, lambda: changes.append(None))
    assert len(calls) == 1 + warming + 3
    assert len(changes) == warming + 3  # the inputs change before each call that the timer makes
