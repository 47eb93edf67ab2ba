"""The tables of results/h200/README.md: what its journals contain, and how steady the clock was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mean, median

from measured_tables import journal

from longca.results.ratio import ENOUGH_SAMPLES
from longca.results.record import Record, Status
from longca.results.tables import markdown_table

JOURNALS = ("paper-kernel", "magi-kernel", "seeds", "model-shapes", "equal-heads", "windows", "paper-sparse")
COUNTED = (Status.OK, Status.UNSUPPORTED, Status.SKIPPED, Status.WRONG)
MOMENTARY = ("seeds", "model-shapes", "equal-heads", "windows")  # journals whose power is always that of the moment
LIGHT_MHZ, LOADED_W = 1950, 600  # from this clock on, and below this power, a kernel ran under little load
STEPPED, FEW = 1.03, 6  # the last third over the first, of at least so many samples
HEAD = ("journal", "cells", "measured", "unsupported", "skipped", "wrong", "noisy", "few samples")


def contents() -> str:
    """Per journal: the cells by their status, and how many are noisy or of few samples."""
    found = {name: journal(f"h200/{name}").records for name in JOURNALS}
    return markdown_table(list(HEAD), [[name, str(len(records)), *_counts(records)] for name, records in found.items()])


def _counts(records: Sequence[Record]) -> list[str]:
    status = Counter(record.status for record in records)
    if rest := status.keys() - set(COUNTED):
        raise SystemExit(f"the table of journals has no column for {', '.join(rest)}.")
    timed = [record for record in records if record.ok]
    spreads = [100 * (record.times.spread or 0.0) for record in timed if record.noisy]
    noisy = f"{len(spreads)} (±{median(spreads):.1f} %, at most ±{max(spreads):.1f} %)" if spreads else "0"
    few = sum(len(record.times.samples) < ENOUGH_SAMPLES for record in timed)
    return [*(str(status[name]) if status[name] else "" for name in COUNTED), noisy, str(few)]


def clock_steps() -> str:
    """Per journal: cells in which the clock stepped down during sampling, and cells that were compared under other loads."""
    table = []
    for name in JOURNALS:
        timed = [record for record in journal(f"h200/{name}").records if record.ok]
        many = [record for record in timed if len(record.times.samples) >= FEW]
        steps = [record for record in many if _slower_at_the_end(record.times.samples) > STEPPED]
        steady = [f"{len(steps)} of {len(many)}", str(sum(bool(record.noisy) for record in steps))]
        table.append([name, *steady, *(_under_little_load(timed) if name in MOMENTARY else ("", ""))])
    return markdown_table(["journal", "the clock stepped", "of these noisy", "under little load", "rankings that such a cell leads"], table)


def _under_little_load(timed: Sequence[Record]) -> tuple[str, str]:
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in timed:
        groups.setdefault(
            (record.built.digest, record.problem.mask, record.problem.heads_q, record.problem.head_dim, record.problem.pass_), []
        ).append(record)
    mixed = [own for own in groups.values() if any(map(_light, own)) and any(map(_loaded, own))]
    light = sum(_light(record) for own in mixed for record in own)
    first = sum(_light(max(own, key=lambda record: record.speed)) for own in mixed)
    return f"{light} of {len(timed)}", f"{first} of {len(groups)}"


def _light(record: Record) -> bool:
    """Whether a cell ran at nearly the highest clock and drew little power."""
    return (record.times.clock_mhz or 0) >= LIGHT_MHZ and not _loaded(record)


def _loaded(record: Record) -> bool:
    return ((record.energy and record.energy.watts) or 0) >= LOADED_W


def _slower_at_the_end(samples: Sequence[float]) -> float:
    third = len(samples) // 3
    return mean(samples[-third:]) / mean(samples[:third])


TABLES = {"journals": contents, "clock-steps": clock_steps}
