"""Checking kernels without timing them: every wanted kernel on every wanted mask and length, in workers as `longca run` has them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

import msgspec

from longca import masks
from longca.bench.check.trial_names import OPTIONAL, TRIAL_TOKENS, TrialName, trials_on
from longca.bench.one_device.workers import Workers
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import Planned, documents_of, full_title, names_by_pairs
from longca.bench.plan.jobs import Job, make_jobs
from longca.bench.plan.suite import Suite
from longca.bench.plan.workload import Step
from longca.bench.run.retry import outcomes
from longca.errors import BadInput
from longca.kernels.base import BYTES, Case
from longca.masks.own import GROUP as OWN
from longca.results.problem import Pass
from longca.results.record import Check, Outcome, Params, Status
from longca.results.settings import Limits
from longca.text import format_dims, format_heads, format_memory

NEED_NOT = "a kernel need not support this"  # why a trial is skipped
NEVER_RIGHT, NEVER_RAN = "it is correct on no mask", "it ran on no mask"
FAILED = (Status.WRONG, Status.ERROR, Status.TIMEOUT, Status.OOM)  # the kernel takes the mask and was not found right
SHORT = 4096  # tokens below which the usual windows of 1024 hide little and drawn documents are often one
Subject = tuple[str, str, str, str]  # kernel, heads, head size, dtype
DEADLINE_S, LONGEST_DEADLINE_S = 300.0, 3600.0
SCORES = {"cpu": 1 << 30, "cuda": 1 << 40}  # how many a slow but correct kernel, or the reference, does within `DEADLINE_S`


@dataclass(frozen=True)
class Finding:
    """One kernel on one mask, or in one trial: its status and reason, and per tensor the worst error and the tolerance there."""

    kernel: str
    mask: str  # empty for a trial with a mask of its own
    seqlen: int
    status: Status
    reason: str
    errors: Check
    heads: str
    head_dim: str
    dtype: str
    trial: TrialName | None = None
    shown: str = ""  # the mask with its parameters and the packing of its documents: short sequences get their own

    def __str__(self) -> str:
        return f"{self.kernel} on {self.place}, {self.seqlen} tokens: {self.status}"

    @property
    def place(self) -> str:
        """The mask or the trial, for people."""
        return self.shown or self.mask if self.trial is None else f"trial: {self.trial}"

    @property
    def checked(self) -> bool:
        """Whether the kernel ran: it was compared, or it failed."""
        return bool(self.errors) or self.status in FAILED


def make_step(name: str, seqlen: int, seed: int, suite: Suite) -> Step:
    """The mask to check on. Short sequences get narrow windows and several documents, or many masks would show the same pairs."""
    pattern, params = masks.find(name), Params()
    drawn = documents_of(suite, pattern, seqlen)
    if pattern.has_documents and seqlen < SHORT and not (suite.documents or suite.distribution or suite.packing):
        drawn = {"packing": "short"}
    if seqlen < SHORT and pattern.group != OWN:
        narrow = {"w": seqlen // 8, "B": max(1, seqlen // 16), "c": max(1, seqlen // 8)}
        params = {key: narrow[key] for key, default in pattern.defaults.items() if key in narrow and isinstance(default, int)}
    return Step(name, seqlen, **drawn, params=params | masks.own_params(name, suite.params_of(name)), seed=seed)


def refuse_too_long(seqlen: int, case: Case, memory: int) -> None:
    """Refuses lengths whose inputs, results and those of the call before do not fit into this memory, before anything is built."""
    per_token = (case.heads_q + case.heads_kv) * (case.head_dim + case.head_dim_v) * BYTES[case.dtype]  # of all inputs, and of all results
    need = 3 * seqlen * per_token
    if need > memory:
        sizes = f"{format_memory(need)}, and {format_memory(memory)} are there"
        raise BadInput(
            f"checking {seqlen} tokens with {case.heads_q}:{case.heads_kv} heads takes at least {sizes}; give shorter --seqlens."
        )


def limits(deadline_s: float | None, device: str, seqlen: int, heads: int) -> Limits:
    """What a step may take: as asked, or minutes, and more where the scores of the longest sequence are many."""
    usual = max(1.0, heads * seqlen**2 / SCORES[device]) * DEADLINE_S
    seconds = min(LONGEST_DEADLINE_S, usual) if deadline_s is None else deadline_s
    return Limits(workers="one").with_deadline(seconds)  # nothing is timed, so one process for all kernels will do


def verify(
    planned: Sequence[Planned],
    grouping: str,
    device: str,
    make_workers: Callable[[Path], Workers],
    *,
    trials: bool = True,
    failed_on: Callable[[Cell, Finding], object] = lambda cell, finding: None,
) -> Generator[Finding, None, None]:
    """Findings as they come, mask by mask, so that the reference of a mask is made once and used by all kernels; then the trials of each
    kernel in every shape and dtype, which are skipped where it is right on no mask. Masks that show the same pairs are checked once.
    `grouping` are the limits' `workers`, `make_workers` gets their folder, and `failed_on` what failed on a mask."""
    names, titles = names_by_pairs(planned), names_by_pairs(planned, full_title)
    jobs, right, failed = dict[Subject, Job](), set[Subject](), set[Subject]()
    with TemporaryDirectory(prefix="longca-verify-") as folder:
        workers = make_workers(Path(folder))
        try:
            for _, of_problem in groupby(make_jobs(distinct(planned), grouping), lambda job: job.cell.problem.every_pass):
                for job in of_problem:
                    found = finding(job, dict(outcomes(job, workers)))
                    own = subject(job.cell)
                    jobs.setdefault(own, job)
                    if found.status is Status.OK and own not in right:
                        jobs[own] = job  # trials take a mask on which it is right
                        right.add(own)
                    elif found.status in FAILED:
                        failed.add(own)
                        failed_on(job.cell, found)
                    same = job.planned[0].shown
                    yield replace(found, mask=" = ".join(names[same]), shown=" = ".join(titles[same]))
                for reference in Path(folder).iterdir():  # of no use to the next problem
                    rmtree(reference, ignore_errors=True)
            for own, job in jobs.items() if trials else ():
                alone, never = replace(job, planned=job.planned[:1]), NEVER_RIGHT if own in failed else NEVER_RAN
                for name in trials_on(device):
                    skipped = Outcome(status=Status.SKIPPED, reason=never)
                    outcome = dict(workers.attempt(alone, name)).popitem()[1] if own in right else skipped
                    yield trial_finding(job, name, outcome)
        finally:
            workers.close()


def subject(cell: Cell) -> Subject:
    """What trials are made of: a kernel in one shape and dtype."""
    shape = msgspec.structs.asdict(cell.problem)
    return cell.kernel, format_heads(shape), format_dims(shape), cell.problem.dtype


def case_count(planned: Sequence[Planned], grouping: str, device: str, trials: bool = True) -> int:
    """How many findings `verify` has: those of the kernels on their masks, and of all trials of all kernels."""
    checked = [subject(job.cell) for job in make_jobs(distinct(planned), grouping)]
    return len(checked) + len(set(checked)) * len(trials_on(device) if trials else ())


def distinct(planned: Sequence[Planned]) -> list[Planned]:
    """The cells of the first of all masks that show the same pairs."""
    names = names_by_pairs(planned)
    return [entry for entry in planned if entry.cell.problem.mask == names[entry.shown][0]]


def trial_finding(job: Job, name: TrialName, outcome: Outcome) -> Finding:
    """The finding of a trial of the kernel of a job; one that it refuses and need not support is skipped. Most trials have a mask of their
    own; block patterns are tried, too, at their length."""
    if outcome.status is Status.UNSUPPORTED and name in (*OPTIONAL, TrialName.GUARDED):
        outcome = Outcome(status=Status.SKIPPED, reason=NEED_NOT if name in OPTIONAL else outcome.reason)
    problem = job.cell.problem
    place = (problem.mask, problem.seqlen) if masks.has_blocks(problem.mask) else ("", TRIAL_TOKENS)
    return _finding(job, outcome.variant, *place, outcome.status, outcome.reason, outcome.check or {}, name)


def finding(job: Job, found: Mapping[Pass, Outcome]) -> Finding:
    """One finding of both passes: a kernel whose forward alone is right is right where it has no backward, and else is not."""
    forward, backward = found[Pass.FWD], found[Pass.BWD]
    shown, reason = backward, backward.reason
    if forward.status is Status.OK and not forward.grad:
        if backward.status is Status.UNSUPPORTED:
            shown, reason = forward, f"forward only: {backward.reason}"
        elif not backward.check:
            reason = f"{backward.reason.rstrip('.')}; its forward alone is right"
    elif backward.status is Status.UNSUPPORTED:
        shown, reason = forward, forward.reason
    elif forward.status is Status.WRONG and not backward.check and forward.reason != backward.reason:
        reason = f"{backward.reason.rstrip('.')}; its forward alone: {forward.reason}"
    variant, check, problem = forward.variant or backward.variant, shown.check or forward.check or {}, job.cell.problem
    return replace(_finding(job, variant, problem.mask, problem.seqlen, shown.status, reason, check), shown=full_title(problem))


def _finding(
    job: Job, variant: str | None, mask: str, seqlen: int, status: Status, reason: str, errors: Check, trial: TrialName | None = None
) -> Finding:
    kernel, heads, head_dim, dtype = subject(job.cell)
    label = f"{kernel.partition(':')[0]}:{variant}" if variant else kernel
    return Finding(label, mask, seqlen, status, reason, errors, heads, head_dim, dtype, trial)
