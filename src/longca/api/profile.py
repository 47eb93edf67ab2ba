"""`longca.profile`: where the time of a kernel goes, beside the least time of the device; `longca profile` prints the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from longca import devices
from longca.api import sides
from longca.api.files import make_folder
from longca.api.takes import takes
from longca.bench.one_device import ncu
from longca.bench.one_device.messages import Profiled, WorkerJob
from longca.bench.one_device.ncu import NcuFailed
from longca.bench.one_device.profile import PassProfile, Profile, title_of
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import mask_of
from longca.bench.plan.request import LocalRequest
from longca.bench.run.retry import outcomes
from longca.errors import BadInput
from longca.kernels import registry
from longca.results import roofline
from longca.results.problem import Pass
from longca.results.record import Outcome

FOLDER = Path("out") / "profile"


@dataclass(frozen=True)
class ProfileRequest(LocalRequest):
    """One kernel on one mask; None: the default of the device."""

    kernel: Any
    mask: Any = "causal"
    seqlen: int | str | None = None
    _: KW_ONLY
    passes: str | None = None
    seed: int = 0
    out: str | Path = FOLDER  # the folder of the traces


@takes(ProfileRequest)
def profile(request: ProfileRequest) -> Profile:
    """Checks and times a kernel on one mask, and returns where the time of each pass goes: by GPU kernel, or by operation on a CPU; beside
    the least time of the device. Traces for Perfetto are written to `out`. On a GPU, `ncu` adds hardware counters if it is installed.

    `kernel` is a name, a plugin file, a file at a git revision, or a Python object, as in `longca.ab`.

    >>> longca.profile("sdpa:flash", "causal", 1024).rows
    """
    side, out = sides.one(request.kernel), Path(request.out).resolve()
    with TemporaryDirectory(prefix="longca-profile-") as temporary, registry.lent([side.value] if side.value is not None else []):
        folder = Path(temporary)
        suite, device = sides.suite_of(request, request.mask, request.seqlen, folder)
        found = sides.contender(side, suite, device, folder / "kernel", side.value is not None, WorkerJob(traces=str(out)))
        if len(found.jobs) != 1:
            raise BadInput(f"a profile is of one mask, length and shape, not of {len(found.jobs)}; name one.")
        make_folder(out)
        (job,) = found.jobs
        with closing(found.workers()) as workers:
            found_outcomes = dict(outcomes(job, workers))
        passes = [_pass(entry.cell, found_outcomes[entry.cell.problem.pass_], workers.profiled) for entry in job.planned]
        why = _count(passes, found.file) if device == "cuda" else "ncu counts on GPUs, and this is a CPU."
    return Profile(title_of(found.kernel, job.cell.problem, devices.model(device)), passes, why)


def _pass(cell: Cell, outcome: Outcome, profiled: Mapping[Pass, Profiled]) -> PassProfile:
    mask, pass_ = mask_of(cell.problem), cell.problem.pass_
    mhz = outcome.timed.mhz if outcome.timed else None
    limit = roofline.of_mask(mask, cell.case(mask), pass_, devices.model(cell.device), mhz=mhz)
    ran = replace(cell, grad=cell.grad if outcome.grad is None else outcome.grad)
    return PassProfile(ran, outcome, limit, profiled.get(pass_))


def _count(passes: Sequence[PassProfile], file: str | None) -> str:
    """Adds the counters of ncu; returns why there are none, or an empty text."""
    for one in passes:
        if one.profiled is not None:
            try:
                one.counted.extend(ncu.count(one.cell, file))
            except NcuFailed as failed:
                return str(failed)
    return ""
