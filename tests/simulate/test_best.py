"""The order of simulated results."""

from __future__ import annotations

from longca.results.problem import Pass, Split
from longca.results.record import Outcome, Status
from longca.simulate.best import contests
from longca.simulate.predict import Prediction
from longca.simulate.run import Simulated
from longca.simulate.words import contest
from made_cells import make_cell


def simulated(grid: str, ms: float, peak: int) -> Simulated:
    cell = make_cell("fa4", mask="causal", seqlen=8192, pass_=Pass.FWD, ranks=8, split=Split("usp", grid))
    prediction = Prediction(Pass.FWD, ms, ms, 100.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, [0], [peak, peak - 1], [])
    return Simulated(cell, Outcome(status=Status.OK), prediction)


def test_of_grids_that_take_as_long_the_one_with_the_least_memory_is_the_best() -> None:
    results = [simulated("8x1", 1.0, 30), simulated("4x2", 1.0005, 10), simulated("2x4", 1.0009, 20), simulated("1x8", 1.01, 5)]
    (group,) = contests(results)
    assert [result.cell.split.grid for result in group if result.cell.split] == ["4x2", "2x4", "8x1", "1x8"]
    assert "use usp 4x2" in (sentence := contest(group))
    assert sentence.endswith("usp 2x4 takes as long.")
