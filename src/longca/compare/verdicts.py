"""What became of a cell between two runs: slower, faster, the same, broken, or unclear and why."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from longca.results.ratio import ENOUGH_SAMPLES, Ratio, ratio
from longca.results.record import Record, Status, Times, comparable

PRACTICAL = 0.03  # of a time: smaller changes between two journals do not matter, unless a threshold is given
LOOSE = 0.02  # a median that its run did not know better than this is not compared
FAR = 3.0  # times: a change by more is real even on a busy machine; two busy cores were seen to change times twofold
APART = 2.0  # times: for such a change, four fifths of the samples of one run must also lie this far from those of the other


class Verdict(StrEnum):
    """Worst first."""

    BROKEN = "BROKEN"
    SLOWER = "SLOWER"
    UNCLEAR = "UNCLEAR"
    SAME = "SAME"
    FASTER = "FASTER"
    MENDED = "MENDED"
    UNMEASURED = "UNMEASURED"


REGRESSIONS = (Verdict.BROKEN, Verdict.SLOWER)
ORDER = {verdict: place for place, verdict in enumerate(Verdict)}


class Doubt(StrEnum):
    """Why there is no verdict, or no time."""

    FEW_SAMPLES = "few samples"
    CROSSES = "the interval crosses the threshold"
    WIDE = "the interval is wide because of drift"
    WANDERS = "a drift or step within a run may explain it"
    CLOCK = "the SM clock explains it"
    UNTRUSTED = "a side is noisy, or its machine was busy"
    DOUBTFUL = "the record of a side is doubtful"
    FAILED = "a side has no time"


class Remark(Struct, frozen=True):
    """A doubt, and the values that its sentence names (`longca.compare.words`)."""

    kind: Doubt
    values: dict[str, Any] = {}


class Cell(Struct, frozen=True, eq=False):
    """A cell that both journals have. `ratio` is B over A, where both were measured; `why` says why there is no time, or no verdict."""

    verdict: Verdict
    before: Record
    after: Record
    ratio: Ratio | None
    why: Remark | None = None


def judge(pairs: Sequence[tuple[Record, Record]], threshold: float, busy: Sequence[str] = ()) -> list[Cell]:
    """The cells of these pairs, worst first. Where the machine was busy on a side (A, B), only changes by more than `FAR` are decided."""
    cells = [_measured(a, b, threshold, busy) if a.ok and b.ok else _unmeasured(a, b) for a, b in map(comparable, pairs)]
    return sorted(cells, key=lambda cell: (ORDER[cell.verdict], -cell.ratio.value if cell.ratio else 0.0))


def decide(ratio: Ratio, threshold: float) -> Verdict:
    """The whole interval must lie beyond the threshold for a change, by more than drift explains, and within it for none."""
    if ratio.few:
        return Verdict.UNCLEAR
    if side := ratio.side(threshold):
        return Verdict.SLOWER if side > 0 else Verdict.FASTER
    limit = 1 + threshold
    return Verdict.SAME if ratio.low >= 1 / limit and ratio.high <= limit else Verdict.UNCLEAR


def why_open(ratio: Ratio, threshold: float) -> Remark:
    """Why `decide` leaves a ratio open."""
    if ratio.few:
        return Remark(Doubt.FEW_SAMPLES, {"enough": ENOUGH_SAMPLES})
    limit = 1 + threshold
    if ratio.low > limit or ratio.high < 1 / limit:
        return Remark(Doubt.WANDERS)
    return Remark(Doubt.WIDE) if ratio.drifting else Remark(Doubt.CROSSES, {"threshold": threshold})


def is_too_noisy(record: Record) -> bool:
    """Whether the run did not know the median to `LOOSE`; a cell that only missed a stricter target is not too noisy."""
    spread = record.times.spread
    return bool(record.noisy) and (spread is None or spread > LOOSE)


def _measured(a: Record, b: Record, threshold: float, busy: Sequence[str]) -> Cell:
    before, after = a.times, b.times
    change = ratio(before.samples, after.samples)
    far = max(change.value, 1 / change.value) >= FAR
    verdict = _far(before, after) if far else None
    if verdict is None and (doubt := _doubt(a, b, busy)):
        return Cell(Verdict.UNCLEAR, a, b, change, doubt)
    verdict = verdict or decide(change, threshold)
    if verdict is Verdict.UNCLEAR:
        return Cell(verdict, a, b, change, why_open(change, threshold))
    if verdict in (Verdict.SLOWER, Verdict.FASTER) and before.mhz and after.mhz:
        factor = after.mhz / before.mhz
        in_cycles = change.value * factor
        remains = max(in_cycles, 1 / in_cycles) >= FAR if far else decide(change.times(factor), threshold) is verdict
        if not remains:
            return Cell(Verdict.UNCLEAR, a, b, change, Remark(Doubt.CLOCK, {"before": before.mhz, "after": after.mhz}))
    return Cell(verdict, a, b, change)


def _doubt(a: Record, b: Record, busy: Sequence[str]) -> Remark | None:
    """Why the times of a cell are not trusted; None where they are."""
    noisy = [side for side, record in (("A", a), ("B", b)) if is_too_noisy(record)]
    others = [side for side in busy if side not in noisy]
    return Remark(Doubt.UNTRUSTED, {"noisy": noisy, "busy": others}) if noisy or others else None


def _far(a: Times, b: Times) -> Verdict | None:
    """SLOWER or FASTER where times differ by so much that no noise explains it, with enough samples that lie far apart; else None."""
    if min(len(a.samples), len(b.samples)) < ENOUGH_SAMPLES:
        return None
    if b.median >= FAR * a.median and b.p20 >= APART * a.p80:
        return Verdict.SLOWER
    return Verdict.FASTER if a.median >= FAR * b.median and a.p20 >= APART * b.p80 else None


def is_skipped(cell: Cell) -> bool:
    """Whether a cell was measured in A and skipped by a rule in B."""
    return cell.before.ok and cell.after.status is Status.SKIPPED


def _unmeasured(a: Record, b: Record) -> Cell:
    doubtful = {side: record.reason for side, record in (("A", a), ("B", b)) if record.status is Status.DOUBTFUL}
    if doubtful:
        return Cell(Verdict.UNCLEAR, a, b, None, Remark(Doubt.DOUBTFUL, doubtful))
    if Status.SKIPPED in (a.status, b.status):
        verdict = Verdict.UNMEASURED
    else:
        verdict = Verdict.BROKEN if a.ok else Verdict.MENDED if b.ok else Verdict.UNMEASURED
    failed = a if b.ok else b
    return Cell(verdict, a, b, None, Remark(Doubt.FAILED, {"reason": failed.reason}) if failed.reason else None)
