"""Work on all cores: functions run in processes that are forked from this one, so that they may refer to anything that is here."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

from longca.processes.guard import PR_SET_PDEATHSIG, prctl

MANY_RANKS = 100  # from which on it is worth to start processes
COLLECTED = 100_000  # new objects after which cycles are looked for: programs are many objects, and few of them are in cycles
Item = TypeVar("Item")
Result = TypeVar("Result")
_function: Callable[[Any], Any] | None = None  # what forked processes call, and the sign that they exist


def cores() -> int:
    """Those that this process may use: one, if it was forked to use one."""
    return len(os.sched_getaffinity(0)) if _function is None else 1


def map_forked(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Returns function(item) of each item in order, computed on all cores. With one core or one item, or in a process that was forked
    already, this process computes them."""
    global _function
    workers = min(cores(), len(items))
    if workers < 2:
        yield from map(function, items)
        return
    _function = function
    try:
        with ProcessPoolExecutor(workers, get_context("fork"), _prepare) as pool:
            yield from pool.map(_call, items)
    finally:
        _function = None


def map_longest_first(function: Callable[[Item], Result], items: Sequence[Item], length: Callable[[Item], float]) -> Iterator[Result]:
    """Returns function(item) of each item in order, and computes long ones first, so that no core is left with one at the end."""
    order = sorted(range(len(items)), key=lambda number: -length(items[number]))
    done, shown = dict[int, Result](), 0
    for number, result in zip(order, map_forked(function, [items[number] for number in order]), strict=True):
        done[number] = result
        while shown in done:
            yield done.pop(shown)
            shown += 1


def _prepare() -> None:
    """Makes Ctrl-C end a forked process at once, and the end of this process too. What was here before is not looked through for cycles."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    gc.freeze()
    gc.set_threshold(COLLECTED)


def _call(item: Any) -> Any:
    assert _function is not None
    return _function(item)
