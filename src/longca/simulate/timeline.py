"""Timelines of chosen ranks, as a trace for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longca.errors import BadInput
from longca.simulate.replay import RankTimes

ORDER = {"compute": 0, "transfers": 1}


def trace(times: Mapping[int, RankTimes], title: str) -> dict[str, Any]:
    """The spans of ranks as trace events: a process per rank, a thread for compute and one for transfers. Times are in microseconds."""
    events: list[dict[str, Any]] = []
    for rank, own in times.items():
        events.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}})
        for track, number in ORDER.items():
            events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": number, "args": {"name": track}})
        for span in own.spans:
            common = {"cat": span.kind, "name": span.name, "pid": rank, "ts": span.start * 1e6}
            if span.kind == "transfer":  # several may be under way at once
                common |= {"tid": ORDER["transfers"], "id": len(events)}
                events.append({**common, "ph": "b", "args": {"bytes": span.bytes}})
                events.append({**common, "ph": "e", "ts": span.end * 1e6})
            else:
                args = {"bytes": span.bytes} if span.bytes else {}
                events.append({**common, "tid": ORDER["compute"], "ph": "X", "dur": (span.end - span.start) * 1e6, "args": args})
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"title": title}}


def write_trace(times: Mapping[int, RankTimes], title: str, path: Path) -> None:
    try:
        path.write_text(json.dumps(trace(times, title)))
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; give another file.") from error
