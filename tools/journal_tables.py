"""The table of results/h200/README.md: what its journals contain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from measured_tables import journal

from longca.results.ratio import ENOUGH_SAMPLES
from longca.results.record import Record, Status
from longca.results.tables import markdown_table

JOURNALS = ("paper-kernel", "magi-kernel", "seeds", "model-shapes", "equal-heads", "windows", "paper-sparse")
COUNTED, OTHERS = (Status.OK, Status.WRONG), (Status.UNSUPPORTED, Status.SKIPPED)
HEAD = ("journal", "cells", "measured", "wrong", "noisy", "few samples")


def contents() -> str:
    """Per journal: the cells by their status, and how many are noisy or of few samples."""
    found = {name: journal(f"h200/{name}").records for name in JOURNALS}
    return markdown_table(list(HEAD), [[name, str(len(records)), *_counts(records)] for name, records in found.items()])


def _counts(records: Sequence[Record]) -> list[str]:
    status = Counter(record.status for record in records)
    if rest := status.keys() - {*COUNTED, *OTHERS}:
        raise SystemExit(f"the table of journals has no column for {', '.join(rest)}.")
    timed = [record for record in records if record.ok]
    spreads = [100 * (record.times.spread or 0.0) for record in timed if record.noisy]
    noisy = f"{len(spreads)} ({median(spreads):.1f}/{max(spreads):.1f})" if spreads else "0"
    few = sum(len(record.times.samples) < ENOUGH_SAMPLES for record in timed)
    return [*(str(status[name]) if status[name] else "" for name in COUNTED), noisy, str(few)]


TABLES = {"journals": contents}
