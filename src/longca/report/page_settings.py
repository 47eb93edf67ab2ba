"""The sections of the page for one setting: the first table, the order of kernels, the board, failures, dense levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from longca.results.cells import Numbers, board_of, cells_of, dense_of, fastest_of, order_of, panels_of, peak_of, start_of
from longca.results.frames import frame_of
from longca.results.grouping import grouped
from longca.results.groups import Groups
from longca.results.limits import Limits
from longca.results.naming import Row, simulated_on
from longca.results.problem import Pass
from longca.results.record import NEVER_RAN
from longca.results.statuses import WORDS
from longca.results.summary import failures
from longca.results.tables import speed_unit

Data = dict[str, Any]


def setting_data(
    groups: Groups, everything: Sequence[Row], limits: Limits, records: Numbers, pictures: Mapping[str, Data], place: str
) -> Data:
    """All sections of one setting. `pictures` are by the name of a mask; `place` is what a rank runs on."""
    rows, found = groups.rows, groups.every
    frame = frame_of(rows, place)
    cells, panels = cells_of(frame, found, limits, records), panels_of(frame, rows)
    fastest = fastest_of(frame, found, limits, records)
    return {
        "title": rows[0].contest.setting.title,
        "axis": frame.axis,
        "line": "method" if rows[0].record.method else "kernel",
        "place": place,
        "unit": speed_unit([entry["tflops"] for entry in fastest]),
        "panels": [[panel, pictures.get(own[0].mask_name)] for panel, own in panels.items()],
        "passes": [pass_ for pass_ in Pass if any(group.contest.pass_ is pass_ for group in found)],
        "peak": peak_of(rows),
        "suffix": _suffix(rows),
        "at": start_of(frame, rows),
        "matrix": fastest,
        "order": [[pass_, order_of(frame, own)] for pass_, own in grouped(found, lambda group: group.contest.pass_).items()],
        "board": board_of(frame, rows, cells),
        "failures": _failures(panels),
        "dense": dense_of(frame, rows, everything, records),
        "cells": cells,
    }


def _suffix(rows: Iterable[Row]) -> str:
    """What the names of all lines end with, where everything was simulated on one cluster."""
    clusters = {row.record.simulated for row in rows}
    (cluster, *others) = clusters
    return simulated_on(cluster) if not others else ""


def _failures(panels: Mapping[str, Sequence[Row]]) -> list[Data]:
    """Why cells have no time: one entry per reason, with its kernels and masks. What went wrong comes before what was never tried."""
    found = [(panel, failure) for panel, own in panels.items() for failure in failures(own)]
    entries = []
    for (status, _), group in grouped(found, lambda item: (item[1].status, item[1].pattern)).items():
        first, own = group[0][1], [failure for _, failure in group]
        entry = {
            "status": status,
            "words": WORDS[status],
            "quiet": status in NEVER_RAN,
            "reason": first.reason,
            "lengths": first.lengths,
            "kernels": list(dict.fromkeys(failure.line for failure in own)),
            "passes": [pass_ for pass_ in Pass if any(pass_ in failure.passes for failure in own)],
            "masks": list(dict.fromkeys(panel for panel, _ in group)),
            "count": sum(failure.count for failure in own),
        }
        entries.append(entry)
    return sorted(entries, key=lambda entry: (entry["quiet"], -entry["count"]))
