"""Who is fastest, on which masks, and by how much: the one rule for page, Markdown, terminal, `compare --kernel` and `recommend`.

Kernels are compared on the masks (one per seed) that they share. A kernel that failed on one of the masks is out, with the reason; so is
one that was not measured on all masks on which the others are compared. Training pays the sum over its steps, so kernels are compared by
their total time: a time is the mean over these masks, a speed is all work over all time. Two kernels are equal where these times differ by
no more than `PRACTICAL`, or by little more while their spreads overlap.

The masks are those that the most kernels share. More masks are used if the comparison then has more figures, and if every kernel that drops
out is slower than the best on the masks that it has: a mean over six seeds says more than one seed does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from longca.results.naming import Row
from longca.results.points import grouped, line_of
from longca.results.problem import Pass
from longca.results.record import OK, Record
from longca.results.versions import is_older

PRACTICAL = 0.03  # of a time: a smaller difference does not matter in practice, however well it is known
NOISE_EXPLAINS = 0.1  # of a time, at most
ENOUGH_SAMPLES = 5  # with fewer, `compare` decides nothing and `recommend` says so
SETTLED_S = 0.1  # of load, after which an H200 is nearly always within 2.5 % of its final clock (results/h200/README.md)
NOT_MEASURED, FEWER_MASKS = "not measured", "fewer masks"


class Figure(Struct, frozen=True, gc=False):
    """One kernel on one mask: the times of a record, or the sum of a forward's and a backward's."""

    ms: float
    p20: float
    p80: float
    tflops: float
    mfu: float | None
    peak_gib: float | None
    records: tuple[Record, ...]

    def as_fast_as(self, other: Figure) -> bool:
        """Whether the times differ by what does not matter, or by little more while the spreads (20th to 80th percentile) overlap."""
        apart = max(self.ms, other.ms) / min(self.ms, other.ms) - 1
        overlap = self.p20 <= other.p80 and other.p20 <= self.p80
        return apart <= PRACTICAL or (overlap and apart <= NOISE_EXPLAINS)


def figure(records: Sequence[Record]) -> Figure:
    """The figure of one record, or of several passes together."""
    return together([_of_record(record) for record in records])


def _of_record(record: Record) -> Figure:
    times = record.times
    # the spread of a simulated time is the error of the model, which is alike for all methods, and no noise
    p20, p80 = (times.median, times.median) if record.simulated else (times.p20, times.p80)
    return Figure(times.median, p20, p80, record.speed, times.mfu, record.peak_gib, (record,))


def together(parts: Sequence[Figure]) -> Figure:
    """The figure of passes or masks one after the other: times and work add up, the peak memory is the largest."""
    first = parts[0]
    if len(parts) == 1:
        return first
    ms = sum([part.ms for part in parts])
    speed = sum([part.tflops * part.ms for part in parts]) / ms
    peaks = [part.peak_gib for part in parts if part.peak_gib is not None]
    return Figure(
        ms,
        p20=sum([part.p20 for part in parts]),
        p80=sum([part.p80 for part in parts]),
        tflops=speed,
        mfu=None if first.mfu is None else speed * first.mfu / first.tflops,
        peak_gib=max(peaks) if len(peaks) == len(parts) else None,
        records=tuple([record for part in parts for record in part.records]),
    )


class OverMasks(Struct, frozen=True, gc=False):
    """The figures of one kernel on several masks, and the whole of them: the mean time, and all work over all time."""

    figures: tuple[Figure, ...]
    whole: Figure

    @property
    def tflops(self) -> float:
        return self.whole.tflops

    @property
    def ms(self) -> float:
        return self.whole.ms

    @property
    def nearest(self) -> Figure:
        """The figure whose speed is nearest to that of the whole."""
        return min(self.figures, key=lambda figure: abs(figure.tflops - self.tflops))

    @property
    def speeds(self) -> tuple[float, float]:
        """The lowest and the highest."""
        return min(figure.tflops for figure in self.figures), max(figure.tflops for figure in self.figures)

    @property
    def times(self) -> tuple[float, float]:
        """The least and the most."""
        return min(figure.ms for figure in self.figures), max(figure.ms for figure in self.figures)


def over_masks(figures: Iterable[Figure]) -> OverMasks:
    own = tuple(figures)
    total = together(own)
    if len(own) == 1:  # as most are
        return OverMasks(own, total)
    count = len(own)
    return OverMasks(own, replace(total, ms=total.ms / count, p20=total.p20 / count, p80=total.p80 / count))


class Out(Struct, frozen=True, gc=False):
    """A kernel that is not compared: its status, `not measured` or `fewer masks`, and why."""

    line: str
    status: str
    reason: str


class Entry(Struct, frozen=True, gc=False):
    """One kernel (or method, grid and kernel) in a contest: figures by the mask's digest, or why it is out."""

    line: str
    figures: Mapping[str, Figure]
    out: Out | None = None
    failed: Record | None = None  # the record that says why it is out

    @property
    def records(self) -> list[Record]:
        return [record for figure in self.figures.values() for record in figure.records]

    @property
    def method(self) -> str | None:
        """The method of a kernel that has a figure."""
        return next(iter(self.figures.values())).records[0].method

    def without(self, status: str, reason: str) -> Entry:
        """The same kernel, out for this reason."""
        return Entry(self.line, {}, Out(self.line, status, reason), self.failed)


class Standing(Struct, frozen=True, gc=False):
    """A kernel among those that are compared; speeds per device, over the shared masks."""

    line: str
    tflops: float
    ms: float
    mfu: float | None
    against_best: float  # this speed over the best one's
    equal: bool  # as fast as the best: the best itself, and kernels that do not differ from it by what matters
    figures: Mapping[str, Figure]  # of the shared masks

    @property
    def records(self) -> list[Record]:
        return [record for figure in self.figures.values() for record in figure.records]

    @property
    def over(self) -> OverMasks:
        return over_masks(self.figures.values())

    @property
    def noisy(self) -> bool:
        return any(record.noisy for record in self.records)

    @property
    def samples(self) -> int:
        """The number of samples of the record that has the fewest."""
        return min(len(record.times.samples) for record in self.records)

    @property
    def title(self) -> str:
        """The name, with `~` where a figure is noisy."""
        return f"{self.line} ~" if self.noisy else self.line


class Ranking(Struct, frozen=True, gc=False):
    """Kernels in the order of their speed, and those that are out. `fewer` has those that were measured on some of the masks only: by
    line, the speed there over the best one's."""

    standings: tuple[Standing, ...]
    out: tuple[Out, ...]
    masks: frozenset[str]  # digests on which they are compared
    fewer: Mapping[str, float]

    @property
    def best(self) -> Standing | None:
        return self.standings[0] if self.standings else None

    @property
    def equals(self) -> tuple[Standing, ...]:
        """The best, and all that are as fast."""
        return tuple(standing for standing in self.standings if standing.equal)

    @property
    def next(self) -> Standing | None:
        """The fastest that is slower than the best by what matters."""
        return next((standing for standing in self.standings if not standing.equal), None)

    def is_elsewhere(self, entry: Entry) -> bool:
        """Whether a kernel was measured on other masks than those on which kernels are compared."""
        return bool(self.masks and entry.figures) and not self.masks & entry.figures.keys()

    def compared(self, entry: Entry) -> OverMasks | None:
        """The figures of a kernel on the masks on which kernels are compared, so that those of one contest are of the same masks. Of a
        kernel that has none of these all its figures; None where it has no figure."""
        shared = [figure for digest, figure in entry.figures.items() if digest in self.masks]
        return over_masks(shared or entry.figures.values()) if entry.figures else None

    def of(self, line: str) -> Standing | None:
        return next((standing for standing in self.standings if standing.line == line), None)


def entries(rows: Iterable[Row], pass_: Pass, part_of: Pass | None = None) -> list[Entry]:
    """One entry per kernel. Of several records of one kernel on one mask the last counts, one of the present code before older ones, and a
    forward of the right kind before others: the one of inference where forwards are compared, else the one that keeps what a backward
    needs. `part_of` is the pass that `pass_` is a part of, whose kind of forward counts."""
    return [entry_of(line, own, pass_, part_of) for line, own in grouped(rows, line_of).items()]


def entry_of(line: str, rows: Iterable[Row], pass_: Pass, part_of: Pass | None = None) -> Entry:
    """The entry of one kernel, as in `entries`."""
    kind = part_of or pass_
    by_mask: dict[str, dict[Pass, Record]] = {}
    for row in rows:
        record = row.record
        passes = by_mask.setdefault(record.built.digest, {})
        other = passes.get(record.problem.pass_)
        if other is None or _alike(record, other) or _rank_of(record, kind) >= _rank_of(other, kind):  # of one kind the last counts
            passes[record.problem.pass_] = record
    figures: dict[str, Figure] = {}
    failed: list[Record] = []
    missing: set[str] = set()
    parts = pass_.parts
    for digest, passes in by_mask.items():
        whole = passes.get(pass_)
        chosen = [whole] if whole is not None else [passes[part] for part in parts if part in passes]
        bad = [record for record in chosen if record.status is not OK]
        if bad:
            failed.append(bad[0])
        elif whole is not None or len(chosen) == len(parts):
            figures[digest] = figure(chosen)
        if whole is None:
            missing.update(part for part in parts if part not in passes)
    if failed:
        return Entry(line, figures, Out(line, failed[0].status.value, _reason(failed, len(failed) + len(figures))), failed[0])
    if not figures:
        return Entry(line, {}, Out(line, NOT_MEASURED, f"there is no record of its {' and '.join(sorted(missing))}"))
    return Entry(line, figures)


def _alike(record: Record, other: Record) -> bool:
    """Whether both are of one version and kind: then they rank alike, and looking up versions would take long in large journals."""
    return record.grad == other.grad and record.versions == other.versions and record.versions is not None


def _rank_of(record: Record, pass_: Pass) -> tuple[bool, bool]:
    """The larger, the more a record counts among several of one kernel, mask and pass."""
    suits = record.problem.pass_ is not Pass.FWD or record.grad == (pass_ is not Pass.FWD)
    return suits, not is_older(record)


def _reason(failed: list[Record], masks: int) -> str:
    reason = failed[0].reason or failed[0].status.value
    seeds = ", ".join(str(seed) for seed in sorted({record.problem.seed for record in failed}))
    return f"{reason} (seed {seeds} of {masks} masks)" if len(failed) < masks else reason


def shared_masks(compared: Iterable[Entry]) -> frozenset[str]:
    """The masks on which the most kernels can be compared, and of such sets the largest: speeds differ by the seed's documents."""
    sets = [frozenset(entry.figures) for entry in compared if entry.figures]
    if not sets:
        return frozenset()
    options = {*sets, frozenset.intersection(*sets)} - {frozenset()}
    return max(options, key=lambda option: (sum(option <= own for own in sets), len(option), sorted(option)))


def _most_figures(timed: Sequence[Entry], shared: frozenset[str], needed: Collection[str]) -> frozenset[str]:
    """The masks, `shared` or more, on which the comparison has the most figures, while the `needed` kernels and one more take part."""
    bound = frozenset.intersection(*(frozenset(entry.figures) for entry in timed if entry.line in needed))
    options = {frozenset(entry.figures) & bound for entry in timed}
    sizes = {option: sum(option <= entry.figures.keys() for entry in timed) for option in options if shared < option}
    most = {shared: sum(shared <= entry.figures.keys() for entry in timed)} | {option: size for option, size in sizes.items() if size > 1}
    return max(most, key=lambda option: (most[option] * len(option), len(option), sorted(option)))


def rank(candidates: Iterable[Entry], kept: Collection[str] = ()) -> Ranking:
    """Kernels in the order of their speed on the masks they share; the `kept` lines are not left out for masks that they lack."""
    everyone = list(candidates)
    timed = [entry for entry in everyone if entry.out is None]
    shared = shared_masks(timed)
    standings = _standings(timed, shared)
    if any(shared < entry.figures.keys() for entry in timed):
        needed = {standing.line for standing in standings if standing.equal or standing.line in kept}
        more = _most_figures(timed, shared, needed)
        wider = _standings(timed, more)
        if all(_is_slower(entry, wider[0]) for entry in timed if shared <= entry.figures.keys() and not more <= entry.figures.keys()):
            shared, standings = more, wider
    unshared = [entry for entry in timed if not shared <= entry.figures.keys()]
    fewer = {entry.line: share for entry in unshared if (share := _share(entry, standings[0])) is not None}
    out = [entry.out for entry in everyone if entry.out is not None]
    out += [_unshared(entry, standings[0], fewer.get(entry.line)) for entry in unshared]
    return Ranking(tuple(standings), tuple(sorted(out, key=lambda one: one.line)), shared, fewer)


def rank_rows(rows: Sequence[Row], kept: Collection[str] = ()) -> Ranking:
    """The ranking of one contest."""
    return rank(entries(rows, rows[0].record.problem.pass_), kept)


def _share(entry: Entry, best: Standing) -> float | None:
    """The speed over the best one's on the masks that both have; None where there are none."""
    both = entry.figures.keys() & best.figures.keys()
    return sum(best.figures[digest].ms for digest in both) / sum(entry.figures[digest].ms for digest in both) if both else None


def _is_slower(entry: Entry, best: Standing) -> bool:
    """Whether a kernel is slower than the best on the masks that both have."""
    share = _share(entry, best)
    return share is not None and share < 1


def _unshared(entry: Entry, best: Standing, share: float | None) -> Out:
    where = f"of the {len(best.figures)} masks (seeds) on which the others are compared"
    if share is None:
        return Out(entry.line, NOT_MEASURED, f"it was measured on none {where}")
    measured = len(best.figures.keys() & entry.figures.keys())
    return Out(entry.line, FEWER_MASKS, f"it was measured on {measured} {where}; there it has {share:.2f} times the speed of {best.line}")


@cache
def _complexity(method: str | None) -> float:
    """The place of a method in `longca ls cp`, which names the simplest first: of two that are exactly as fast, the simpler is named first.
    A method that is not known here comes last."""
    if method is None:
        return 0.0
    from longca.parallel import registry

    return registry.get(method).order if method in registry.names() else math.inf


def _standings(timed: Iterable[Entry], shared: frozenset[str]) -> list[Standing]:
    """The standings of the kernels that have all of these masks, the fastest first."""
    compared = [entry for entry in timed if shared <= entry.figures.keys()]
    if not compared:
        return []
    over = {entry.line: over_masks([entry.figures[digest] for digest in sorted(shared)]) for entry in compared}
    speeds = {line: own.tflops for line, own in over.items()}
    best, *_ = ordered = sorted(compared, key=lambda entry: (-speeds[entry.line], _complexity(entry.method), entry.line))
    digests = sorted(shared, key=lambda digest: (best.figures[digest].records[0].problem.seed, digest))
    figures = [{digest: entry.figures[digest] for digest in digests} for entry in ordered]
    alike = [over[entry.line].whole.as_fast_as(over[best.line].whole) for entry in ordered]
    last = max(place for place, is_equal in enumerate(alike) if is_equal)  # whoever is faster than it is equal, too
    return [
        _standing(over[entry.line], entry.line, own, speeds[best.line], place <= last)
        for place, (entry, own) in enumerate(zip(ordered, figures, strict=True))
    ]


def _standing(over: OverMasks, line: str, own: Mapping[str, Figure], fastest: float, equal: bool) -> Standing:
    whole = over.whole
    return Standing(line, whole.tflops, whole.ms, whole.mfu, against_best=whole.tflops / fastest, equal=equal, figures=own)
