"""Runs jobs on a group of ranks, step by step, and makes one outcome of their answers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from longca.bench.many_devices.grids import sharing_of
from longca.bench.many_devices.overlap import Span, shares_of, write
from longca.bench.many_devices.refusals import refusal_of
from longca.bench.plan.catalogue import Catalogue
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import mask_of
from longca.bench.plan.jobs import Job
from longca.bench.plan.suite import Suite
from longca.bench.run.outcomes import CellFailed, failure, status_of, timed_outcome
from longca.bench.run.retry import Executor, Suspect, waiting
from longca.masks import AnyMask
from longca.parallel import joining
from longca.processes import host_memory
from longca.processes.lost import PHASES as WORDS
from longca.processes.pool import Pool
from longca.processes.ranks import RankFailed
from longca.results.metrics import GIB, imbalance
from longca.results.problem import Pass, Sharing
from longca.results.record import Check, Memory, Outcome, RankFigures, Status
from longca.text import short

if TYPE_CHECKING:
    from longca.bench.check.timed_calls import AfterClock
    from longca.bench.many_devices.rank_job import Prepared, Timed
    from longca.processes.joined import Joined

STATUS = {"died": Status.ERROR, "timeout": Status.TIMEOUT, "oom": Status.OOM}
STATUS |= {"refused": Status.UNSUPPORTED, "unavailable": Status.UNAVAILABLE}
BROKEN = ("died", "timeout")
PHASES = {"prepare": "build", "clock": "time", "trace": "time"}  # steps by the phase whose seconds they count as
STEP = "longca.bench.many_devices.rank_job:step"
T = TypeVar("T")


class RanksBroke(CellFailed):
    """Ranks died or hung: their processes are gone."""


class Ranks(Executor):
    """All methods share one group of ranks, which is replaced when a rank breaks."""

    def __init__(self, suite: Suite, catalogue: Catalogue, device: str, device_model: str, cache: Path, trace: Path | None = None) -> None:
        """`trace`: a folder for traces of a call of each cell."""
        super().__init__()
        self._trace = trace
        self._suite, self._device, self._model, self._cache = suite, device, device_model, cache
        self._plugins = [str(Path(path).resolve()) for path in catalogue.plugins]
        self._group: Pool | Joined | None = None
        self._said = False  # that the present job is silent

    @property
    def lost(self) -> bool:
        return self._group is not None and self._group.lost

    def close(self) -> None:
        if self._group is None and joining.launched():
            self._group = self._begin(0)  # with nothing left to do, the other ranks still wait to be told so
        if self._group is not None:
            self._group.close()

    def attempt(self, job: Job) -> Iterator[tuple[Pass, Outcome]]:
        left, cell = job.passes, job.cell
        suspect = Suspect(cell.title, cell.grad)
        failed, self._said = self.strikes.given_up().get(suspect), False
        if failed is None:
            try:
                for pass_, outcome in self._measure(job):
                    left.remove(pass_)
                    yield pass_, outcome
                self.strikes.answered(suspect)
            except RanksBroke as broke:
                self.strikes.broke(suspect, broke.status, str(broke))
                failed = failure(broke, grad=cell.grad)
            except CellFailed as error:
                self.strikes.answered(suspect)
                failed = failure(error, grad=cell.grad)
        if left and failed is not None:
            yield from ((pass_, failed) for pass_ in left)

    def _measure(self, job: Job) -> Iterator[tuple[Pass, Outcome]]:
        from longca.bench.many_devices.rank_job import Timed

        cell, limits = job.cell, self._suite.limits
        assert cell.split is not None
        mask, ranks = mask_of(cell.problem), cell.problem.ranks
        prepared = self._prepare(cell, mask)
        known: dict[str, Any] = {"grad": cell.grad, "backward_kind": least_backward(prepared), "check": self._check(job)}
        known |= {name: max(getattr(answer, name) for answer in prepared) for name in ("build_ms", "plan_ms")}
        known["select_ms"] = getattr(mask, "select_ms", None)
        uneven = imbalance([answer.work for answer in prepared])
        for pass_ in job.passes:
            settings = {"pass_": pass_.value, "settings": msgspec.to_builtins(self._suite.clock)}
            answers = self._ask(cell, "clock", limits.time_s, settings, Timed)
            if wrong := wrong_on_a_rank([answer.after for answer in answers], known["check"]):
                yield pass_, failure(wrong, grad=cell.grad, build_ms=known["build_ms"])
                continue
            timing = answers[0].timing
            first = max(sum(answer.first_ms[part] for part in pass_.parts) for answer in prepared)
            compiled = max(answer.compile_ms for answer in prepared)
            figures: dict[str, Any] = {"compile_ms": compiled + max(0.0, first - timing.median)}
            sent = [answer.bytes_sent for answer in answers if answer.bytes_sent is not None]
            alone_ms = answers[0].without_transfers_ms
            figures["over_ranks"] = RankFigures(
                imbalance=uneven,
                bytes_sent=sent if len(sent) == len(answers) else None,
                nccl=answers[0].nccl,
                wait_share=None if alone_ms is None else max(0.0, 1 - alone_ms / timing.median),
                **over_ranks(timing.samples, timing.means),
                **self._traced(cell, pass_),
            )
            figures["nondeterministic"] = any(answer.after.nondeterministic for answer in answers)
            if peaks := [answer.peak_bytes / GIB for answer in answers if answer.peak_bytes is not None]:
                figures["memory"] = Memory(max(peaks), peaks, outside_gib(answers, cell.problem.sharing))
            yield pass_, timed_outcome(timing, mask, cell.case(mask), pass_, self._model, ranks, **known, **figures)

    def _traced(self, cell: Cell, pass_: Pass) -> dict[str, float]:
        """Writes a trace of one call on all ranks, where traces are wanted; returns what it shows."""
        if self._trace is None:
            return {}
        ranks = self._ask(cell, "trace", self._suite.limits.time_s, {"pass_": pass_.value}, list[Span])
        problem, split = cell.problem, cell.split
        assert split is not None
        names = (split.method, split.shape, cell.kernel, problem.mask_title, problem.seqlen, f"{problem.ranks} ranks", pass_.value)
        write(ranks, " ".join(map(str, names)), self._trace)
        return shares_of(ranks)

    def _prepare(self, cell: Cell, mask: AnyMask) -> list[Prepared]:
        """Has every rank plan the cell, prepare its kernels and call each pass once."""
        from longca.bench.many_devices.rank_job import Prepared

        try:
            refusal: Exception | None = refusal_of(cell.job)
        except Exception as error:  # of a plugin's method
            refusal = error
        if refusal is not None:
            raise CellFailed(*status_of(refusal)) from refusal
        given = {"cell": msgspec.to_builtins(cell), "digest": mask.digest, "backward": cell.grad, "plugins": self._plugins}
        given["draws"] = SystemRandom().getrandbits(48)
        return self._ask(cell, "prepare", self._suite.limits.build_s, given, Prepared)

    def _check(self, job: Job) -> Check:
        """The worst error of each tensor over all ranks."""
        from longca.bench.check.timed_calls import AfterClock

        limits, given = self._suite.limits, {"cache": str(self._cache.resolve()), "grad": job.reference_grad}
        self._ask(job.cell, "reference", limits.build_s, given, type(None))
        verdicts = self._ask(job.cell, "check", limits.check_s, given, AfterClock)
        worst = worst_errors([verdict.errors for verdict in verdicts])
        if wrong := wrong_on_a_rank(verdicts, worst):
            raise wrong
        return worst

    def _ask(self, cell: Cell, step: str, seconds: float, args: dict[str, Any], kind: type[T]) -> list[T]:
        """One answer per rank, in the order of ranks."""
        assert cell.split is not None
        start = time.perf_counter()

        def tell() -> None:
            self._said = True
            self.say(waiting(cell, PHASES.get(step, step), seconds))

        try:
            group = self.group(cell.problem.ranks)
            group.silent = None if self._said else tell
            answers = group.run(STEP, {"name": step, "args": args}, seconds)
            return msgspec.convert(answers, list[kind])  # type: ignore[valid-type]
        except RankFailed as failed:
            raised = RanksBroke if failed.kind in BROKEN else CellFailed
            raise raised(*outcome_of(failed, step)) from failed
        except msgspec.ValidationError as error:
            raise CellFailed(Status.ERROR, f"a rank gave a malformed answer during {_phase(step)}: {error}") from error
        finally:
            self.spent_s[PHASES.get(step, step)] += time.perf_counter() - start

    def group(self, ranks: int) -> Pool | Joined:
        """The group of ranks, which starts when it is first asked for."""
        if self._group is None:
            self._group = self._begin(ranks)
        return self._group

    def _begin(self, ranks: int) -> Pool | Joined:
        backend, launch, limits = "nccl" if self._device == "cuda" else "gloo", joining.launched(), self._suite.limits
        memory = host_memory.limit(limits.memory) // (launch.ranks_per_node if launch else ranks) if self._device == "cpu" else 0
        sharing = sharing_of(self._suite, self._device)
        if launch is None:
            return Pool(ranks, backend, start_s=limits.start_s, memory=memory, sharing=sharing)
        from longca.processes.joined import Joined

        joined = Joined(joining.join(launch, backend, limits.start_s, sharing.ranks if sharing else 1))
        if memory and ranks:
            joined.run("longca.processes.ranks:limit_data", {"size": memory}, limits.start_s)
        return joined


def _phase(step: str) -> str:
    """The word for the phase of a step, as the line of a job that is silent for long has it."""
    return WORDS[PHASES.get(step, step)]


def outcome_of(failed: RankFailed, step: str) -> tuple[Status, str]:
    """Status and reason of ranks that failed, with the last words of the one to blame."""
    status = STATUS.get(failed.kind) or status_of(RuntimeError(failed.message))[0]
    if failed.kind == "refused":
        return status, short(failed.message.removeprefix("failed: ").rstrip("."))
    words = f"; its last words: {failed.last_words}" if failed.last_words else ""
    return status, short(f"rank {failed.rank} {failed.message} during {_phase(step)}{words}")


def wrong_on_a_rank(verdicts: Sequence[AfterClock], known: Check) -> CellFailed | None:
    """What is wrong on some rank is wrong for all; None where no rank found anything. `known` are the errors of the check before."""
    reasons = [f"rank {rank}: {verdict.reason}" for rank, verdict in enumerate(verdicts) if verdict.reason]
    errors = worst_errors([known, *(verdict.errors for verdict in verdicts)])
    return CellFailed(Status.WRONG, short("; ".join(reasons)), errors) if reasons else None


def worst_errors(checks: Sequence[Check]) -> Check:
    """The worst error of each tensor."""
    worst: Check = {}
    for check in checks:
        for name, error in check.items():
            if name not in worst or error.share > worst[name].share:
                worst[name] = error
    return worst


def least_backward(prepared: Sequence[Prepared]) -> str:
    """The least of the kinds of backward that ranks chose."""
    kinds = {kind for answer in prepared for kind in answer.backward_kinds}
    return next((kind for kind in ("none", "autograd") if kind in kinds), "functional")


def outside_gib(answers: Sequence[Timed], sharing: Sharing | None) -> float | None:
    """What a rank takes of its GPU beside torch's allocator, on the GPU where this is the most. Neighbours share a GPU."""
    taken = [answer.device_bytes for answer in answers if answer.device_bytes is not None]
    per_gpu = sharing.ranks if sharing else 1
    of_gpus = [taken[first : first + per_gpu] for first in range(0, len(taken), per_gpu)]
    return max(((max(used for used, _ in gpu) - sum(own for _, own in gpu)) / len(gpu) / GIB for gpu in of_gpus), default=None)


def over_ranks(slowest: Sequence[float], means: Sequence[float]) -> dict[str, float]:
    """Medians over iterations: of the mean time of all ranks, and of the slowest rank's time over it."""
    shares = [most / mean if mean else 1.0 for most, mean in zip(slowest, means, strict=True)]
    return {"mean_ms": statistics.median(means), "imbalance_ms": statistics.median(shares)}
