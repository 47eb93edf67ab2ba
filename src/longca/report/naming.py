"""What records are called beside each other, which no record tells alone."""

from __future__ import annotations

from collections.abc import Sequence

from longca import masks
from longca.report.reading import Record

PLAIN = ("full", "causal")  # masks without parameters, which others become where a window or a block is as long as the sequence


def same_masks(records: Sequence[Record]) -> list[str | None]:
    """For each record the name of a simpler mask if its own is the very same at that length: a kernel that can do only the simpler one
    runs there, and that says nothing about its own mask."""
    names: dict[tuple[int, str], dict[str, int]] = {}  # the number of parameters by name
    for seqlen in {record["seqlen"] for record in records}:
        for name in PLAIN:
            names.setdefault((seqlen, masks.build(name, seqlen).digest), {})[name] = -1
    for record in records:
        names.setdefault((record["seqlen"], record["mask_digest"]), {}).setdefault(record["mask"], len(record["params"]))
    simplest = {place: min(found, key=lambda name: (found[name], name)) for place, found in names.items()}
    found = [simplest[record["seqlen"], record["mask_digest"]] for record in records]
    return [None if name == record["mask"] else name for name, record in zip(found, records, strict=True)]
