"""How far off nearest answers are, measured: cells with a time are predicted from neighbours as far away as those of the question.

The error is that of the results at hand, per kernel: on masks that have documents as the one asked for, or have none as it; or else on all
masks; or else of all kernels. Where too few records differ as the question differs from its neighbours, the error is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from operator import attrgetter
from typing import NamedTuple

from longca import masks
from longca.errors import LongcaError
from longca.recommend.geometry import Geometry
from longca.results.points import grouped
from longca.results.ranking import PRACTICAL
from longca.results.reading import Results
from longca.results.record import Record
from longca.results.tile_work import TileWork

COVERED = 0.9  # of the predictions lie in a range
LEAST = 10  # predictions behind a range
FEW = 40  # predictions, of which a range holds all
SIMILAR = 8  # times shorter neighbours tell nothing about longer ones: at short lengths kernels do not fill the device
VARYING = ("--seqlen", "--heads", "--head-dim", "--set")  # differences over which times are scaled


class Window(NamedTuple):
    """A window, or another whole-number parameter, among measured ones."""

    name: str
    around: Geometry  # with windows in place of lengths
    plain: str = ""  # the mask that a window over the whole sequence equals, where that is the wider one


class Prediction(NamedTuple):
    """A cell that was measured, and its measured over its predicted time."""

    record: Record
    neighbours: tuple[Record, ...]
    ratio: float


@dataclass(frozen=True)
class Error:
    """The range that holds the measured over the predicted time in nine of ten predictions; None where it is unknown."""

    range: tuple[float, float] | None


UNKNOWN = Error(None)


class Errors:
    """The errors of one question's kernels. Errors of several changes (of length and of heads) multiply."""

    def __init__(self, results: Results, mask: str, geometry: Geometry, flags: Collection[str], window: Window | None = None) -> None:
        self._mask = mask
        timed = [record for record in results.records if record.ok and not record.method and not record.simulated]
        work = TileWork(results.masks, timed)
        self._made = {flag: list(shape_predictions(results, timed, flag, work)) for flag in sorted(flags)}
        if window and "--set" in flags:
            made = list(window_predictions(results, timed, mask, window, work))
            if len(made) >= LEAST or not window.around.is_between:  # beyond all windows, no other predictions are as far off
                self._made["--set"] = made
        if not geometry.is_measured:
            self._made["--seqlen"] = _similar(geometry, length_predictions(results, timed, geometry, work))

    @property
    def unknown(self) -> list[str]:
        """Why there is no range, where no records tell what the change of a flag does, for any kernel."""
        flags = [flag for flag in VARYING if flag in self._made and len(self._chosen(flag, "")) < LEAST]
        return [f"too few records differ in {' and '.join(flags)} alone"] if flags else []

    @property
    def behind(self) -> Iterator[Record]:
        """The records that the ranges follow from."""
        return (record for own in self._made.values() for made in own for record in (made.record, *made.neighbours))

    def of(self, kernel: str) -> Error:
        ratios = [self._chosen(flag, kernel) for flag in self._made]
        if any(len(own) < LEAST for own in ratios):
            return UNKNOWN
        factor = math.prod(map(off_by, ratios)) if ratios else 1 + PRACTICAL  # nothing was scaled; measured again, times differ too
        return Error((1 / factor, factor))

    def _chosen(self, flag: str, kernel: str) -> list[float]:
        """The ratios that tell most about the kernel: enough of them, and those most like the question."""
        on_mask = [made for made in self._made[flag] if made.record.problem.mask == self._mask]
        every = on_mask if flag == "--set" else self._made[flag]  # parameters of another mask mean something else
        own = [made for made in every if made.record.label == kernel]
        for made in ([one for one in own if _has_documents(one.record.problem.mask) == _has_documents(self._mask)], own, every):
            if len(made) >= LEAST:
                return [one.ratio for one in made]
        return []


def off_by(ratios: Iterable[float]) -> float:
    """The factor by which nine of ten predictions are off at most, in either direction; of few predictions the largest."""
    ordered = sorted(abs(math.log(ratio)) for ratio in ratios)
    return math.exp(ordered[-1] if len(ordered) < FEW else ordered[math.ceil(COVERED * (len(ordered) - 1))])


@cache
def _has_documents(mask: str) -> bool:
    try:
        return masks.find(mask).has_documents
    except LongcaError:  # a mask of a plugin or a file that is not here
        return False


def _similar(geometry: Geometry, predictions: Iterable[Prediction]) -> list[Prediction]:
    """Predictions from lengths that are not far below those of the question; all where these are too few."""
    made = list(predictions)
    shortest = min(geometry.lengths)
    similar = [one for one in made if SIMILAR * min(record.problem.seqlen for record in one.neighbours) >= shortest]
    return similar if len(similar) >= LEAST else made


def length_predictions(results: Results, timed: Sequence[Record], geometry: Geometry, work: TileWork) -> Iterator[Prediction]:
    """Each record predicted from neighbours on the same sides, as far away as those of the question or farther."""
    for group in _groups(results, timed, "--seqlen"):
        by_length = {record.problem.seqlen: record for record in group}
        rates = {n: work.of_record(record) / record.times.median for n, record in by_length.items()}
        for seqlen, record in by_length.items():
            around = geometry.at(seqlen, by_length)
            if around is not None:
                ratio = record.times.median * around.interpolate(rates) / work.of_record(record)
                yield Prediction(record, tuple(by_length[n] for n in around.lengths), ratio)


def shape_predictions(results: Results, timed: Sequence[Record], flag: str, work: TileWork) -> Iterator[Prediction]:
    """Each record predicted from each that differs in this flag alone."""
    for group in _groups(results, timed, flag):
        for record, other in permutations(group, 2):
            if _value(record, flag) != _value(other, flag):
                rate = work.of_record(other) / other.times.median
                yield Prediction(record, (other,), record.times.median * rate / work.of_record(record))


def window_predictions(results: Results, timed: Sequence[Record], mask: str, window: Window, work: TileWork) -> Iterator[Prediction]:
    """Each record of the mask predicted from the windows around its own, as far away as those of the question or farther."""
    own = [record for record in timed if record.problem.mask == mask and isinstance(record.built.params.get(window.name), int)]
    plain = {_but_mask(record): record for record in timed if record.problem.mask == window.plain}
    for group in _groups(results, own, "--set"):
        by_window = {int(record.built.params[window.name]): record for record in group}
        if whole := plain.get(_but_mask(group[0])):
            by_window.setdefault(whole.problem.seqlen - 1, whole)  # a window over the whole sequence
        rates = {n: work.of_record(record) / record.times.median for n, record in by_window.items()}
        for n, record in by_window.items():
            around = window.around.at(n, by_window)
            if around is not None:
                ratio = record.times.median * around.interpolate(rates) / work.of_record(record)
                yield Prediction(record, tuple(by_window[value] for value in around.lengths), ratio)


_but_mask = attrgetter(
    *("seqlen", "heads_q", "heads_kv", "head_dim", "head_dim_v", "label", "pass_", "grad", "seed", "dtype"),
    *("deterministic", "softcap", "sinks", "given.distribution", "given.packing"),
)


def _groups(results: Results, timed: Iterable[Record], flag: str) -> Iterable[list[Record]]:
    """Records that differ in nothing but this flag."""
    shape = [name for name in VARYING if name != flag]
    return grouped(
        timed, lambda record: (results.environment(record).name, *(_value(record, name) for name in shape), *_kept(record))
    ).values()


_kept = attrgetter(
    *("label", "mask", "pass_", "grad", "seed", "dtype", "deterministic", "softcap", "sinks", "pattern_source"),
    *("given.distribution", "given.packing", "given.documents"),
)


def _value(record: Record, flag: str) -> object:
    if flag == "--seqlen":
        return record.problem.seqlen
    if flag == "--heads":
        return record.problem.heads_q, record.problem.heads_kv
    if flag == "--head-dim":
        return record.problem.head_dim, record.problem.head_dim_v
    return tuple(
        sorted((name, value) for name, value in record.given.params.items() if (name, value) != ("heads", record.problem.heads_kv))
    )
