"""`longca.ab`: times two kernels in turns and says which one is faster; the command `longca ab` prints the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from longca import devices
from longca.api import sides
from longca.api.compare import parse_threshold
from longca.api.masks import name_masks
from longca.api.request import RunRequest, refuse_no_seconds, resolve
from longca.api.takes import takes
from longca.bench.one_device import compiled_code
from longca.bench.one_device.in_process import InProcess
from longca.bench.one_device.level import offered_by
from longca.bench.one_device.turns import CLOCKS, Contest, Rounds, take_rounds
from longca.bench.one_device.workers import Start, Workers, start_worker
from longca.bench.plan.catalogue import make_catalogue
from longca.bench.plan.cells import make_cells, plan
from longca.bench.plan.jobs import Job, make_jobs
from longca.bench.plan.request import Request, Texts
from longca.bench.plan.suite import Suite
from longca.compare.ab import AB, Pair
from longca.compare.paired import LOOKS, ratio_of_rounds
from longca.compare.verdicts import Verdict, decide
from longca.errors import BadInput, unknown
from longca.kernels import registry
from longca.text import write_over

SHARED = ("heads", "head_dims", "dtypes", "passes", "seed", "device", "deadline", *(field.name for field in fields(Request)))  # with `run`


@dataclass(frozen=True)
class ABRequest(Request):
    """Which two kernels, on which masks and lengths; None: the default of the device."""

    old: Any
    new: Any
    masks: Any = "causal"
    seqlens: Texts | None = None
    _: KW_ONLY
    heads: Texts | None = None
    head_dims: Texts | None = None
    dtypes: Texts | None = None
    passes: Texts | None = None
    seed: int = 0
    device: str | None = None
    threshold: float | str = 0.01
    seconds: float = 50.0
    deadline: float | None = None
    progress: bool = True


@takes(ABRequest)
def ab(request: ABRequest) -> AB:
    """Times two kernels in turns and returns a verdict on the second one, with an interval, for each mask, length and pass. Both are
    checked against fp64 first.

    `old` and `new` are names, plugin files, files at a git revision ("HEAD~1:tiled.py"), or Python objects. If one is a file, the other
    may be a revision alone. "tiled.py:fast" is the kernel `fast` of a file that has several. Sampling ends with a verdict on all, or
    after `seconds`. Objects run in this process, so that what tells processes apart stays unseen.

    >>> longca.ab("HEAD", "tiled.py", masks="causal", seqlens="8K").ok
    """
    start, given = time.monotonic(), sides.sides(request.old, request.new)
    threshold = parse_threshold(request.threshold)
    refuse_no_seconds("seconds", request.seconds)
    objects = [side.value for side in given if side.value is not None]
    show = write_over if request.progress else _show_nothing
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="longca-ab-")))
        stack.enter_context(registry.lent(objects))
        suite, device = _suite(request, folder)
        compared = [_compared(side, suite, device, folder / str(number), bool(objects)) for number, side in enumerate(given)]
        contests = [Contest(a, b) for a, b in zip(compared[0].jobs, compared[1].jobs, strict=True)]

        def is_decided(rounds: Rounds) -> bool:
            return decide(ratio_of_rounds(rounds.times), threshold) is not Verdict.UNCLEAR

        take_rounds(contests, (compared[0].make, compared[1].make), request.seconds, LOOKS, is_decided, show)
    show("")
    pairs = [
        Pair(contest.problems[pass_], threshold, rounds.times, rounds.failed)
        for contest in contests
        for pass_, rounds in contest.rounds.items()
    ]
    names = (f"{one.kernel} ({side.title})" if side.file else one.kernel for one, side in zip(compared, given, strict=True))
    return AB((next(names), next(names)), devices.model(device), pairs, time.monotonic() - start)


def _show_nothing(text: str) -> None:
    """Shows nothing."""


def _suite(request: ABRequest, folder: Path) -> tuple[Suite, str]:
    """What to time, as a suite without kernels, and the device."""
    named = name_masks(request.masks, request.seqlens, folder)
    shared = {name: getattr(request, name) for name in SHARED}
    plain = RunRequest(kernels="torch", masks=named.masks, seqlens=named.seqlens, **shared)
    suite, device = resolve(plain), request.device or devices.kind()
    devices.require(device)
    if device == "cuda":
        compiled_code.keep_on_disk()
    return suite.changed(clock=CLOCKS[device]), device


@dataclass(frozen=True)
class Compared:
    """A kernel, how its workers are made, and its jobs."""

    kernel: str
    make: Callable[[], Workers]
    jobs: list[Job]


def _compared(side: sides.Side, suite: Suite, device: str, folder: Path, in_process: bool) -> Compared:
    start: Start = InProcess if in_process else start_worker
    file = side.checked_out(folder)
    offered = offered_by([file] if file else [], device, suite.limits, start)
    names = list(dict.fromkeys(entry.name for entry in offered.values()))
    if not side.kernel and len(names) != 1:
        raise BadInput(f"{side.title} has the kernels {', '.join(names)}; name one of them, as in {side.title}:{names[0]}.")
    if file and side.kernel and side.kernel.partition(":")[0] not in names:
        raise unknown(f"kernel of {side.title.removesuffix(side.kernel).rstrip(':')}", side.kernel, names)
    suite = suite.changed(kernels=(side.kernel or names[0],))
    catalogue = make_catalogue(suite, offered, device, only_named=True)
    jobs = make_jobs(plan(make_cells(suite, catalogue.for_all_masks, device), device, catalogue.versions))

    def make() -> Workers:
        workers = Workers(suite, catalogue, device, devices.model(device), folder.parent / "references", True, start=start, holds=True)
        workers.start(jobs)
        return workers

    return Compared(suite.kernels[0], make, jobs)
