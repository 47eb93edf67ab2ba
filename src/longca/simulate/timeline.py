"""Timelines of chosen ranks: as a trace for Perfetto, and as a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longca.errors import BadInput
from longca.simulate.replay import RankTimes, Span

TRACKS = {"attention": "compute", "memory": "compute", "waiting": "compute", "transfer": "transfers"}
COLOURS = {"attention": "#4269d0", "memory": "#97bbf5", "transfer": "#efb118", "waiting": "#ff725c"}
ORDER = {"compute": 0, "transfers": 1}


def trace(times: Mapping[int, RankTimes], title: str) -> dict[str, Any]:
    """The spans of ranks as trace events: a process per rank, a thread for compute and one for transfers. Times are in microseconds."""
    events: list[dict[str, Any]] = []
    for rank, own in times.items():
        events.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}})
        for track, number in ORDER.items():
            events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": number, "args": {"name": track}})
        for span in own.spans:
            if span.kind == "transfer":  # several may be under way at once
                common = {"cat": span.kind, "name": span.name, "pid": rank, "tid": 1, "id": len(events)}
                events.append({**common, "ph": "b", "ts": span.start * 1e6, "args": {"bytes": span.bytes}})
                events.append({**common, "ph": "e", "ts": span.end * 1e6})
            else:
                events.append(_complete(rank, span))
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"title": title}}


def _complete(rank: int, span: Span) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": span.kind,
        "name": span.name,
        "pid": rank,
        "tid": ORDER[TRACKS[span.kind]],
        "ts": span.start * 1e6,
        "dur": (span.end - span.start) * 1e6,
        "args": {"bytes": span.bytes} if span.bytes else {},
    }


def write_trace(times: Mapping[int, RankTimes], title: str, path: Path) -> None:
    try:
        path.write_text(json.dumps(trace(times, title)))
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; give another file.") from error


def draw(times: Mapping[int, RankTimes], title: str, path: Path) -> None:
    """A picture of ranks over time: compute above, transfers below, waiting in red."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    figure, axes = pyplot.subplots(figsize=(12, 1.2 + 0.45 * len(times)), layout="constrained")
    for place, own in enumerate(times.values()):
        for kind in COLOURS:
            bars = [(span.start * 1e3, (span.end - span.start) * 1e3) for span in own.spans if span.kind == kind]
            if bars:
                low, height = (place + 0.02, 0.22) if kind == "transfer" else (place - 0.3, 0.3)
                axes.broken_barh(bars, (low, height), facecolors=COLOURS[kind], linewidth=0)
    axes.set_yticks(range(len(times)), [f"rank {rank}" for rank in times])
    axes.invert_yaxis()
    axes.set_xlabel("ms")
    axes.set_title(title, loc="left", fontsize=10)
    axes.legend(handles=[Patch(color=colour, label=kind) for kind, colour in COLOURS.items()], ncols=4, fontsize=8, loc="upper right")
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; give another file.") from error
    pyplot.close(figure)
