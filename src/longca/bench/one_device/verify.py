"""Checking kernels without timing them: every wanted kernel on every wanted mask and length, in workers as `longca run` has them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from longca import masks
from longca.bench.catalogue import Catalogue
from longca.bench.cell import Cell
from longca.bench.metrics import BYTES
from longca.bench.outcome import fields_of
from longca.bench.plan import Job, Planned, jobs
from longca.bench.pool import Pool
from longca.bench.suite import Limits, Suite
from longca.errors import BadInput, Refused, Unavailable
from longca.kernels import registry
from longca.kernels.base import Case, Kernel
from longca.masks import AnyMask
from longca.text import format_memory

if TYPE_CHECKING:
    from longca.bench.session import Session

FAILED = ("wrong", "error", "timeout", "oom")  # what was not found right though the kernel takes it
SHORT = 4096  # tokens below which the usual windows of 1024 hide little and drawn documents are often one
DEADLINE_S, LONGEST_DEADLINE_S = 300.0, 3600.0
SCORES = {"cpu": 1 << 30, "cuda": 1 << 40}  # how many a slow but honest kernel, or the reference, does within `DEADLINE_S`
Errors = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Finding:
    """One kernel on one mask: ok, wrong, unsupported, unavailable, oom, timeout or error, with the reason, and per tensor the error of
    its worst token (None where that is no finite number), what is allowed there and where it is."""

    kernel: str
    mask: str
    seqlen: int
    status: str
    reason: str
    errors: Errors


def step(name: str, seqlen: int, seed: int, settings: Mapping[str, int | float]) -> dict[str, Any]:
    """The mask part of a cell. Short sequences get narrow windows and several documents, or many masks would show the same pairs."""
    pattern = masks.find(name)
    about: dict[str, Any] = {"mask": name, "seqlen": seqlen, "seed": seed}
    params = dict[str, int | float]()
    if seqlen < SHORT and isinstance(pattern, masks.Pattern):
        usual = {"w": seqlen // 8, "B": max(1, seqlen // 16)}
        params = {key: usual[key] for key, default in pattern.defaults.items() if key in usual and isinstance(default, int)}
        if pattern.has_documents:
            about["documents"] = _documents(seqlen, seed)
    return about | {"params": tuple((params | masks.own_params(name, settings)).items())}


def _documents(seqlen: int, seed: int) -> tuple[int, ...]:
    """Four documents or more: with two, the first and its own one are all that there is."""
    rng, lengths, left = Random(f"documents/{seed}"), list[int](), seqlen
    while left > 0:
        lengths.append(min(left, rng.randint(max(1, seqlen // 12), max(1, seqlen // 4))))
        left -= lengths[-1]
    return tuple(lengths)


def refuse_too_long(seqlen: int, case: Case, memory: int) -> None:
    """Before anything is built: q, k, v and out, their gradients, and those of the reference must fit into the memory there is."""
    per_token = (case.heads_q + case.heads_kv) * (case.head_dim + case.head_dim_v)
    need = seqlen * per_token * (2 * BYTES[case.dtype] + BYTES["fp64"])
    if need > memory:
        sizes = f"{format_memory(need)}, and {format_memory(memory)} are there"
        raise BadInput(
            f"checking {seqlen} tokens with {case.heads_q}:{case.heads_kv} heads takes at least {sizes}; give shorter --seqlens."
        )


def limits(deadline_s: float | None, device: str, seqlen: int, heads: int) -> Limits:
    """What a step may take: as asked, or minutes, and more where the scores of the longest sequence are many."""
    usual = max(1.0, heads * seqlen**2 / SCORES[device]) * DEADLINE_S
    seconds = min(LONGEST_DEADLINE_S, usual) if deadline_s is None else deadline_s
    return Limits(workers="one").with_deadline(seconds)  # nothing is timed, so a process for all will do, and a broken one is replaced


def verify(planned: Sequence[Planned], suite: Suite, found: Catalogue, device: str) -> Generator[Finding, None, None]:
    """Findings as they come, mask by mask, so that the reference of a mask is made once and used by all kernels."""
    with TemporaryDirectory(prefix="longca-verify-") as folder:
        pool = _Checks(suite, found, device, "", Path(folder), full=True)
        try:
            for _, of_problem in groupby(jobs(planned, suite.limits.workers), lambda job: job.cell.problem):
                for job in of_problem:
                    yield from (_finding(job.cell, fields) for _, fields in pool.run(job))
                for reference in Path(folder).iterdir():  # of no use to the next problem
                    rmtree(reference, ignore_errors=True)
        finally:
            pool.close()


class _Checks(Pool):
    """Workers that check and do not measure."""

    def _message(self, job: Job) -> dict[str, Any]:
        return super()._message(job) | {"part": "check"}


def _finding(cell: Cell, fields: Mapping[str, Any]) -> Finding:
    errors = fields.get("check") or {}
    return Finding(fields.get("label", cell.kernel), cell.mask, cell.seqlen, fields["status"], fields["reason"], errors)


def check_job(cells: list[Cell], session: Session) -> Iterator[tuple[str, dict[str, Any]]]:
    """One job inside a worker: prepare the kernel and check it. Where forward and backward fail together, forward is looked at alone."""
    cell = cells[0]
    session.phase("build")
    mask, _ = session.mask(cell)
    kernel, case = _forward_only_if_needed(cell.kernel, mask, cell.case(mask))
    session.chose(kernel.label, case.backward)
    session.phase("start")  # importing torch takes seconds, and is not this kernel's fault
    session.start_device(case.device)
    session.compilations.limit()
    if not case.backward:
        found = _check(kernel, mask, case, cell, session)
        yield cell.which, found | {"reason": found["reason"] or "forward only"}
        return
    try:
        found = _check(kernel, mask, case, cell, session)
    except Unavailable:
        raise
    except Refused as refused:  # its backward, perhaps: `longca run` times the forward of such a kernel, too
        found = _forward(refused, kernel, mask, case, cell, session)
    except Exception as error:
        found = fields_of(error) | {"label": kernel.label}
        session.after_error(error)
    if found["status"] != "ok" and not found["check"] and not session.fatal:
        found = _with_forward(found, kernel, mask, replace(case, backward=False), cell, session)
    yield cell.which, found


def _forward(refused: Refused, kernel: Kernel, mask: AnyMask, case: Case, cell: Cell, session: Session) -> dict[str, Any]:
    """The forward of a kernel that refused to be prepared for both."""
    try:
        found = _check(kernel, mask, replace(case, backward=False), cell, session)
    except Refused:
        raise
    except Exception as error:
        session.after_error(error)
        return fields_of(error) | {"label": kernel.label}
    return found | {"reason": found["reason"] or f"forward only: {str(refused).rstrip('.')}"}


def _check(kernel: Kernel, mask: AnyMask, case: Case, cell: Cell, session: Session) -> dict[str, Any]:
    from longca.bench.check import check

    session.phase("build")
    attention = registry.prepare(kernel, mask, case)
    reference = session.reference(mask, replace(case, backward=cell.grad), cell.seed)
    session.phase("check")
    verdict = check(kernel, attention, case, reference, cell.seed)
    errors = {name: {"error": e.error, "allowed": e.allowed, "where": e.where} for name, e in verdict.errors.items()}
    return {"status": "ok" if verdict.ok else "wrong", "reason": verdict.reason, "check": errors, "label": kernel.label}


def _with_forward(found: dict[str, Any], kernel: Kernel, mask: AnyMask, case: Case, cell: Cell, session: Session) -> dict[str, Any]:
    """What is wrong with both, and beside it what the forward does alone, if that is anything else."""
    try:
        alone = _check(kernel, mask, case, cell, session)
    except Exception as error:  # the forward fails, as it did before
        session.after_error(error)
        return found
    if not alone["check"]:
        return found
    words = "its forward alone is right" if alone["status"] == "ok" else f"its forward alone: {alone['reason']}"
    return found | {"check": alone["check"], "reason": f"{found['reason'].rstrip('.')}; {words}"}


def _forward_only_if_needed(label: str, mask: AnyMask, case: Case) -> tuple[Kernel, Case]:
    """A kernel without a backward is still checked forward."""
    try:
        return registry.choose(label, mask, case), case
    except Refused:
        forward = replace(case, backward=False)
        return registry.choose(label, mask, forward), forward
