"""Timelines of ranks for the page, read from what `longca simulate --trace` wrote."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from longca.errors import BadInput

Span = tuple[int, str, str, float, float, int]  # rank, kind, name, start in ms, end in ms, bytes


class Timeline(Struct, frozen=True):
    """The spans of some ranks: when each computed, waited and sent."""

    title: str
    spans: list[Span]


class _Args(Struct, frozen=True):
    bytes: int = 0


class _Event(Struct):
    """A trace event as Perfetto reads it; times in microseconds."""

    ph: str
    name: str
    pid: int
    cat: str = ""
    ts: float = 0.0
    dur: float = 0.0
    id: int = 0
    args: _Args = _Args()


class _About(Struct, frozen=True):
    title: str = ""


class _Trace(Struct, rename={"events": "traceEvents", "about": "otherData"}):
    events: list[_Event]
    about: _About = _About()


def read_timeline(path: str | Path) -> Timeline:
    """The spans in a trace file."""
    file = Path(path)
    try:
        trace = msgspec.json.decode(file.read_bytes(), type=_Trace)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}; give a file that `longca simulate --trace` wrote.") from error
    except msgspec.DecodeError as error:
        raise BadInput(f"{path} is no trace of `longca simulate --trace`: {error}.") from error
    return Timeline(trace.about.title or file.stem, list(_spans(trace.events)))


def _spans(events: Iterable[_Event]) -> Iterable[Span]:
    """Complete events as they are, and beginnings with their ends."""
    begun: dict[tuple[int, int], _Event] = {}
    for event in events:
        if event.ph == "X":
            yield event.pid, event.cat, event.name, event.ts / 1e3, (event.ts + event.dur) / 1e3, event.args.bytes
        elif event.ph == "b":
            begun[event.pid, event.id] = event
        elif event.ph == "e" and (event.pid, event.id) in begun:
            first = begun.pop((event.pid, event.id))
            yield first.pid, first.cat, first.name, first.ts / 1e3, event.ts / 1e3, first.args.bytes
