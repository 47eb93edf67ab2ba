"""Which records of two journals are the same work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longca.results.grouping import grouped
from longca.results.naming import kernel_names
from longca.results.reading import Identity, as_planned, identity, identity_fields
from longca.results.record import Record


@dataclass(frozen=True)
class Matches:
    """Pairs of records of the same work, and records whose work the other journal lacks."""

    pairs: list[tuple[Record, Record]]
    only_before: list[Record]
    only_after: list[Record]


def match(before: Sequence[Record], after: Sequence[Record]) -> Matches:
    """Matches records by what ran: the kernel with its variant, by whatever name it was asked for.

    Where a journal has one variant by several names, records with the same name are matched first. Records that are left are matched by
    what was asked for, as the same request may run another variant now, or fail: then its forward was also tried without a backward.
    """
    works = [_works(records) for records in (before, after)]
    groups = [grouped(range(len(side)), side.__getitem__) for side in works]
    partner: dict[int, int] = {}  # of a record before, the record after
    for work, indices in groups[0].items():
        others = groups[1].get(work, ())
        if len(indices) == 1 == len(others):
            partner[indices[0]] = others[0]
        elif others:
            partner |= _paired(before, after, indices, others)
    taken = set(partner.values())
    left = {_planned(record): index for index, record in enumerate(after) if index not in taken} if len(taken) < len(after) else {}
    for index, record in enumerate(before) if left else ():
        other = left.get(_planned(record)) if index not in partner else None
        if other is not None and (record.grad == after[other].grad or not (record.ok and after[other].ok)):
            partner[index] = left.pop(_planned(record))
    taken = set(partner.values())
    return Matches(
        [(before[index], after[partner[index]]) for index in sorted(partner)],
        [record for index, record in enumerate(before) if index not in partner and works[0][index] not in groups[1]],
        [record for index, record in enumerate(after) if index not in taken and works[1][index] not in groups[0]],
    )


def differing_fields(before: Sequence[Record], after: Sequence[Record]) -> dict[str, tuple[object, object]]:
    """Of journals without a cell in common, the fields in which all their records differ, with a value of each; where there are none, the
    fields in which the first record differs from the one most like it. A digest is named only where nothing else says why."""
    sides = [[identity_fields(record) for record in side] for side in (before, after)]
    names = dict.fromkeys(name for side in sides for one in side for name in one if name != "mask_digest")
    first = sides[0][0]
    other = min(sides[1], key=lambda other: sum(first.get(name) != other.get(name) for name in names))
    own, others = ({name: {repr(one.get(name)) for one in side} for name in names} for side in sides)
    everywhere = [name for name in names if own[name].isdisjoint(others[name])]
    differing = everywhere or [name for name in names if first.get(name) != other.get(name)] or ["mask_digest"]
    return {name: (first.get(name), other.get(name)) for name in differing}


def _planned(record: Record) -> Identity:
    return identity(as_planned(record))


def _works(records: Sequence[Record]) -> list[Identity]:
    named = zip(records, kernel_names(records), strict=True)
    return [identity(record, record.label if record.variant else name) for record, name in named]


def _paired(before: Sequence[Record], after: Sequence[Record], left: Sequence[int], right: Sequence[int]) -> dict[int, int]:
    """Pairs of records of one work: those asked for by the same name for the same pass, then the others in their order."""
    asked = {(after[index].asked, after[index].planned_grad): index for index in right}
    named = {index: (before[index].asked, before[index].planned_grad) for index in left}
    pairs = {index: asked.pop(name) for index, name in named.items() if name in asked}
    free = [index for index in right if index not in pairs.values()]
    return pairs | dict(zip((index for index in left if index not in pairs), free, strict=False))
