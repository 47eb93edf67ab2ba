"""What `longca profile` found, and its tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import asdict

from longca.bench.one_device import ncu
from longca.bench.one_device.messages import Profiled
from longca.bench.one_device.ncu import Counted
from longca.bench.plan.cell import Cell
from longca.results.problem import Problem
from longca.results.record import Outcome, Status
from longca.results.roofline import Roofline
from longca.results.shown import Part, Shown
from longca.results.tables import Table, speed_unit
from longca.text import format_shape, plural, short

MOST_NAMES, LONGEST_NAME = 12, 90  # of operations in the terminal
COLUMNS = ["pass", "time", "speed", "GB/s", "FLOPs", "in tiles", "bytes", "limit", "bound", "time / limit"]


@dataclass(frozen=True)
class PassProfile:
    """One pass: its outcome, its roofline, where its time goes, and counters of ncu."""

    cell: Cell
    outcome: Outcome
    limit: Roofline
    profiled: Profiled | None = None
    counted: list[Counted] = field(default_factory=list)


@dataclass(frozen=True, repr=False)
class Profile(Shown):
    """What was found for each pass, and why there are no counters."""

    title: str
    passes: list[PassProfile]
    no_counters: str = ""

    @property
    def ok(self) -> bool:
        return all(one.outcome.status is Status.OK for one in self.passes)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each GPU kernel or operation of each pass."""
        return [
            {"pass": one.cell.problem.pass_.value, "name": spent.name, "count": spent.count, "ms": spent.ms}
            for one in self.passes
            for spent in (one.profiled.spent if one.profiled else ())
        ]

    def parts(self) -> list[Part]:
        figures = [_figures(one) for one in self.passes]
        used = [place for place, name in enumerate(COLUMNS) if any(row[place] for row in figures)]
        parts: list[Part] = [Table(self.title, [COLUMNS[place] for place in used], [[row[place] for place in used] for row in figures])]
        parts += dict.fromkeys(f"{one.outcome.status}: {one.outcome.reason}" for one in self.passes if one.outcome.timed is None)
        clocks = dict.fromkeys(one.outcome.timed.at_mhz for one in self.passes if one.outcome.timed and one.outcome.timed.at_mhz)
        parts += [f"The times above are for an SM clock of {mhz:g} MHz; those of single kernels are as measured." for mhz in clocks]
        for one in self.passes:
            if one.profiled is not None:
                parts += ["", _spent_table(one, one.profiled)]
            if one.counted:
                parts += ["", _counted_table(one)]
        traces = [one.profiled.trace for one in self.passes if one.profiled]
        parts += ["", f"traces, for ui.perfetto.dev: {', '.join(traces)}"] if traces else []
        return [*parts, f"no hardware counters: {self.no_counters}"] if self.no_counters else parts


def title_of(kernel: str, problem: Problem, device: str) -> str:
    """What was profiled, in words."""
    shape = f"{format_shape(asdict(problem))}, {problem.dtype}"
    return f"{kernel} on {problem.mask_title}, {plural(problem.seqlen, 'token')}, {shape}, {device}"


def _figures(one: PassProfile) -> list[str]:
    limit, timed = one.limit, one.outcome.timed
    work = [f"{limit.flops:.3g}", f"{limit.tile_flops:.3g}", f"{limit.bytes / 1e9:.3g} GB"]
    least = "" if limit.limit_ms is None else f"{limit.limit_ms:.4g} ms"
    name = one.cell.problem.pass_.value
    if timed is None:
        return [name, one.outcome.status.value, "", "", *work, least, limit.bound, ""]
    unit = speed_unit([timed.tflops])
    ratio = "" if limit.limit_ms is None else f"{timed.median / limit.limit_ms:.2f}x"
    speeds = [f"{unit.text(timed.tflops, bool(timed.noisy))} {unit.name}", f"{limit.bytes / timed.median / 1e6:.3g}"]
    return [name, f"{timed.median:.4g} ms", *speeds, *work, least, limit.bound, ratio]


def _spent_table(one: PassProfile, profiled: Profiled) -> Table:
    total = sum(spent.ms for spent in profiled.spent)
    rows = [
        [short(spent.name, LONGEST_NAME), f"{spent.count:g}", f"{spent.ms:.4g}", f"{100 * spent.ms / total:.1f} %"]
        for spent in profiled.spent[:MOST_NAMES]
    ]
    rest = profiled.spent[MOST_NAMES:]
    if rest:
        rows.append([f"{plural(len(rest), 'more name')}", "", f"{sum(spent.ms for spent in rest):.4g}", ""])
    what = "GPU kernel" if one.cell.device == "cuda" else "operation"
    return Table(f"{one.cell.problem.pass_.value}, by torch's profiler:", [what, "runs per call", "ms per call", "share"], rows)


def _counted_table(one: PassProfile) -> Table:
    titles = [title for title in ncu.METRICS if any(title in counted.values for counted in one.counted)]
    rows = []
    for counted in one.counted:
        values = [f"{counted.values[title]:.3g}" if title in counted.values else "" for title in titles]
        rows.append([short(counted.name, LONGEST_NAME), *values])
    return Table(f"{one.cell.problem.pass_.value}, by ncu (ms; % of the peak; stalled warps per issue):", ["GPU kernel", *titles], rows)
