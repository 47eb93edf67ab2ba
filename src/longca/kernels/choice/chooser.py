"""Chooses kernels for a call: records put the candidates in order, and autotuning takes the fastest of the first ones.

Nothing is autotuned where `longca tune` has measured the class, where that could hurt (`obstacle`), or where one way is left: there the
first in that order is taken. `benchmarks/best_of_all.py` shows what share of the fastest this rule reaches.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from threading import RLock

from longca import devices
from longca.errors import Refused
from longca.kernels.base import Case, Kernel
from longca.kernels.choice import records, words
from longca.kernels.choice.candidates import Available, Candidates, candidates
from longca.kernels.choice.choice import Choice, Obstacle, Option, Source, fastest
from longca.kernels.choice.classes import ShapeClass, shape_class
from longca.kernels.choice.records import Evidence
from longca.masks import AnyMask, BlockMask
from longca.text import say

ENTRANTS = 5  # in a pass of autotuning: the first by records, and as many that have none
FAR = 1.25  # a kernel that records show so far behind the first is not timed
MOST_FLOPS = {"cpu": 2e9, "cuda": 5e13}  # of a forward that is autotuned: 80 ms on an H200
_lock = RLock()
_made: dict[tuple[object, ...], Choice] = {}  # what this process autotuned


@dataclass(frozen=True)
class Contest:
    """The kernels that can do a class of calls, and what records say of them by pass."""

    device: str
    wanted: ShapeClass
    all: Candidates
    known: Mapping[str, Evidence]

    @property
    def key(self) -> tuple[object, ...]:
        """What the result of autotuning depends on, in one process."""
        return self.device, self.wanted, *(tuple(kernel.label for kernel in self.entrants.of(pass_)) for pass_ in ("fwd", "bwd"))

    @cached_property
    def entrants(self) -> Candidates:
        """The kernels to time, the likeliest first. One that runs both passes itself must be among those of both, or be needed."""
        first = {pass_: [kernel.label for kernel in self._first_of(pass_)] for pass_ in ("fwd", "bwd")}
        whole = [kernel for kernel in self.all.whole if kernel.label in first["fwd"] and kernel.label in first["bwd"]]
        return Candidates(
            tuple(kernel for kernel in self._first_of("fwd") if kernel in self.all.forward),
            tuple(kernel for kernel in self._first_of("bwd") if kernel in self.all.backward),
            tuple(whole) or (() if self.all.forward else self.all.whole[:ENTRANTS]),
        )

    def _first_of(self, pass_: str) -> list[Kernel]:
        ordered = self.ordered(self.all.of(pass_), pass_)
        times = [slower for kernel in ordered if (slower := self.known[pass_].slower(kernel.label)) is not None]
        measured = [kernel for kernel, time in zip(ordered, times, strict=False) if time <= FAR * times[0]]
        return measured[:ENTRANTS] + ordered[len(times) :][:ENTRANTS]

    def ordered(self, kernels: Sequence[Kernel], pass_: str) -> list[Kernel]:
        """Returns kernels by their records, the fastest first; those without records follow in the order of preference."""

        def place(kernel: Kernel) -> float:
            slower = self.known[pass_].slower(kernel.label)
            return math.inf if slower is None else slower

        return sorted(kernels, key=place)

    @property
    def is_tuned(self) -> bool:
        """Whether `longca tune` has measured all candidates for this class."""
        return all(self.known[pass_].is_current(kernels) for pass_ in ("fwd", "bwd") if (kernels := self.all.of(pass_)))

    @property
    def has_one_way(self) -> bool:
        left = self.entrants
        return len(left.forward) * max(1, len(left.backward)) + len(left.whole) == 1

    def first(self, case: Case) -> tuple[str, str]:
        """Returns the first forward and backward in the order of records and preference. Of backwards that records show as equal, it is
        that with the least workspace, or that of the forward."""
        left = self.entrants
        if not left.forward:
            return left.whole[0].label, left.whole[0].label if self.wanted.backward else ""
        forward = left.forward[0].label
        if not left.backward:
            return forward, ""
        known = [kernel for kernel in left.backward if self.known["bwd"].slower(kernel.label) is not None]
        if not known:
            return forward, left.backward[0].label

        def time(kernel: Kernel) -> float:
            return self.known["bwd"].slower(kernel.label) or math.inf

        return forward, fastest(known, time, lambda kernel: (kernel.workspace(case), kernel.label != forward)).label

    def options(self, pass_: str) -> list[Option]:
        """Returns all candidates of a pass with what records say of them, the fastest first."""
        labels = [kernel.label for kernel in self.ordered(self.all.of(pass_), pass_)]
        return [Option(label, slower=self.known[pass_].slower(label)) for label in labels]


def contest(mask: AnyMask, case: Case, available: Available | None = None, without: Collection[str] = (), device: str = "") -> Contest:
    """Returns the candidates with their records; `available` and `device` stand for another machine than this."""
    everyone = candidates(mask, case, available, without)
    wanted, device = shape_class(mask, case), device or devices.model(case.device)
    return Contest(device, wanted, everyone, {pass_: records.evidence(device, wanted, pass_) for pass_ in ("fwd", "bwd")})


def choose(mask: AnyMask, case: Case, without: Collection[str] = ()) -> Choice:
    """Returns the kernels to run a call with; autotunes where that is needed. `without` are kernels that refused to be prepared."""
    asked = contest(mask, case, without=without)
    if not asked.all:
        raise Refused(words.missing(mask, case))
    if (choice := remembered(asked, mask, case)) is not None:
        _say_once(asked, choice)
        return choice
    with _lock:
        if asked.key not in _made:
            _made[asked.key] = _autotuned(asked, mask, case, without)
        return _made[asked.key]


def remembered(asked: Contest, mask: AnyMask, case: Case) -> Choice | None:
    """Returns the choice that needs no autotuning now: what this process autotuned before, or the first kernels; None where autotuning
    decides."""
    if asked.key in _made:
        return _made[asked.key]
    if asked.is_tuned or asked.has_one_way:
        return without_autotuning(asked, case)
    hindrance = obstacle(mask, case)
    return without_autotuning(asked, case, hindrance) if hindrance else None


def without_autotuning(asked: Contest, case: Case, hindrance: Obstacle = "") -> Choice:
    """Returns the first kernels by records and preference."""
    forward, backward = asked.first(case)
    known = asked.known["fwd"].slower(forward) is not None or asked.known["bwd"].slower(backward) is not None
    source: Source = "records" if known and len(asked.all.all) > 1 else "preference"
    passes = ("fwd", "bwd") if backward else ("fwd",)
    return Choice(forward, backward, source, {pass_: asked.options(pass_) for pass_ in passes}, hindrance)


def forget() -> None:
    """Drops what this process autotuned."""
    _made.clear()


def _autotuned(asked: Contest, mask: AnyMask, case: Case, without: Collection[str]) -> Choice:
    import torch

    from longca.kernels.choice._autotune import autotune

    try:
        return autotune(asked.entrants, mask, case)
    except torch.OutOfMemoryError:
        return without_autotuning(asked, case, "memory")
    except Refused:  # every entrant failed; others may have been left out
        failed = {*without, *(kernel.label for kernel in asked.entrants.all)}
        if not candidates(mask, case, without=failed):
            raise
        return choose(mask, case, failed)
    finally:
        if case.device == "cuda":
            torch.cuda.empty_cache()  # the caller may have little memory left


def obstacle(mask: AnyMask, case: Case) -> Obstacle:
    """Returns why this call cannot be autotuned now; empty where it can.

    Ranks come to a new class at different steps, and those that wait in a collective while another autotunes may time out."""
    import torch

    if case.deterministic:
        return "deterministic"
    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        return "ranks"
    if case.device == "cuda" and torch.cuda.is_current_stream_capturing():
        return "graph"
    if torch._C._are_functorch_transforms_active():
        return "torch.func"
    per_pair = 2 * (case.head_dim + case.head_dim_v) * case.heads_q // (mask.heads if isinstance(mask, BlockMask) else 1)
    return "long" if mask.area * per_pair > MOST_FLOPS[case.device] else ""


def _say_once(asked: Contest, choice: Choice) -> None:
    import torch

    if choice.obstacle == "ranks" and torch.distributed.get_rank() > 0:
        return  # the first rank says it for all
    if choice.obstacle == "ranks" or (choice.obstacle == "long" and choice.source == "preference"):
        _say(words.not_autotuned(choice.source, choice.obstacle, asked.device))


@cache
def _say(line: str) -> None:
    say(line)
