"""`longca.ab`: times two kernels in turns and says which one is faster; the command `longca ab` prints the same."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from longca import devices
from longca.api import sides
from longca.api.compare import parse_threshold
from longca.api.request import refuse_no_seconds
from longca.api.takes import takes
from longca.bench.one_device.ahead import number_of_compilers
from longca.bench.one_device.messages import WorkerJob
from longca.bench.one_device.turns import CLOCKS, Contest, Rounds, take_rounds
from longca.bench.plan.request import LocalRequest, Texts
from longca.bench.run.retry import say_nothing
from longca.compare.ab import AB, Pair
from longca.compare.paired import LOOKS, ratio_of_rounds
from longca.compare.verdicts import Verdict, decide
from longca.kernels import registry
from longca.text import write_over


@dataclass(frozen=True)
class ABRequest(LocalRequest):
    """Which two kernels, on which masks and lengths; None: the default of the device."""

    old: Any
    new: Any
    masks: Any = "causal"
    seqlens: Texts | None = None
    _: KW_ONLY
    passes: Texts | None = None
    seed: int = 0
    threshold: float | str = 0.01
    seconds: float = 50.0
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
    show = write_over if request.progress else say_nothing
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="longca-ab-")))
        stack.enter_context(registry.lent(objects))
        suite, device = sides.suite_of(request, request.masks, request.seqlens, folder)
        suite = suite.changed(clock=CLOCKS[device])
        holds, own = WorkerJob(holds=True), bool(objects)
        compared = [sides.contender(side, suite, device, folder / str(number), own, holds) for number, side in enumerate(given)]
        contests = [Contest(a, b) for a, b in zip(compared[0].jobs, compared[1].jobs, strict=True)]

        def is_decided(rounds: Rounds) -> bool:
            return decide(ratio_of_rounds(rounds.times), threshold) is not Verdict.UNCLEAR

        ahead = device == "cuda" and not own and number_of_compilers() > 0  # on a small host new workers would slow down those that measure
        take_rounds(contests, (compared[0].workers, compared[1].workers), request.seconds, LOOKS, is_decided, show, ahead)
    show("")
    pairs = [
        Pair(contest.problems[pass_], threshold, rounds.times, rounds.failed)
        for contest in contests
        for pass_, rounds in contest.rounds.items()
    ]
    names = (f"{one.kernel} ({side.title})" if side.file else one.kernel for one, side in zip(compared, given, strict=True))
    return AB((next(names), next(names)), devices.model(device), pairs, time.monotonic() - start)
