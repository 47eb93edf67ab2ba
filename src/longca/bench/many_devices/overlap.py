"""What ranks do when: one call on every rank under torch's profiler, as one file for Perfetto, and how far compute hides transfers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

from longca.results.tables import Table
from longca.text import slug

if TYPE_CHECKING:
    from longca.results.record import Record

CALL = "longca call"
ON_GPU, ON_CPU = ("kernel", "gpu_memcpy", "gpu_memset"), ("cpu_op", "user_annotation")  # categories of the profiler's events
TRANSFERS = ("nccl", "gloo:")  # how the names of kernels and calls begin that move data between ranks
COLUMNS = ["method", "kernel", "mask", "tokens", "pass", "ms", "compute", "exposed", "hidden", "waiting"]


class Span(msgspec.Struct, frozen=True):
    """A kernel, a copy or a call. Times are in microseconds from the beginning of the rank's call; a row is a stream or a thread."""

    name: str
    row: str
    start: float
    end: float

    @property
    def is_transfer(self) -> bool:
        return self.name.startswith(TRANSFERS)


def profiled(call: Callable[[], object], begin: Callable[[], object], settle: Callable[[], object], on_gpu: bool) -> list[Span]:
    """What runs on this rank's device during a call. `begin` waits for all ranks once the profiler runs: how long that takes to start
    differs between ranks, and would be counted as the transfers of those that are first."""
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        begin()
        with record_function(CALL):
            call()
            settle()
    with tempfile.TemporaryDirectory(prefix="longca-trace-") as folder:
        profiler.export_chrome_trace(f"{folder}/trace.json")
        entries = json.loads(Path(f"{folder}/trace.json").read_text())["traceEvents"]
    entries = [entry for entry in entries if entry["ph"] == "X" and "dur" in entry]
    begun, ended = next((entry["ts"], entry["ts"] + entry["dur"]) for entry in entries if entry["name"] == CALL)
    wanted = ON_GPU if on_gpu else ON_CPU
    spans = [
        Span(entry["name"], _row(entry, on_gpu), entry["ts"] - begun, entry["ts"] - begun + entry["dur"])
        for entry in entries
        if entry.get("cat") in wanted and entry["name"] != CALL and begun <= entry["ts"] < ended
    ]
    return sorted(spans, key=lambda span: span.start)


def _row(entry: dict[str, object], on_gpu: bool) -> str:
    arguments = entry["args"]
    return f"stream {arguments['stream']}" if on_gpu and isinstance(arguments, dict) else f"thread {entry['tid']}"


def shares_of(ranks: Sequence[Sequence[Span]]) -> dict[str, float]:
    """Parts of the time of a call, as means over ranks: compute; transfers without compute beside them. And `hidden_share`: the part of
    transfers' own time that has compute beside it. The rest of the time nothing runs on the device: it waits for the host. Empty where a
    rank has no spans."""
    if not all(ranks):
        return {}
    names = ("compute_share", "exposed_share", "hidden_share")
    return {name: fmean(each) for name, each in zip(names, zip(*map(_shares, ranks), strict=True), strict=True)}


def _shares(spans: Sequence[Span]) -> tuple[float, float, float]:
    """Of one rank: from the beginning of the call until its last span ends."""
    compute, transfers = ([span for span in spans if span.is_transfer is which] for which in (False, True))
    whole, both = max(span.end for span in spans), covered(spans)
    busy, moving = covered(compute), covered(transfers)
    beside = busy + moving - both
    return busy / whole, (moving - beside) / whole, beside / moving if moving else 0.0


def covered(spans: Iterable[Span]) -> float:
    """The time in which at least one of these runs."""
    total, until = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.start):
        total += max(0.0, span.end - max(span.start, until))
        until = max(until, span.end)
    return total


def write(ranks: Sequence[Sequence[Span]], title: str, folder: Path) -> Path:
    """Writes one file for Perfetto: a process per rank, a thread per stream."""
    events: list[dict[str, object]] = []
    for rank, spans in enumerate(ranks):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}})
        rows = {row: number for number, row in enumerate(dict.fromkeys(span.row for span in spans), 1)}
        events += [{"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": row}} for row, tid in rows.items()]
        for span in spans:
            kind = "transfer" if span.is_transfer else "compute"
            times = {"ts": span.start, "dur": span.end - span.start}
            events.append({"ph": "X", "cat": kind, "name": span.name, "pid": rank, "tid": rows[span.row]} | times)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{slug(title)}.json"
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"title": title}}))
    return path


def table(records: Iterable[Record]) -> Table:
    """A row for each traced record: parts of its time."""
    rows = []
    for record in records:
        over, problem = record.over_ranks, record.problem
        if record.ok and over is not None and over.compute_share is not None:
            exposed, hidden = over.exposed_share or 0.0, over.hidden_share or 0.0
            shares = [over.compute_share, exposed, hidden, max(0.0, 1 - over.compute_share - exposed)]
            names = [record.split_name, record.label, problem.mask_title, str(problem.seqlen), problem.pass_.value]
            rows.append([*names, f"{record.times.median:.3g}", *(f"{100 * share:.0f} %" for share in shares)])
    return Table("compute, transfers that nothing hides, the part of transfers that compute hides, waiting for the host", COLUMNS, rows)
