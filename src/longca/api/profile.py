"""`longca.profile`: where the time of a kernel goes, beside the least time of the device; `longca profile` prints the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from longca import devices
from longca.api import sides
from longca.api.takes import takes
from longca.bench.one_device import ncu
from longca.bench.one_device.messages import Profiled, WorkerJob
from longca.bench.one_device.ncu import Counted, NcuFailed
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import mask_of
from longca.bench.plan.request import Request
from longca.bench.run.retry import outcomes
from longca.errors import BadInput
from longca.kernels import registry
from longca.results import roofline
from longca.results.problem import Pass
from longca.results.record import Outcome, Status
from longca.results.roofline import Roofline
from longca.results.shown import Part, Shown
from longca.results.tables import Table, speed_unit
from longca.text import format_shape, plural, short

MOST_NAMES, LONGEST_NAME = 12, 90  # of operations in the terminal
FOLDER = Path("out") / "profile"


@dataclass(frozen=True)
class ProfileRequest(Request):
    """One kernel on one mask; None: the default of the device."""

    kernel: Any
    mask: Any = "causal"
    seqlen: int | str | None = None
    _: KW_ONLY
    heads: str | None = None
    head_dims: str | int | None = None
    dtypes: str | None = None
    passes: str | None = None
    seed: int = 0
    device: str | None = None
    out: str | Path = FOLDER  # the folder of the traces
    deadline: float | None = None


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
        for one in self.passes:
            if one.profiled is not None:
                parts += ["", _spent_table(one, one.profiled)]
            if one.counted:
                parts += ["", _counted_table(one)]
        traces = [one.profiled.trace for one in self.passes if one.profiled]
        parts += ["", f"traces, for ui.perfetto.dev: {', '.join(traces)}"] if traces else []
        return [*parts, f"no hardware counters: {self.no_counters}"] if self.no_counters else parts


COLUMNS = ["pass", "time", "speed", "GB/s", "FLOPs", "in tiles", "bytes", "limit", "bound", "time / limit"]


def _figures(one: PassProfile) -> list[str]:
    limit, timed = one.limit, one.outcome.timed
    work = [f"{limit.flops:.3g}", f"{limit.tile_flops:.3g}", f"{limit.bytes / 1e9:.3g} GB"]
    least = "" if limit.limit_ms is None else f"{limit.limit_ms:.4g} ms"
    name = one.cell.problem.pass_.value
    if timed is None:
        return [name, f"{one.outcome.status}: {short(one.outcome.reason, 80)}", "", "", *work, least, limit.bound, ""]
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


@takes(ProfileRequest)
def profile(request: ProfileRequest) -> Profile:
    """Checks and times a kernel on one mask, and returns where the time of each pass goes: by GPU kernel, or by operation on a CPU; beside
    the least time of the device. Traces for Perfetto are written to `out`. On a GPU, `ncu` adds hardware counters if it is installed.

    `kernel` is a name, a plugin file, a file at a git revision, or a Python object, as in `longca.ab`.

    >>> longca.profile("sdpa:flash", "causal", 1024).rows
    """
    side, out = sides.one(request.kernel), Path(request.out).resolve()
    with TemporaryDirectory(prefix="longca-profile-") as temporary, registry.lent([side.value] if side.value is not None else []):
        folder = Path(temporary)
        suite, device = sides.suite_of(request, request.mask, request.seqlen, folder)
        found = sides.contender(side, suite, device, folder / "kernel", side.value is not None, WorkerJob(traces=str(out)))
        if len(found.jobs) != 1:
            raise BadInput(f"a profile is of one mask, length and shape, not of {len(found.jobs)}; name one.")
        _make_folder(out)
        (job,) = found.jobs
        with closing(found.workers()) as workers:
            found_outcomes = dict(outcomes(job, workers))
        passes = [_pass(entry.cell, found_outcomes[entry.cell.problem.pass_], workers.profiled) for entry in job.planned]
        why = _count(passes, found.file) if device == "cuda" else "ncu counts on GPUs, and this is a CPU."
    problem = job.cell.problem
    shape = f"{format_shape({name: getattr(problem, name) for name in type(problem).__struct_fields__})}, {problem.dtype}"
    title = f"{found.kernel} on {problem.mask_title}, {plural(problem.seqlen, 'token')}, {shape}, {devices.model(device)}"
    return Profile(title, passes, why)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write to {out}: {error.strerror}; give another folder.") from error


def _pass(cell: Cell, outcome: Outcome, profiled: Mapping[Pass, Profiled]) -> PassProfile:
    mask, pass_ = mask_of(cell.problem), cell.problem.pass_
    limit = roofline.of_mask(mask, cell.case(mask), pass_, devices.model(cell.device))
    ran = replace(cell, grad=cell.grad if outcome.grad is None else outcome.grad)
    return PassProfile(ran, outcome, limit, profiled.get(pass_))


def _count(passes: Sequence[PassProfile], file: str | None) -> str:
    """Adds the counters of ncu; returns why there are none, or an empty text."""
    for one in passes:
        if one.profiled is not None:
            try:
                one.counted.extend(ncu.count(one.cell, file))
            except NcuFailed as failed:
                return str(failed)
    return ""
