"""The table of results/h200/README.md: what its journals contain, and which code measured it."""

from __future__ import annotations

from collections import Counter
from statistics import median

from measured_tables import journal

from longca.results.ranking import ENOUGH_SAMPLES
from longca.results.reading import Results
from longca.results.record import Record, Status
from longca.results.tables import markdown_table
from longca.text import format_size

JOURNALS = ("paper-kernel", "magi-kernel", "seeds", "model-shapes", "equal-heads", "windows", "paper-sparse")
COUNTED = (Status.OK, Status.UNSUPPORTED, Status.SKIPPED, Status.WRONG)
HEAD = ("journal", "code", "tokens", "cells", "measured", "unsupported", "skipped", "wrong", "noisy", "few samples", "warm-up")


def contents() -> str:
    """Per journal and commit: its lengths, the cells by their status, how many are noisy or of few samples, and the warm-up."""
    table = []
    for name in JOURNALS:
        found = journal(f"h200/{name}")
        by_code: dict[tuple[str, float], list[Record]] = {}
        for record in found.records:
            by_code.setdefault((_code(found, record), found.environment(record).warmup_s or 0.0), []).append(record)
        for (code, warmup_s), own in sorted(by_code.items(), key=lambda item: -len(item[1])):
            table.append([name, code, _lengths(own), str(len(own)), *_counts(own), f"{1e3 * warmup_s:.0f} ms"])
    return markdown_table(list(HEAD), table)


def _code(found: Results, record: Record) -> str:
    """The commit, with a plus where files differed from it."""
    environment = found.environment(record)
    return environment.commit[:7] + "+" * bool(environment.changed)


def _lengths(records: list[Record]) -> str:
    """All lengths, or the first and the last of many."""
    own = [format_size(seqlen) for seqlen in sorted({record.seqlen for record in records})]
    return ", ".join(own) if len(own) <= 4 else f"{own[0]} to {own[-1]}"


def _counts(records: list[Record]) -> list[str]:
    status = Counter(record.status for record in records)
    if rest := status.keys() - set(COUNTED):
        raise SystemExit(f"the table of journals has no column for {', '.join(rest)}.")
    timed = [record for record in records if record.ok]
    spreads = [100 * (record.times.spread or 0.0) for record in timed if record.noisy]
    noisy = f"{len(spreads)} ({median(spreads):.1f} %, at most {max(spreads):.1f} %)" if spreads else "0"
    few = [record.times.median for record in timed if len(record.times.samples) < ENOUGH_SAMPLES]
    short = f"{len(few)} (from {min(few):.0f} ms on)" if few else "0"
    return [*(str(status[name]) if status[name] else "" for name in COUNTED), noisy, short]


TABLES = {"journals": contents}
