"""What each kernel (or method, grid and kernel) did on the masks of one question: its figures, or why it is out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from longca.bench.summary import label, shown_status
from longca.report import PRACTICAL
from longca.report.evidence import Evidence
from longca.report.question import Question

PARTS = {"fwd": ("fwd",), "bwd": ("bwd",), "fwd+bwd": ("fwd", "bwd")}
NOISE_EXPLAINS = 0.1  # of a time, at most
NOT_MEASURED, NOT_COUNTED, TOO_LARGE = "not measured", "not counted", "too large"


@dataclass(frozen=True)
class Figures:
    """One candidate on one mask: a measured record, or the sum of the forward's and the backward's."""

    ms: float
    p20: float
    p80: float
    tflops: float
    peak_gib: float | None
    sources: tuple[Evidence, ...]

    def as_fast_as(self, other: Figures) -> bool:
        """Whether their medians differ by what does not matter, or by little more and their spreads (20th to 80th percentile) share a
        time: a kernel that is noisy is not as good as one that is far ahead."""
        apart = max(self.ms, other.ms) / min(self.ms, other.ms) - 1
        noise = self.p20 <= other.p80 and other.p20 <= self.p80
        return apart <= PRACTICAL or (noise and apart <= NOISE_EXPLAINS)


def figures(sources: tuple[Evidence, ...]) -> Figures:
    """Times and work of the sources add up; the peak is the larger one, as a backward's holds what its forward kept."""
    records = [source.record for source in sources]
    ms, p20, p80 = (sum(record["ms"][name] for record in records) for name in ("median", "p20", "p80"))
    peaks = [record.get("peak_gib") for record in records]
    known = [peak for peak in peaks if peak is not None]
    work = sum(record["flops"] for record in records) / (records[0].get("ranks") or 1)
    return Figures(ms, p20, p80, work / ms / 1e9, max(known) if len(known) == len(peaks) else None, sources)


@dataclass(frozen=True)
class Candidate:
    """`figures` by the mask's digest. `status` is empty where the question's pass was measured on all masks it was tried on."""

    name: str
    about: dict[str, Any]  # kernel, method, grid, ranks, simulated
    figures: Mapping[str, Figures]
    status: str = ""
    reason: str = ""

    @property
    def summed(self) -> bool:
        return any(len(found.sources) > 1 for found in self.figures.values())

    @property
    def noisy(self) -> bool:
        return any(source.record.get("noisy") for found in self.figures.values() for source in found.sources)

    @property
    def samples(self) -> int:
        """Of the record that has the fewest."""
        return min((len(source.record["ms"]["samples"]) for found in self.figures.values() for source in found.sources), default=0)

    @property
    def on_cpu(self) -> bool:
        return any(source.on_cpu for found in self.figures.values() for source in found.sources)

    def speed(self, digests: Iterable[str]) -> float:
        return median(self.figures[digest].tflops for digest in digests)

    def memory_gib(self, question: Question) -> float | None:
        """The most of any mask, with the inputs. Of a rank the count has its tokens in it already."""
        peaks = [found.peak_gib for found in self.figures.values()]
        if not peaks or None in peaks:
            return None
        return max(peak for peak in peaks if peak is not None) + (0.0 if self.about["method"] else question.input_gib)


def candidates(evidence: Sequence[Evidence], question: Question) -> list[Candidate]:
    """One for each name, whether a kernel was asked for by it or chose it; in the order of the records, so that the last one counts."""
    asked: dict[tuple[Any, ...], list[Evidence]] = {}
    for one in evidence:
        asked.setdefault((one.record["asked"], one.record.get("method"), one.record.get("grid")), []).append(one)
    names = {key: _name(group) for key, group in asked.items()}
    named: dict[str, list[Evidence]] = {}
    for one in evidence:
        name = names[one.record["asked"], one.record.get("method"), one.record.get("grid")]
        named.setdefault(name, []).append(one)
    return [_candidate(name, group, question) for name, group in named.items()]


def _name(group: list[Evidence]) -> str:
    """The variant that ran; what was asked for, where several masks took several. Of a bare name, a refused pass has no variant, yet it is
    the same kernel's."""
    ran = {label(one.record) for one in group if one.record["status"] == "ok"} or {label(group[0].record)}
    record = group[0].record
    split = f"{record['method']} {record['grid']} " if record.get("method") else ""
    return ran.pop() if len(ran) == 1 else f"{split}{record['asked']}"


def _candidate(name: str, group: list[Evidence], question: Question) -> Candidate:
    by_mask: dict[str, dict[str, Evidence]] = {}
    for one in sorted(group, key=lambda one: _suits(one, question)):  # stable: of the same kind the last one counts
        by_mask.setdefault(one.record["mask_digest"], {})[one.record["pass"]] = one
    measured: dict[str, Figures] = {}
    failed, missing = list[Evidence](), set[str]()
    for digest, passes in by_mask.items():
        parts = (question.which,) if question.which in passes else PARTS[question.which]
        chosen = [passes[part] for part in parts if part in passes]
        failed += [one for one in chosen if one.record["status"] != "ok"][:1]
        missing.update(part for part in parts if part not in passes)
        if len(chosen) == len(parts) and all(one.record["status"] == "ok" for one in chosen):
            measured[digest] = figures(tuple(chosen))
    about = {field: group[0].record.get(field) for field in ("method", "grid", "ranks", "simulated")}
    about["kernel"] = name.rsplit(" ", 1)[-1]
    if failed:
        return Candidate(name, about, {}, shown_status(failed[0].record), _reason(failed, len(by_mask)))
    if not measured:
        return Candidate(name, about, {}, NOT_MEASURED, f"there is no record of its {' and '.join(sorted(missing))}")
    return Candidate(name, about, measured)


def _reason(failed: list[Evidence], masks: int) -> str:
    reason = failed[0].record["reason"] or failed[0].record["status"]
    seeds = ", ".join(str(seed) for seed in sorted({one.record["seed"] for one in failed}))
    return f"{reason} (seed {seeds} of {masks} masks)" if len(failed) < masks else str(reason)


def _suits(one: Evidence, question: Question) -> bool:
    """Whether a forward is of the kind that is asked for: the one of inference, or the one that keeps what a backward needs."""
    return one.record["pass"] != "fwd" or bool(one.record.get("grad")) == (question.which != "fwd")


def shared_masks(found: Iterable[Candidate]) -> frozenset[str]:
    """The masks on which the most candidates can be compared, and of such sets the largest: speeds differ by the seed's documents."""
    sets = [frozenset(one.figures) for one in found if one.figures]
    if not sets:
        return frozenset()
    options = {*sets, frozenset.intersection(*sets)} - {frozenset()}
    return max(options, key=lambda option: (sum(option <= own for own in sets), len(option), sorted(option)))
