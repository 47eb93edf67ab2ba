"""What tiles let a mask reach: the dense speed times the mask's area over the area of the tiles that it touches."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from longca.results.grouping import grouped
from longca.results.problem import Operator, Pass
from longca.results.reading import Results
from longca.results.record import Record
from longca.results.tile_work import stored_share, tile_rows

DENSE = "full"
LIMITED = (Pass.FWD, Pass.BWD)  # passes that are one kernel, with one shape of tiles

Group = tuple[object, ...]  # what a dense speed and the speeds beside it have in common


class Limits:
    """The speeds that tiles allow, for the records of one or several journals. The dense speed of a pass is the highest of any kernel on
    the mask `full`, at any length, in all runs on devices of one name; a pass without one has no limit. A record with an SM clock has the
    limit of that clock: the highest work per cycle times its clock."""

    def __init__(self, results: Results) -> None:
        self._results, self._masks = results, results.masks
        dense = grouped([record for record in results.records if record.problem.mask == DENSE and is_limited(record)], self._group)
        self._dense = {group: max(record.speed for record in own) for group, own in dense.items()}
        per_mhz = {group: [record.speed / mhz for record in own if (mhz := record.times.mhz)] for group, own in dense.items()}
        self._per_mhz = {group: max(speeds) for group, speeds in per_mhz.items() if speeds}

    def of(self, record: Record) -> float | None:
        """The limit of a timed record in TFLOP/s; None where it has none."""
        if not is_limited(record):
            return None
        group, mhz = self._group(record), record.times.mhz
        dense = self._per_mhz[group] * mhz if mhz and group in self._per_mhz else self._dense.get(group)
        share = None if dense is None else self._share(record)
        return None if dense is None or share is None else dense * share

    def dense(self, device: str, pass_: Pass, operator: Operator) -> float | None:
        """The dense speed in TFLOP/s; None where no kernel was measured with this operator."""
        return self._dense.get((device, pass_, replace(operator, scale=0.0)))

    def share(self, records: Sequence[Record]) -> float | None:
        """The time that tiles allow for these passes, one after the other, over the time that they took."""
        limits = [self.of(record) for record in records]
        allowed = [record.times.median * record.speed / limit for record, limit in zip(records, limits, strict=True) if limit is not None]
        return sum(allowed) / sum(record.times.median for record in records) if len(allowed) == len(records) else None

    def _group(self, record: Record) -> Group:
        return self._results.environment(record).name, record.problem.pass_, replace(record.problem.operator, scale=0.0)

    def _share(self, record: Record) -> float | None:
        entry = self._masks.get((record.built.digest, record.problem.mask))
        rows = tile_rows(record.problem.pass_, record.problem.heads_q, record.problem.heads_kv)
        return None if entry is None else stored_share(entry, rows)


def is_limited(record: Record) -> bool:
    """Whether a record is one kernel's time on one device."""
    return record.ok and record.problem.pass_ in LIMITED and record.split is None
