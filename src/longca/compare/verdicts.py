"""What became of a cell between two runs: slower, faster, the same, broken, or unclear and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from longca.compare.ratio import Ratio, ratios
from longca.results.ranking import ENOUGH_SAMPLES
from longca.results.record import Record, Status, Times

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


class Cell(Struct, frozen=True, eq=False, gc=False):
    """A cell that both journals have. `ratio` is B over A, where both were measured; `why` says why there is no time, or no verdict."""

    verdict: Verdict
    before: Record
    after: Record
    ratio: Ratio | None
    why: str = ""


def judge(pairs: Sequence[tuple[Record, Record]], threshold: float, busy: Sequence[str] = ()) -> list[Cell]:
    """The cells of these pairs, worst first. Where the machine was busy on a side (A, B), only changes by more than `FAR` are decided."""
    measured = [(a, b) for a, b in pairs if a.ok and b.ok]
    intervals = ratios([(a.times.samples, b.times.samples) for a, b in measured])
    cells = [_measured(a, b, ratio, threshold, busy) for (a, b), ratio in zip(measured, intervals, strict=True)]
    cells += [_unmeasured(a, b) for a, b in pairs if not (a.ok and b.ok)]
    return sorted(cells, key=lambda cell: (ORDER[cell.verdict], -cell.ratio.value if cell.ratio else 0.0))


def decide(ratio: Ratio, threshold: float) -> Verdict:
    """The whole interval must lie beyond the threshold for a change, by more than drift explains, and within it for none."""
    limit, drift = 1 + threshold, math.exp(ratio.wander)
    if ratio.low > limit * drift:
        return Verdict.SLOWER
    if ratio.high * drift < 1 / limit:
        return Verdict.FASTER
    return Verdict.SAME if ratio.low >= 1 / limit and ratio.high <= limit else Verdict.UNCLEAR


def why_open(ratio: Ratio, threshold: float) -> str:
    """Why `decide` leaves a ratio open."""
    if not ratio.known:
        return f"fewer than {ENOUGH_SAMPLES} samples on a side"
    limit = 1 + threshold
    if ratio.low > limit or ratio.high < 1 / limit:
        return "a drift or step within a run may explain it"
    return f"the interval {'is wide because of drift' if ratio.drifting else f'crosses the threshold of {100 * threshold:g} %'}"


def is_unsteady(record: Record) -> bool:
    """Whether the run did not know the median to `LOOSE`; a cell that only missed a stricter target is not unsteady."""
    spread = record.times.spread
    return bool(record.noisy) and (spread is None or spread > LOOSE)


def _measured(a: Record, b: Record, ratio: Ratio, threshold: float, busy: Sequence[str]) -> Cell:
    far = max(ratio.value, 1 / ratio.value) >= FAR
    verdict = _far(a.times, b.times) if far else None
    if verdict is None and (doubt := _doubt(a, b, busy)):
        return Cell(Verdict.UNCLEAR, a, b, ratio, doubt)
    verdict = verdict or decide(ratio, threshold)
    if verdict is Verdict.UNCLEAR:
        return Cell(verdict, a, b, ratio, why_open(ratio, threshold))
    if verdict in (Verdict.SLOWER, Verdict.FASTER) and a.times.clock_mhz and b.times.clock_mhz:
        factor = b.times.clock_mhz / a.times.clock_mhz
        in_cycles = ratio.value * factor
        remains = max(in_cycles, 1 / in_cycles) >= FAR if far else decide(ratio.times(factor), threshold) is verdict
        if not remains:
            return Cell(Verdict.UNCLEAR, a, b, ratio, f"the SM clock explains it ({a.times.clock_mhz:.0f} and {b.times.clock_mhz:.0f} MHz)")
    return Cell(verdict, a, b, ratio)


def _doubt(a: Record, b: Record, busy: Sequence[str]) -> str:
    """Why the times of a cell are not trusted; empty where they are."""
    unsteady = [side for side, record in (("A", a), ("B", b)) if is_unsteady(record)]
    words = [f"{' and '.join(unsteady)} unsteady"] if unsteady else []
    others = [side for side in busy if side not in unsteady]
    return "; ".join([*words, *([f"busy machine in {' and '.join(others)}"] if others else [])])


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
    doubtful = [f"{side} is doubtful: {record.reason}" for side, record in (("A", a), ("B", b)) if record.status is Status.DOUBTFUL]
    if doubtful:
        return Cell(Verdict.UNCLEAR, a, b, None, "; ".join(doubtful))
    if Status.SKIPPED in (a.status, b.status):
        verdict = Verdict.UNMEASURED
    else:
        verdict = Verdict.BROKEN if a.ok else Verdict.MENDED if b.ok else Verdict.UNMEASURED
    failed = a if b.ok else b
    return Cell(verdict, a, b, None, " ".join(failed.reason.split()))
