"""Runs the jobs of the level `cp` on a pool of ranks, step by step, and makes one answer of theirs."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from longca.bench.catalogue import Catalogue
from longca.bench.cell import Cell
from longca.bench.clock import Timing
from longca.bench.cp_catalogue import plan_of
from longca.bench.cp_memory import refuse_what_does_not_fit
from longca.bench.kernel_job import GIB, figures
from longca.bench.outcome import of_exception
from longca.bench.plan import Job, mask_of
from longca.bench.strikes import STRIKES
from longca.bench.suite import Suite
from longca.bench.worker import plain
from longca.errors import LongcaError
from longca.parallel import joining
from longca.processes import host_memory
from longca.processes.pool import Pool
from longca.processes.ranks import RankFailed
from longca.text import short

Fields = dict[str, Any]
STATUS = {"died": "error", "timeout": "timeout", "oom": "oom", "refused": "unsupported", "unavailable": "unavailable"}
BROKEN = ("died", "timeout")
LOST = "not tried without a backward, with which the ranks of this job broke"
PHASES = {"prepare": "build", "clock": "time"}  # steps as the phases are called everywhere


class Group(Protocol):
    """Ranks that run "module:function" together: a pool of this machine's, or the job that this process is part of."""

    lost: bool  # they broke, and nobody can start new ones

    def run(self, job: str, args: Fields, deadline: float) -> list[Any]: ...

    def close(self) -> None: ...


class Failed(Exception):
    """The cell came to nothing: what its record says."""

    def __init__(self, status: str, reason: str, check: Fields | None = None, broken: bool = False) -> None:
        super().__init__(reason)
        self.fields, self.broken = {"status": status, "reason": reason, "check": check}, broken


class Ranks:
    """All methods share one pool, which is replaced when a rank breaks."""

    def __init__(self, suite: Suite, found: Catalogue, device: str, device_model: str, cache: Path, full: bool) -> None:
        self._suite, self._device, self._model, self._cache = suite, device, device_model, cache
        self._plugins = [str(Path(path).resolve()) for path in found.plugins]
        self._group: Group | None = None
        self._strikes: dict[tuple[str, bool], int] = {}  # by method and whether a backward was asked for: its forward may be fine
        self.spent_s = defaultdict[str, float](float)

    def start(self, jobs: Iterable[Job]) -> None:
        """The pool starts with its first job: all ranks at once, and nothing else could start meanwhile."""

    def close(self) -> None:
        if self._group is None and joining.launched():
            self._group = self._begin(0)  # with nothing left to do, the other ranks still wait to be told so
        if self._group is not None:
            self._group.close()

    def run(self, job: Job) -> Iterator[tuple[str, Fields]]:
        """Where forward and backward fail together, forward is tried alone; on new ranks, if the old ones broke."""
        passes, cell = [entry.cell.which for entry in job.planned], job.cell
        left, alone, lost_before = list(passes), False, self._lost
        try:
            for which, fields in self._attempt(cell, passes, cell.grad):
                left.remove(which)
                yield which, plain(fields)
        except Failed as failed:
            lost = self._lost and not lost_before
            alone = cell.grad and "fwd" in left and not lost
            for which in left:
                if which == "fwd" and cell.grad and lost:  # or a job that starts again would run the same backward again, for ever
                    yield which, plain(failed.fields | {"status": "error", "reason": short(f"{LOST}: {failed.fields['reason']}")})
                elif not (alone and which == "fwd"):
                    yield which, plain(failed.fields)
        if alone:
            try:
                for which, fields in self._attempt(cell, ["fwd"], backward=False):
                    yield which, plain(fields)
            except Failed as failed:
                yield "fwd", plain(failed.fields)

    @property
    def _lost(self) -> bool:
        return self._group is not None and self._group.lost

    def _attempt(self, cell: Cell, passes: list[str], backward: bool) -> Iterator[tuple[str, Fields]]:
        suspect = (dict(cell.extra)["method"], backward)
        strikes = self._strikes.get(suspect, 0)
        if strikes >= STRIKES:
            raise Failed("error", f"not tried, {suspect[0]} broke its ranks {STRIKES} times in a row")
        try:
            yield from self._measure(cell, passes, backward)
            self._strikes[suspect] = 0
        except Failed as failed:
            self._strikes[suspect] = strikes + 1 if failed.broken else 0
            raise

    def _measure(self, cell: Cell, passes: list[str], backward: bool) -> Iterator[tuple[str, Fields]]:
        mask, asked, limits = mask_of(cell.problem), dict(cell.extra), self._suite.limits
        case, ranks = cell.case(mask), asked["ranks"]
        try:
            made = plan_of(cell, mask, backward)
            if self._device == "cuda":
                refuse_what_does_not_fit(cell, made)
        except LongcaError as error:
            raise Failed(*of_exception(error)) from error
        given = {"cell": cell.to_json(), "backward": backward, "plugins": self._plugins}
        prepared = self._ask(cell, "prepare", limits.build_s, given)
        about = {name: max(answer[name] for answer in prepared) for name in ("build_ms", "plan_ms")}
        kinds = {kind for answer in prepared for kind in answer["backward_kinds"]}
        kind = next((kind for kind in ("none", "autograd") if kind in kinds), "functional")  # the least of what ranks chose
        about |= {"mask_digest": prepared[0]["mask_digest"], "backward_kind": kind, "grad": backward}
        about["imbalance"] = imbalance([answer["work"] for answer in prepared])
        about["check"] = self._check(cell)
        for which in passes:
            answers = self._ask(cell, "clock", limits.time_s, {"which": which, "settings": asdict(self._suite.clock)})
            timing = Timing(**answers[0]["timing"])
            fields = figures(timing, mask, case, which, self._model, ranks)
            first = max(sum(answer["first_ms"][part] for part in which.split("+")) for answer in prepared)
            fields["compile_ms"] = max(0.0, first - timing.median)
            fields |= over_ranks(timing.samples, answers[0]["mean_samples"])
            fields["bytes_sent"] = [answer["bytes_sent"] for answer in answers]
            silent_ms = answers[0]["silent_ms"]
            fields["wait_share"] = None if silent_ms is None else max(0.0, 1 - silent_ms / timing.median)
            if answers[0]["peak_bytes"] is not None:
                fields["peak_gib_ranks"] = [answer["peak_bytes"] / GIB for answer in answers]
                fields["peak_gib"] = max(fields["peak_gib_ranks"])
            yield which, about | fields

    def _check(self, cell: Cell) -> Fields:
        limits, given = self._suite.limits, {"cache": str(self._cache.resolve()), "grad": cell.grad}
        self._ask(cell, "reference", limits.build_s, given)
        verdicts = self._ask(cell, "check", limits.check_s, given)
        worst: Fields = {}
        for verdict in verdicts:
            for name, error in verdict["errors"].items():
                if name not in worst or not error["ratio"] <= worst[name]["ratio"]:
                    worst[name] = error
        found = {name: {"error": error["error"], "allowed": error["allowed"]} for name, error in worst.items()}
        reasons = [f"rank {rank}: {verdict['reason']}" for rank, verdict in enumerate(verdicts) if verdict["reason"]]
        if reasons:
            raise Failed("wrong", short("; ".join(reasons)), found)
        return found

    def _ask(self, cell: Cell, step: str, seconds: float, given: Fields) -> list[Any]:
        asked, start = dict(cell.extra), time.perf_counter()
        try:
            if self._group is None:
                self._group = self._begin(asked["ranks"])
            return self._group.run(f"longca.bench.cp_job:{step}", given, seconds)
        except RankFailed as failed:
            raise Failed(*outcome(failed, step), broken=failed.kind in BROKEN) from failed
        finally:
            self.spent_s[PHASES.get(step, step)] += time.perf_counter() - start

    def _begin(self, ranks: int) -> Group:
        backend = "nccl" if self._device == "cuda" else "gloo"
        launch, limits = joining.launched(), self._suite.limits
        if launch is None:
            return Pool(ranks, backend, start_s=limits.start_s, memory=host_memory.limit(limits.memory) // ranks)
        from longca.processes.joined import Joined

        joined = Joined(joining.join(launch, backend, limits.start_s))
        if self._device == "cpu" and ranks:
            joined.run("longca.processes.ranks:limit_data", {"size": host_memory.limit(limits.memory) // ranks}, limits.start_s)
        return joined


def outcome(failed: RankFailed, step: str) -> tuple[str, str]:
    """(status, reason) of ranks that did not end well, with the last words of the one to blame."""
    status = STATUS.get(failed.kind) or of_exception(RuntimeError(failed.message))[0]
    if failed.kind == "refused":
        return status, short(failed.message.removeprefix("failed: ").rstrip("."))
    return status, short(
        f"rank {failed.rank} {failed.message} during {step}" + (f"; its last words: {failed.last_words}" if failed.last_words else "")
    )


def over_ranks(slowest: Sequence[float], mean: Sequence[float]) -> Fields:
    """Medians over iterations: of the mean time of all ranks, and of the slowest rank's time over it."""
    shares = [most / average if average else 1.0 for most, average in zip(slowest, mean, strict=True)]
    return {"mean_ms": statistics.median(mean), "imbalance_ms": statistics.median(shares)}


def imbalance(work: list[int]) -> float:
    """The largest share of the pairs that a rank computes, over the mean share: 1 is even."""
    return max(work) * len(work) / sum(work) if sum(work) else 1.0
