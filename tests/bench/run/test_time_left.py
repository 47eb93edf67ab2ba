"""The time left of a run weighs cells by their estimated work."""

from types import SimpleNamespace
from typing import Any

import pytest

from longca.bench.plan.cell import Cell
from longca.bench.run.progress import TRUST, TRUST_S, TimeLeft
from longca.results.problem import Pass
from longca.results.record import Status
from made_cells import make_cell


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(key: str, status: Status = Status.OK) -> Any:
    return SimpleNamespace(key=key, status=status)


def cell(kernel: str = "mine", mask: str = "causal", seqlen: int = 1024) -> Cell:
    return make_cell(
        kernel=kernel, mask=mask, seqlen=seqlen, heads_q=1, heads_kv=1, head_dim=8, head_dim_v=8, dtype="fp32", pass_=Pass.FWD, seed=seqlen
    )


def test_a_long_cell_counts_as_long() -> None:
    clock = Clock()
    left = TimeLeft({"small": 1.0, "large": 600.0}, {"small": cell(), "large": cell(seqlen=2048)}, clock)
    assert left.seconds == 601
    clock.now = 1.0
    left.finished(record("small"))
    assert left.seconds == pytest.approx(600)
    clock.now = 101.0
    assert left.seconds == pytest.approx(500)  # the large one is under way
    left.finished(record("large"))
    assert left.seconds == 0


def test_what_cells_took_corrects_the_estimate() -> None:
    clock = Clock()
    left = TimeLeft({f"{n}": 10.0 for n in range(10)}, {f"{n}": cell(seqlen=n) for n in range(10)}, clock)
    for n in range(5):
        clock.now += 30.0
        left.finished(record(f"{n}"))
    trust = TRUST * 100
    assert left.seconds == pytest.approx(50 * (150 + trust) / (50 + trust))


def test_a_first_cell_that_compiles_does_not_change_the_estimate_of_a_long_run() -> None:
    clock = Clock()
    left = TimeLeft({f"{n}": 1.0 for n in range(1000)}, {f"{n}": cell(seqlen=n) for n in range(1000)}, clock)
    clock.now = 11.0
    left.finished(record("0"))
    assert 999 < left.seconds < 1.25 * 999
    assert TimeLeft({"0": 1.0}, {"0": cell()}, clock)._measured == TRUST_S


@pytest.mark.parametrize("status", [Status.UNSUPPORTED, Status.SKIPPED])
def test_a_mask_that_a_kernel_did_not_run_at_one_length_is_expected_to_take_no_time_at_others(status: Status) -> None:
    cells = {f"{mask} {seqlen}": cell("mine", mask, seqlen) for seqlen in (1024, 2048, 4096) for mask in ("full", "causal")}
    clock = Clock()
    left = TimeLeft(dict.fromkeys(cells, 20.0), cells, clock)
    left.finished(record("full 1024", status))
    assert left.seconds == pytest.approx(60)
    clock.now = 20.0
    left.finished(record("causal 1024"))
    assert left.seconds == pytest.approx(40)
    clock.now = 40.0
    left.finished(record("full 2048"))  # it does run at this length
    assert left.seconds == pytest.approx(60)
