"""What the tests of many ranks share."""

from pathlib import Path

from longca.results.reading import read
from longca.results.record import Record


def records_of(folder: Path) -> dict[tuple[str | None, str], Record]:
    return {(record.method, record.problem.pass_.value): record for record in read(folder).records}
