"""The roofline of a pass: the least time in which a device can do the work of the touched tiles and move every tensor once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from longca.kernels.base import Case
from longca.masks import AnyMask, Mask
from longca.results.metrics import bandwidth, flops, peak, traffic
from longca.results.problem import Pass
from longca.results.reading import Results
from longca.results.record import Record
from longca.results.tile_work import TILE_KEYS, covered, parts_of, tile_rows


class Tiles(NamedTuple):
    """The size of a kernel's tiles: query tokens and keys."""

    rows: int
    keys: int = TILE_KEYS


class Roofline(NamedTuple):
    """The work of one pass; times are None for a device whose peak is not known."""

    flops: int  # on visible pairs
    tile_flops: float  # on all pairs of the tiles that the mask touches
    bytes: int
    compute_ms: float | None
    memory_ms: float | None

    @property
    def limit_ms(self) -> float | None:
        """The least time."""
        return None if self.compute_ms is None or self.memory_ms is None else max(self.compute_ms, self.memory_ms)

    @property
    def bound(self) -> str:
        """What takes the most of the least time: compute or memory; empty where it is not known."""
        if self.compute_ms is None or self.memory_ms is None:
            return ""
        return "memory" if self.memory_ms > self.compute_ms else "compute"


def of_mask(mask: AnyMask, case: Case, pass_: Pass, device: str, tiles: Tiles | None = None, mhz: float | None = None) -> Roofline:
    """The roofline of a pass on a device by its name, with these tiles, or those of most kernels; at an SM clock, or the datasheet's."""
    parts = []
    for part in pass_.parts:
        rows, keys = tiles or Tiles(tile_rows(part, case.heads_q, case.heads_kv))
        parts.append(_roofline(flops(mask, case, part), touched_share(mask, rows, keys), case, part, device, mhz))
    return _joined(parts)


def touched_share(mask: AnyMask, rows: int, keys: int) -> float:
    """The share of the touched tiles' area that is visible."""
    if isinstance(mask, Mask):
        return covered(mask, rows, keys)
    found = mask.tiles(rows, keys)
    return min(1.0, mask.area / max(1, (found.full + found.partial) * rows * keys))


def of_record(record: Record, results: Results) -> Roofline | None:
    """The roofline of a record of one device at its SM clock (without one, at that of the datasheet), with the tiles of most kernels; None
    over several ranks, or where the journal lacks the mask. That of a forward and a backward together is the sum of both."""
    entry = results.masks.get((record.built.digest, record.problem.mask))
    if record.split is not None or entry is None:
        return None
    case, device, mhz = _case(record), results.environment(record).name, record.timed.mhz if record.timed else None
    return _joined([_roofline(work, share, case, part, device, mhz) for part, work, share in parts_of(record, entry)])


def bandwidth_of(record: Record) -> float | None:
    """The bytes that a pass moves at least, per second, in GB; None over several ranks, or without a time."""
    if record.split is not None or record.timed is None:
        return None
    return traffic(_case(record), record.problem.pass_) / record.timed.median / 1e6


def _case(record: Record) -> Case:
    problem, built = record.problem, record.built
    sizes = problem.head_dim, problem.head_dim_v
    return Case(built.seqlen_q, built.seqlen_k, problem.heads_q, problem.heads_kv, *sizes, problem.dtype)


def _joined(parts: Sequence[Roofline]) -> Roofline:
    """One pass after the other."""
    sums: list[Any] = [None if None in numbers else sum(numbers) for numbers in zip(*parts, strict=True)]
    return Roofline(*sums)


def _roofline(work: int, share: float, case: Case, pass_: Pass, device: str, mhz: float | None) -> Roofline:
    speed, rate, moved = peak(device, case.dtype, mhz), bandwidth(device), traffic(case, pass_)
    compute_ms = None if speed is None else work / share / speed / 1e9
    return Roofline(work, work / share, moved, compute_ms, None if rate is None else moved / rate / 1e9)
