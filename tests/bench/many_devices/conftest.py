"""What the tests of many ranks share."""

from pathlib import Path

import pytest

import longca
from longca.results.reading import read
from longca.results.record import Record


@pytest.fixture(autouse=True)
def _this_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that tests start run this very package, installed or not."""
    monkeypatch.setenv("PYTHONPATH", str(Path(longca.__file__).parents[1]))


def records_of(folder: Path) -> dict[tuple[str | None, str], Record]:
    return {(record.method, record.problem.pass_.value): record for record in read(folder).records}
