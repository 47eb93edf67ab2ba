"""Records that say `ok` and contradict themselves. Readers give them the status `doubtful`, so nothing compares or recommends them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import inf
from statistics import median

from msgspec.structs import replace

from longca.errors import LongcaError
from longca.results import metrics
from longca.results.problem import Problem
from longca.results.record import Environment, Environments, MaskEntry, Masks, Record, Status

ROUNDING = 1e-4  # relative: journals keep six digits


def doubt(record: Record, environments: Environments, masks: Masks) -> str:
    """Why an `ok` record cannot be believed beside the environments and masks of its journal, as a clause; empty where it can."""
    return _contradiction(record, environments.get(record.env)) or _other_mask(record, masks)


def without_doubtful(records: Iterable[Record], environments: Environments, masks: Masks) -> list[Record]:
    """The records, with the status `doubtful` where an `ok` cannot be believed."""
    return [
        replace(record, status=Status.DOUBTFUL, reason=reason) if record.ok and (reason := doubt(record, environments, masks)) else record
        for record in records
    ]


def _contradiction(record: Record, environment: Environment | None) -> str:
    """What in an `ok` record contradicts the rest of it, or its device."""
    times, speed = record.times, record.speed
    if not record.simulated:
        if not record.check:
            return "it has a time but no check"
        if failed := [name for name, error in record.check.items() if not error.passes]:
            return f"the error of {' and '.join(failed)} is above the tolerance"
    middle = median(times.samples)
    if not _near(times.median, middle):
        return f"its median of {times.median:g} ms is not that of its samples, {middle:g} ms"
    low, high = (0.0, inf) if record.simulated else (min(times.samples), max(times.samples))  # those of a simulation are its error
    if not low * (1 - ROUNDING) <= times.p20 <= times.median <= times.p80 <= high * (1 + ROUNDING):
        return f"its percentiles, {times.p20:g} and {times.p80:g} ms, contradict its median of {times.median:g} ms, or its samples"
    expected = metrics.tflops(record.flops / record.problem.ranks, times.median)
    if not _near(speed, expected):
        return f"its speed of {speed:g} TFLOP/s is not its work over its time, {expected:g}"
    if other := _other_work(record):
        return other
    limit = _limit(record, environment)
    if times.mfu and limit and environment and not environment.on_cpu and not _is_share(times.mfu, record, environment.name):
        return f"its share of the peak, {times.mfu:g}, is not that of its speed, {speed / limit:g}"
    return metrics.too_fast(speed, limit, environment.name, record.problem.dtype) if environment and limit and speed > limit else ""


def _is_share(mfu: float, record: Record, device: str) -> bool:
    """Whether it is the speed over the device's peak at the clock of the times, or in older records at the clock of the datasheet."""
    peaks = (metrics.peak(device, record.problem.dtype, mhz) for mhz in (record.times.mhz, None))
    return any(peak is not None and _near(mfu, record.speed / peak) for peak in peaks)


def _other_work(record: Record) -> str:
    """Why the work, the visible pairs and the length of a record contradict each other; empty where they do not."""
    problem, built = record.problem, record.built
    if not built.area:  # journals of an older schema may not say it
        return ""
    patterns = int(built.params.get("heads", problem.heads_kv)) if problem.is_pattern else 1
    work = metrics.flops_of(built.area * problem.heads_q // patterns, problem.head_dim, problem.head_dim_v, problem.pass_)
    if not _near(record.flops, work):
        return f"its work of {record.flops:g} FLOPs is not that of its {built.area} visible pairs, {work:g}"
    if problem.seqlen not in (built.seqlen_q, built.seqlen_k):
        return f"it is of {problem.seqlen} tokens, and its mask of {built.seqlen_q}"
    return ""


def _other_mask(record: Record, masks: Masks) -> str:
    """Why a record's mask is not the one that masks.jsonl has under its digest; empty where it is, or where the file lacks it."""
    built, name = record.built, record.problem.mask
    entry = masks.get((built.digest, name))
    if entry is None:
        others = sorted(name for digest, name in masks if digest == built.digest)
        renamed = others and record.problem.documents is None and _digest(record.problem.every_pass) != built.digest
        return f"its mask is called {name}, and {' and '.join(others)} in masks.jsonl" if renamed else ""
    other = {name: value for name, value in record.problem.params if built.params.get(name, value) != value}
    if other:
        return f"its mask was asked for with {other}, and has {built.params}"
    if _made_otherwise(record, entry):
        return "its seed and parameters make another mask"
    if (entry.area, entry.seqlen_q, entry.seqlen_k) != (built.area or entry.area, built.seqlen_q, built.seqlen_k):
        return f"its mask shows {built.area} pairs of {built.seqlen_q} tokens, and {entry.area} of {entry.seqlen_q} in masks.jsonl"
    return ""


def _made_otherwise(record: Record, entry: MaskEntry) -> bool:
    """Whether a mask of bands that masks.jsonl has with another seed or other parameters is not the one that those of the record make."""
    problem, params = record.problem, record.built.params
    if (entry.seed, entry.params) == (problem.seed, params) or problem.documents is not None or entry.bands is None:
        return False
    return _digest(replace(problem.every_pass, params=tuple(sorted(params.items())))) not in ("", record.built.digest)


@lru_cache(maxsize=1024)
def _digest(problem: Problem) -> str:
    """The digest of the mask that the problem names; empty where it cannot be built here. Older journals keep one name of equal masks."""
    try:
        return problem.build_mask().digest
    except (LongcaError, TypeError, KeyError, ValueError, OverflowError):
        return ""


def _limit(record: Record, environment: Environment | None) -> float | None:
    """TFLOP/s of the device at most; None where that is not known. A journal does not say what units a CPU has."""
    if environment is None:
        return None
    if environment.on_cpu:
        if record.simulated:
            return None  # its figures are those of other devices
        return metrics.cpu_bound(environment.cores, record.problem.dtype) if environment.cores else None
    return metrics.peak(environment.name, record.problem.dtype, record.times.mhz)


def _near(value: float, other: float) -> bool:
    return value == other or abs(value - other) <= ROUNDING * max(abs(value), abs(other))
