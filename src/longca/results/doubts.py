"""Records that say `ok` and contradict themselves. Readers give them the status `doubtful`, so nothing compares or recommends them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from longca.results import metrics
from longca.results.record import Environment, Environments, Record, Status

ROUNDING = 1e-4  # relative: journals keep six digits


def without_doubtful(records: Iterable[Record], environments: Environments) -> list[Record]:
    """The records, with the status `doubtful` where an `ok` cannot be believed."""
    return [_marked(record, doubt(record, environments.get(record.env))) if record.ok else record for record in records]


def _marked(record: Record, reason: str) -> Record:
    return replace(record, status=Status.DOUBTFUL, reason=reason) if reason else record


def doubt(record: Record, environment: Environment | None) -> str:
    """Why an `ok` record cannot be believed, as a clause; empty where it can."""
    times, speed = record.times, record.speed
    if not record.simulated:
        if not record.check:
            return "it has a time but no check"
        if failed := [name for name, error in record.check.items() if not error.passes]:
            return f"the error of {' and '.join(failed)} is above the tolerance"
    middle = metrics.median(times.samples)
    if not _near(times.median, middle):
        return f"its median of {times.median:g} ms is not that of its samples, {middle:g} ms"
    if not times.p20 <= times.median <= times.p80:
        return f"its median of {times.median:g} ms is not between its percentiles, {times.p20:g} and {times.p80:g} ms"
    expected = metrics.tflops(record.flops / record.problem.ranks, times.median)
    if not _near(speed, expected):
        return f"its speed of {speed:g} TFLOP/s is not its work over its time, {expected:g}"
    limit = _limit(record, environment)
    return metrics.too_fast(speed, limit, environment.name, record.problem.dtype) if environment and limit and speed > limit else ""


def _limit(record: Record, environment: Environment | None) -> float | None:
    """TFLOP/s of the device at most; None where that is not known. A journal does not say what units a CPU has."""
    if environment is None:
        return None
    if environment.on_cpu:
        if record.simulated:
            return None  # its figures are those of other devices
        return metrics.cpu_bound(environment.cores, record.problem.dtype) if environment.cores else None
    return metrics.peak(environment.name, record.problem.dtype)


def _near(value: float, other: float) -> bool:
    return value == other or abs(value - other) <= ROUNDING * max(abs(value), abs(other))
