"""What was not measured and why. The same reason at many lengths is one row, whatever numbers it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from longca.bench.summary import Table, label
from longca.report.reading import Record
from longca.text import format_size, printable

NUMBER = re.compile(r"\d[\d.]*(?: ?[KMGT]i?B)?")  # with its unit, which grows with it


def not_measured(records: Sequence[Record]) -> Table:
    """How often each kernel gave each reason; of reasons that differ in their numbers only, the one at the longest length."""
    lengths = sorted({record["seqlen"] for record in records})
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record["status"] != "ok":
            groups.setdefault((label(record), record["status"], NUMBER.sub("#", record["reason"])), []).append(record)
    rows = []
    for (kernel, status, _), group in sorted(groups.items()):
        own = {record["seqlen"] for record in group}
        example = "e.g. " if len({record["reason"] for record in group}) > 1 else ""
        reason = max(group, key=lambda record: record["seqlen"])["reason"]
        rows.append([kernel, status, str(len(group)), named_lengths(own, lengths), example + printable(reason)])
    return Table("not measured", ["kernel", "status", "cells", "lengths", "why"], rows)


def named_lengths(own: Iterable[int], every: Sequence[int]) -> str:
    """Three and more that follow each other are named by their ends."""
    found = sorted(own)
    start = every.index(found[0])
    gapless = len(found) > 2 and list(every[start : start + len(found)]) == found
    return f"{format_size(found[0])} to {format_size(found[-1])}" if gapless else ", ".join(map(format_size, found))
