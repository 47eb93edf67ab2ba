"""When a worker gives the device's memory back, and whose fault it is where there is none."""

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Never

import pytest
import torch

from in_process import outcomes_of
from longca import masks
from longca.bench.check import check, reference_store, timed_calls
from longca.bench.check.own_memory import ADVICE, CHECK, INPUTS, REFERENCE
from longca.bench.one_device.messages import WorkerJob
from longca.bench.one_device.session import Session
from longca.kernels import inputs
from longca.kernels.backends import torch_attention
from longca.results.problem import Pass
from longca.results.settings import ClockSettings
from made_cells import make_cell

QUICK = ClockSettings(warmup_s=0, budget_s=0.001, least=3)
ASKED = "it asked for 24.00 GiB at once, and 13.37 GiB were free"


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
    session.end_problem()
    assert device.back == given_back + 1
    session.device_lost = True
    session.end_job()
    session.end_problem()
    assert device.back == given_back + 1


def run_out(*_: Any, **__: Any) -> Never:
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 24.00 GiB. GPU 0 has 139.80 GiB of which 13.37 GiB is free. Advice."
    )


def reasons() -> set[tuple[str, str]]:
    """Status and reason of all passes of a kernel on a short mask."""
    cells = [make_cell("torch:plain", mask="causal", seqlen=96, pass_=pass_) for pass_ in Pass]
    found = outcomes_of(WorkerJob(cells=cells, digest=masks.causal(96).digest, clock=QUICK))
    return {(outcome.status, outcome.reason) for outcome in found.values()}


@pytest.mark.parametrize(
    ("module", "name", "step"),
    [
        (reference_store, "reference", REFERENCE),
        (check, "data", INPUTS),
        (check, "_poison", CHECK),
        (check, "compare", CHECK),
        (inputs, "make", INPUTS),
        (timed_calls, "check_timed", CHECK),
    ],
)
def test_where_the_harness_has_no_memory_the_reason_names_its_step(
    module: ModuleType, name: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, run_out)
    assert reasons() == {("oom", f"no memory for {step}: {ASKED}; {ADVICE}")}


def test_where_the_kernel_has_no_memory_the_reason_says_how_much_it_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_attention._Plain, "forward", run_out)
    assert reasons() == {("oom", f"out of memory: {ASKED}")}
