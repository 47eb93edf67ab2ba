"""Chooses kernels for a call: the only candidate, what records show, what an earlier trial found, or a trial now."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any

from longca import devices
from longca.errors import Refused
from longca.kernels.base import Case, Kernel
from longca.kernels.choice import kept, measured
from longca.kernels.choice.candidates import Available, Candidates, candidates
from longca.kernels.choice.choice import TIE, Choice, Option, Source, fastest
from longca.kernels.choice.classes import ShapeClass, shape_class
from longca.kernels.choice.measured import Evidence
from longca.kernels.choice.part import is_whole
from longca.masks import AnyMask, BlockMask
from longca.text import format_lead, plural

BACKWARD_WEIGHT = 2.5  # the time of a backward over that of a forward, about, where records of both are weighed together
_lock = RLock()
_made: dict[str, Choice] = {}  # by key, those of this process


@dataclass(frozen=True)
class Contest:
    """The kernels that may be the fastest for a class of calls, likeliest first, and the records that left out the others."""

    device: str
    wanted: ShapeClass
    all: Candidates
    contenders: Candidates
    known: Mapping[str, Evidence | None]
    versions: Mapping[str, str]

    @property
    def key(self) -> dict[str, Any]:
        """What a trial's result depends on."""
        labels = sorted(kernel.label for kernel in self.contenders.all)
        passes = {name: [kernel.label for kernel in getattr(self.contenders, name)] for name in ("forward", "backward", "whole")}
        versions = {label: self.versions[label] for label in labels}
        return {"device": self.device, **self.wanted._asdict(), "kernels": passes, "versions": versions}

    @property
    def is_decided(self) -> bool:
        """Whether one way to run the call is left."""
        left = self.contenders
        pairs = len(left.forward) * (len(left.backward) if self.wanted.backward else 1)
        return pairs + len(left.whole) == 1

    def first(self) -> tuple[str, str]:
        """Returns the likeliest forward and backward."""
        left = self.contenders
        if not left.forward:
            return left.whole[0].label, left.whole[0].label if self.wanted.backward else ""
        return left.forward[0].label, left.backward[0].label if left.backward else ""


def contest(mask: AnyMask, case: Case, available: Available | None = None, without: Collection[str] = (), device: str = "") -> Contest:
    """Returns the kernels that may be the fastest; `available` and `device` stand for another machine than this."""
    everyone = candidates(mask, case, available, without)
    wanted, device = shape_class(mask, case), device or device_name(case.device)
    versions = {kernel.label: measured.installed_versions(kernel) for kernel in everyone.all} if available is None else {}
    known = {pass_: measured.evidence(device, wanted, pass_) for pass_ in ("fwd", "bwd")}
    left = Candidates(
        tuple(measured.contenders(everyone.forward, known["fwd"])),
        tuple(measured.contenders(everyone.backward, known["bwd"])),
        tuple(kernel for kernel in everyone.whole if not _is_behind(kernel, everyone, known)),
        everyone.quadratic,
    )
    if _are_known(left, known, versions) and not is_whole(mask, case):
        left = _by_records(left, known, case)
    return Contest(device, wanted, everyone, left, known, versions)


def _are_known(left: Candidates, known: Mapping[str, Evidence | None], versions: Mapping[str, str]) -> bool:
    """Whether records can take the place of a trial. They are of the whole call, and predict its time better than a trial of a few heads
    does (docs/kernels.md has figures)."""
    passes = ((left.forward, known["fwd"]), (left.backward, known["bwd"]))
    is_known = all(measured.are_complete(kernels, records, versions) for kernels, records in passes if kernels)
    return is_known and bool(left.forward) and not left.whole


def _by_records(left: Candidates, known: Mapping[str, Evidence | None], case: Case) -> Candidates:
    """Leaves one kernel for each pass, by the rule of a trial: of backwards that count as equal, that with the least workspace."""
    forward = left.forward[:1]
    if not left.backward:
        return replace(left, forward=forward)

    def time(kernel: Kernel) -> float:
        slower = known["bwd"].slower(kernel.label) if known["bwd"] else None
        return math.inf if slower is None else slower

    backward = fastest(left.backward, time, lambda kernel: (kernel.workspace(case), kernel.label != forward[0].label))
    return replace(left, forward=forward, backward=(backward,))


def _is_behind(kernel: Kernel, everyone: Candidates, known: Mapping[str, Evidence | None]) -> bool:
    """Whether records show that a kernel which runs both passes itself is far behind the best pair."""
    if known["fwd"] is None or known["bwd"] is None or not everyone.forward:
        return False
    pairs = ((everyone.forward, known["fwd"]), (everyone.backward, known["bwd"]))
    if all(records.is_behind_elsewhere(kernel.label, {kernel.label, *(other.label for other in kernels)}) for kernels, records in pairs):
        return True
    own = [records.slower(kernel.label) for _, records in pairs]
    others = [[slower for other in kernels if (slower := records.slower(other.label)) is not None] for kernels, records in pairs]
    if own[0] is None or own[1] is None or not all(others):
        return False
    least = min(others[0]) + BACKWARD_WEIGHT * min(others[1])
    return own[0] + BACKWARD_WEIGHT * own[1] > measured.FAR * least


def choose(mask: AnyMask, case: Case, without: Collection[str] = ()) -> Choice:
    """Returns the kernels to run a call with; makes a trial where it must. `without` are kernels that refused to be prepared."""
    asked = contest(mask, case, without=without)
    if not asked.all:
        raise Refused(missing(mask, case))
    if (choice := _made.get(_text(asked.key)) or settled(asked)) is not None:
        return choice
    with _lock:
        if (choice := remembered(asked)) is not None:
            return choice
        if hindrance := obstacle(case.device):
            return _by_preference(asked, f"nothing can be timed {hindrance}")
        try:
            with kept.locked():
                choice = kept.read(asked.key) or _try(asked, mask, case)
        except Refused:  # every contender failed; records or a last resort may have left others out
            failed = {*without, *(kernel.label for kernel in asked.contenders.all)}
            if not candidates(mask, case, without=failed):
                raise
            choice = choose(mask, case, failed)
        _made[_text(asked.key)] = choice
        return choice


def settled(asked: Contest) -> Choice | None:
    """Returns the choice where no trial is needed: one candidate, records that leave one, or a call that must be deterministic."""
    if not asked.is_decided:
        reason = "the choice must not depend on a clock where determinism is asked for"
        return _by_preference(asked, reason) if asked.wanted.deterministic else None
    forward, backward = asked.first()
    labels = {"fwd": forward} | ({"bwd": backward} if backward else {})
    alone = len(asked.all.all) == 1
    why = {pass_: _reason(asked, pass_, label) for pass_, label in labels.items()}
    source: Source = "only" if alone or not any(asked.known.values()) else "records"
    return Choice(forward, backward, source, why, {pass_: options(asked, pass_) for pass_ in labels})


def remembered(asked: Contest) -> Choice | None:
    """Returns the choice that needs no trial: one of this process, a settled one, or that of an earlier trial which is kept on disk."""
    text = _text(asked.key)
    if text not in _made:
        if (choice := settled(asked)) is not None:
            return choice
        if (choice := kept.read(asked.key)) is not None:
            _made[text] = choice
    return _made.get(text)


def keep(asked: Contest, choice: Choice) -> None:
    """Keeps a choice for the calls of a class in this process; what it was made for, such as little free memory, may not last."""
    _made[_text(asked.key)] = choice


def forget() -> None:
    """Drops the choices of this process; those on disk stay."""
    _made.clear()


def _try(asked: Contest, mask: AnyMask, case: Case) -> Choice:
    """Returns the choice of a trial, and keeps it on disk."""
    import torch

    from longca.kernels.choice.clocks import clock_for
    from longca.kernels.choice.trial import run_trial

    try:
        choice = run_trial(asked.contenders, mask, case, clock_for(case.device))
    except torch.OutOfMemoryError:
        return _by_preference(asked, "there is no memory for the inputs of a trial")
    finally:
        if case.device == "cuda":
            torch.cuda.empty_cache()  # the caller may have little memory left
    kept.write(asked.key, choice)
    return choice


def _by_preference(asked: Contest, reason: str) -> Choice:
    forward, backward = asked.first()
    sentence = f"first by {'records and ' * any(asked.known.values())}preference: {reason}"
    labels = {"fwd": forward} | ({"bwd": backward} if backward else {})
    return Choice(forward, backward, "preference", dict.fromkeys(labels, sentence), {pass_: options(asked, pass_) for pass_ in labels})


def _reason(asked: Contest, pass_: str, label: str) -> str:
    if len(options(asked, pass_)) == 1:
        return "no other kernel that is available here can do this"
    return lead(asked, pass_, label) or "no other kernel is left"


def lead(asked: Contest, pass_: str, label: str) -> str:
    """Returns how far ahead of the next one records show a kernel; empty where they do not."""
    known = asked.known[pass_]
    own = None if known is None else known.slower(label)
    others = [(option.slower, option.kernel) for option in options(asked, pass_) if option.slower is not None and option.kernel != label]
    if known is None or own is None or not others:
        return ""
    slower, second = min(others)
    if slower < own:  # chosen among equals
        return f"{known.describe()}: as fast as {second} within {100 * TIE:g} %, with less workspace or the kernel of the forward"
    return f"{known.describe()}: {format_lead(slower / own)} {second}"


def options(asked: Contest, pass_: str) -> list[Option]:
    """Returns all candidates of a pass with what records say of them, the fastest first."""
    everyone, known = asked.all, asked.known[pass_]
    labels = dict.fromkeys(kernel.label for kernel in (*(everyone.forward if pass_ == "fwd" else everyone.backward), *everyone.whole))
    unsorted = [Option(label, slower=known.slower(label) if known else None) for label in labels]
    return sorted(unsorted, key=lambda option: (option.slower is None, option.slower or 0.0))


def fits(mask: AnyMask, case: Case) -> bool:
    """Returns whether a mask has one pattern for all heads, or one per KV head."""
    return not isinstance(mask, BlockMask) or mask.heads in (1, case.heads_kv)


def missing(mask: AnyMask, case: Case) -> str:
    """Returns what no kernel can do, in a sentence."""
    if not fits(mask, case):
        patterns = f"{mask.name or 'this mask'} has {mask.heads} block patterns for {plural(case.heads_kv, 'KV head')}"
        return f"{patterns}; give one for all heads, or one per KV head."
    extras = [f"a softcap of {case.softcap:g}"] * bool(case.softcap) + ["attention sinks"] * case.sinks
    with_extras = f" with {' and '.join(extras)}" if extras else ""
    what = f"{mask.name or 'this mask'}{with_extras} on {case.device}"
    return f"no kernel that is available here can do {what}; `longca ls kernels` shows why."


def device_name(device: str) -> str:
    """Returns the name of the GPU, or of the CPU with the number of threads that torch uses."""
    if device == "cuda":
        return devices.title()
    import torch

    return f"{_processor()}, {plural(torch.get_num_threads(), 'thread')}"


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine() or os.name


def obstacle(device: str) -> str:
    """Returns what makes a trial impossible now; empty where nothing does."""
    import torch

    if device == "cuda" and torch.cuda.is_current_stream_capturing():
        return "while a CUDA graph is captured"
    return "inside torch.func" if torch._C._are_functorch_transforms_active() else ""


def _text(key: Mapping[str, Any]) -> str:
    return str(kept.path_of(key))
