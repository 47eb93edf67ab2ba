"""Which kernel, or which method on many GPUs, to use: from records alone. What no record says is not guessed, but named with the run
that would tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from longca import masks
from longca.bench.catalogue import MINIATURE
from longca.errors import BadInput, LongcaError
from longca.kernels import registry
from longca.kernels.base import Case, Kernel
from longca.masks import AnyMask
from longca.masks.bands import Ints
from longca.masks.selection import Means
from longca.report.advice import advice
from longca.report.candidates import NOT_COUNTED, NOT_MEASURED, TOO_LARGE, Candidate, Figures, candidates, shared_masks
from longca.report.evidence import Evidence
from longca.report.question import Question, misses


@dataclass(frozen=True)
class Choice:
    """One way to compute the attention that was asked for, and the records it stands on."""

    name: str  # fa4:bands; on many GPUs usp 8x8 fa4:bands
    kernel: str
    method: str | None
    grid: str | None
    tflops: float  # per GPU, the median over the masks of several seeds
    worst_tflops: float
    ms: float  # the median too
    memory_gib: float | None  # per GPU, inputs included; None: not counted
    against_best: float  # this speed over the best one's
    as_good: bool  # within the noise of the best, or so close that it does not matter
    noisy: bool
    samples: int  # of the record that has the fewest
    summed: bool  # forward and backward were measured apart
    simulated: str | None  # the cluster it was simulated for
    sources: tuple[Evidence, ...]

    def again(self, seeds: Sequence[int]) -> str:
        """The command that measures it again: this variant, also where its record asked for whichever the kernel would choose."""
        source = self.sources[0]
        try:
            registry.get(self.kernel)
        except LongcaError:  # of a plugin that is not here: what was typed then
            return source.again(seeds)
        return replace(source, record=source.record | {"asked": self.kernel}).again(seeds)

    def to_json(self) -> dict[str, Any]:
        names = [name for name in self.__dataclass_fields__ if name != "sources"]
        return {name: getattr(self, name) for name in names} | {"records": [source.to_json() for source in self.sources]}


@dataclass(frozen=True)
class Out:
    """What cannot be recommended: a record's status, `not measured`, `not counted` or `too large`, and why."""

    name: str
    status: str
    reason: str


@dataclass(frozen=True)
class Answer:
    question: Question
    device: str
    seeds: tuple[int, ...]
    choices: tuple[Choice, ...]  # the fastest first
    out: tuple[Out, ...]
    unmeasured: tuple[str, ...]  # kernels that LongCA knows and of which there is no record
    advice: tuple[str, ...]  # what to run, where nothing can be recommended

    @property
    def unit(self) -> str:
        """What shares a sequence."""
        return "rank" if self.choices and self.choices[0].sources[0].on_cpu else "GPU"

    @property
    def masks(self) -> int:
        """How many different ones the figures are of: seeds that draw nothing give one."""
        return len({source.record["mask_digest"] for choice in self.choices[:1] for source in choice.sources})

    @property
    def best(self) -> Choice | None:
        return self.choices[0] if self.choices else None

    def to_json(self) -> dict[str, Any]:
        asked = {name: getattr(self.question, name) for name in self.question.__dataclass_fields__} | {"params": dict(self.question.params)}
        asked["pass"] = asked.pop("which")
        choices = [choice.to_json() for choice in self.choices]
        out = [{"name": one.name, "status": one.status, "reason": one.reason} for one in self.out]
        about = {"question": asked, "device": self.device, "seeds": list(self.seeds), "best": choices[0] if choices else None}
        return about | {"runners_up": choices[1:], "out": out, "not_measured": list(self.unmeasured), "advice": list(self.advice)}


def recommend(question: Question, evidence: Sequence[Evidence]) -> Answer:
    """The answer; where no record gives one, its `choices` are empty and its `advice` says what to run."""
    looked_at = [(one, misses(question, one)) for one in evidence]
    matching = [one for one, differing in looked_at if differing == {}]
    matching = [one for one in matching if one.device.lower() == question.device.lower()] or matching  # an H200 beside an H200 NVL
    devices = sorted({one.device for one in matching})
    if len(devices) > 1:
        raise BadInput(f"records of several devices answer this ({', '.join(devices)}); choose one with --device.")
    unweighed = candidates(matching, question)
    found = [_weighed(one, question) for one in unweighed]
    shared = shared_masks(found)
    found = [one if one.status or shared <= one.figures.keys() else _unshared(one, shared) for one in found]
    compared = [replace(one, figures={mask: one.figures[mask] for mask in shared}) for one in found if not one.status]
    choices = _ranked(compared, shared, question)
    out = tuple(Out(one.name, one.status, one.reason) for one in sorted(found, key=lambda one: one.name) if one.status)
    seeds = sorted({source.record["seed"] for choice in choices[:1] for source in choice.sources})
    known = bool(out) and not any(one.status in (NOT_MEASURED, NOT_COUNTED) for one in out)  # that none of them can is an answer, too
    said: tuple[str, ...] = ()
    if not choices and not known:
        said = advice(question, [(one, differing) for one, differing in looked_at if differing], matching)
        said = (*_without_cluster(question, evidence), *said) if question.cluster else said
    if not choices:
        too_large = [one for one, weighed in zip(unweighed, found, strict=True) if weighed.status == TOO_LARGE]
        said = (*_least_memory(too_large, question), *said)
    return Answer(question, devices[0] if devices else "", tuple(seeds), choices, out, _unmeasured(matching, question), said)


def _without_cluster(question: Question, evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """A simulated cluster of which no record tells: no run of LongCA makes such records, so none is advised."""
    clusters = sorted({one.record["simulated"] for one in evidence if one.record.get("simulated")})
    there = f"simulated records have {', '.join(clusters)}" if clusters else "no record here is a simulated one"
    lacking = f"there is no simulated record of this for the cluster {question.cluster}"
    lacking += "." if question.cluster in clusters else f"; {there}."
    split = f" --level cp --nproc {question.gpus}" if question.gpus > 1 else ""
    measuring = f"LongCA simulates nothing itself: `longca run{split}` measures, and its records answer without --cluster."
    try:
        best = recommend(replace(question, cluster=None), evidence).best
    except BadInput as error:  # records of several devices
        return lacking, measuring, f"without --cluster {error}"
    if best is None:
        return lacking, measuring, "without --cluster no measured record answers, either."
    speed = f"{best.tflops:.3g} TFLOP/s{' per GPU' if best.method else ''}, {best.ms:.4g} ms"
    return lacking, measuring, f"without --cluster measured records say: use {best.name} ({speed})."


def _weighed(candidate: Candidate, question: Question) -> Candidate:
    """Out, if it needs more memory than there is."""
    if question.memory_gib is None or candidate.status:
        return candidate
    need = candidate.memory_gib(question)
    if need is None and candidate.on_cpu:
        return replace(candidate, figures={}, status=NOT_COUNTED, reason="memory is counted on GPUs only")
    if need is None:
        return replace(candidate, figures={}, status=NOT_MEASURED, reason="its memory was not counted, so --memory cannot be answered")
    if need <= question.memory_gib:
        return candidate
    return replace(
        candidate,
        figures={},
        status=TOO_LARGE,
        reason=f"it takes {need:.3g} GiB with its inputs, over the {question.memory_gib:.3g} GiB asked for",
    )


def _least_memory(too_large: Sequence[Candidate], question: Question) -> tuple[str, ...]:
    """What comes closest where memory is the trouble."""
    needs = sorted((need, one.name) for one in too_large if (need := one.memory_gib(question)) is not None)
    return tuple(f"the least of what was measured takes {need:.3g} GiB: {name}." for need, name in needs[:1])


def _unshared(candidate: Candidate, shared: frozenset[str]) -> Candidate:
    lacking = len(shared - candidate.figures.keys())
    reason = f"it was not measured on {lacking} of the {len(shared)} masks (seeds) on which the others are compared"
    return replace(candidate, status=NOT_MEASURED, reason=reason)


def _ranked(found: list[Candidate], shared: frozenset[str], question: Question) -> tuple[Choice, ...]:
    ordered = sorted(found, key=lambda one: -one.speed(shared))
    choices = [_choice(one, ordered[0], shared, question) for one in ordered]
    last = max((at for at, choice in enumerate(choices) if choice.as_good), default=0)
    return tuple(replace(choice, as_good=0 < at <= last) for at, choice in enumerate(choices))  # what is faster than one as good is as good


def _choice(candidate: Candidate, best: Candidate, shared: frozenset[str], question: Question) -> Choice:
    own: Mapping[str, Figures] = {digest: candidate.figures[digest] for digest in sorted(shared, key=lambda one: _seed(candidate, one))}
    alike = sum(found.as_fast_as(best.figures[digest]) for digest, found in own.items())
    speed = candidate.speed(shared)
    return Choice(
        name=candidate.name,
        kernel=candidate.about["kernel"],
        method=candidate.about["method"],
        grid=candidate.about["grid"],
        tflops=speed,
        worst_tflops=min(found.tflops for found in own.values()),
        ms=median(found.ms for found in own.values()),
        memory_gib=candidate.memory_gib(question),
        against_best=speed / best.speed(shared),
        as_good=candidate is not best and 2 * alike > len(own),
        noisy=candidate.noisy,
        samples=candidate.samples,
        summed=candidate.summed,
        simulated=candidate.about["simulated"],
        sources=tuple(source for found in own.values() for source in found.sources),
    )


def _seed(candidate: Candidate, digest: str) -> int:
    return int(candidate.figures[digest].sources[0].record["seed"])


def _unmeasured(matching: Sequence[Evidence], question: Question) -> tuple[str, ...]:
    """On one GPU kernels, on many methods: what LongCA has and these records do not speak of."""
    small = _miniature(question)
    shape = (question.heads_q, question.heads_kv, question.head_dim, question.head_dim_v, question.dtype)
    device = "cpu" if matching and all(one.on_cpu for one in matching) else "cuda"
    case = Case(small.seqlen_q, small.seqlen_k, *shape, device, backward=question.which != "fwd", deterministic=question.deterministic)
    if question.gpus > 1:
        return _unmeasured_methods({one.record.get("method") for one in matching}, small, case, question.gpus)
    without = sorted(set(registry.names()) - {one.record["kernel"] for one in matching})
    return tuple(name for name in without if any(_takes(kernel, small, case) for kernel in registry.choices(name)))


def _takes(kernel: Kernel, mask: AnyMask, case: Case) -> bool:
    return case.device in kernel.devices and bool(registry.supports(kernel, mask, case))


def _unmeasured_methods(measured: set[str | None], small: AnyMask, case: Case, gpus: int) -> tuple[str, ...]:
    from longca.parallel import registry as methods

    others = [methods.get(name) for name in sorted(set(methods.names()) - measured)]
    return tuple(method.name for method in others if method.supports(small, case, gpus, method.default_grid(case, gpus)))


def _miniature(question: Question) -> AnyMask:
    """A mask like the one asked for, yet shorter, to ask kernels whether they would take it: one that does not is not worth measuring.

    It is long enough for a window or a block of the size asked for to hide something, and leaves the same short block at its end.
    """
    unit = max([MINIATURE, *(int(value) for value in question.params.values())])
    seqlen = min(question.seqlen, 2 * unit + question.seqlen % unit)
    heads, blocks = question.heads_kv, question.mask in masks.block_names()
    params: dict[str, Any] = ({"heads": heads} if blocks else {}) | dict(question.params)
    if question.source == "random" or not blocks:
        return masks.build(question.mask, seqlen, **params)

    def alike(row_edges: Ints, col_edges: Ints) -> Means:
        return Means(*(np.zeros((heads, len(edges) - 1, 1)) for edges in (row_edges, col_edges)))

    return masks.BLOCK_PATTERNS[question.mask].selected(seqlen, question.source, alike, **params)
