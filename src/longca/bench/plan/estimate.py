"""How long cells take at a usual speed: for the time left of a run, and to refuse what would never end."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from functools import lru_cache

from msgspec.structs import replace

from longca.bench.plan.catalogue import answer_of
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import Planned, mask_outline
from longca.bench.plan.suite import Suite
from longca.errors import Refused
from longca.kernels import registry
from longca.kernels.base import No
from longca.results import metrics
from longca.results.problem import Pass, Problem
from longca.results.settings import ENOUGH, EXTENSION, LONG_MS, SAMPLE_LENGTH, ClockSettings, Limits
from longca.text import format_duration, format_size

GPU_FLOPS, CORE_FLOPS = 4e14, 2e10  # per second, of a usual GPU and of a usual core
LEAST_CALLS = 4  # a cell whose time does not suffice for so many calls is not begun
CHECK_CALLS = 6  # what checking a kernel costs, in its own calls
NOISY = 0.2  # the share of cells whose samples never agree, so that the clock spends all it may
FIRST_S = {"cuda": 3.0, "cpu": 2.0}  # what the first cell of a kernel costs: its process, imports, and on a GPU code that is compiled
BETWEEN_S = {"cuda": 0.011, "cpu": 0.0}  # the load before a sample, and what brings it about
COMPILE_S = 3.0  # on a GPU, where no compiled code is on disk yet
REFERENCE_WORK = 56 / 64 * 10  # of the whole square of pairs, per pair, head and head size: sampled rows in fp64, at a tenth of the speed


def flops_per_second(device: str) -> float:
    return GPU_FLOPS if device == "cuda" else CORE_FLOPS * len(os.sched_getaffinity(0))


def call_s(cell: Cell) -> float:
    """Seconds of one call at a usual speed. Of a block pattern the expected part of the blocks counts."""
    pairs = mask_outline(cell.problem).area // cell.problem.patterns * cell.problem.heads_q
    return metrics.flops_of(pairs, cell.problem.head_dim, cell.problem.head_dim_v, cell.problem.pass_) / flops_per_second(cell.device)


def clock_s(call: float, clock: ClockSettings, between: float = 0.0) -> float:
    """The seconds that the clock is expected to spend on a cell: warm-up, then few samples if they agree, else all that it may take.
    `between` are the seconds between two calls."""
    least = clock.least if call <= LONG_MS / 1e3 else math.ceil(clock.least / 2)
    least_s, sample = min(clock.warmup_s, clock.budget_s), call + between
    longest = max(EXTENSION * clock.budget_s, least * sample)
    agreeing = min(max(least_s, least * sample), longest)
    noisy = min(max(clock.budget_s, max(least, ENOUGH) * sample), longest)
    return max(clock.warmup_s, sample) + (1 - NOISY) * agreeing + NOISY * noisy


def estimates_s(planned: Iterable[Planned], suite: Suite, full: bool = False, compile_s: float = 0.0) -> dict[str, float]:
    """Seconds of each cell by its key. The first cell of a kernel bears its start, its first cell on a mask what compiling takes, its first
    cell on a problem the check, and the first cell of a problem the reference. Cells that will not run take no time; `full` runs those
    that need memory in O(S²), too."""
    seconds, seen = dict[str, float](), set[Cell | Problem | str | tuple[str, str]]()
    longest = None if full else suite.quadratic_length
    for entry in planned:
        cell, problem, call = entry.cell, entry.cell.problem, call_s(entry.cell)
        if _never_runs(cell, longest):
            seconds[entry.key] = 0.0
            continue
        own = clock_s(call, suite.clock, BETWEEN_S[cell.device]) + 0.05
        if cell.kernel not in seen:
            own += FIRST_S[cell.device]
        own += compile_s if (cell.kernel, problem.mask) not in seen else 0.0
        if cell.job not in seen:
            own += 0.1 + CHECK_CALLS * call
        if problem.every_pass not in seen:
            own += 0.1 + REFERENCE_WORK * problem.seqlen**2 * problem.heads_q * problem.head_dim / flops_per_second(cell.device)
        seen |= {cell.job, problem.every_pass, cell.kernel, (cell.kernel, problem.mask)}
        seconds[entry.key] = own
    return seconds


def _never_runs(cell: Cell, longest: int | None) -> bool:
    """Whether a kernel of the registry is not available, refuses this mask at a short length, or needs memory in O(S²) beyond the longest
    length for that. Plugins and methods are not asked."""
    if cell.split is not None or cell.kernel.partition(":")[0] not in registry.names():
        return False
    if not _is_available(cell.kernel, cell.device):
        return True
    alone = cell.problem.pass_ is Pass.FWD  # a forward that fails beside its backward is tried without
    short = cell.with_problem(seqlen=SAMPLE_LENGTH, seed=0, documents=None, pass_=Pass.FWD)
    answer = answer_of(replace(short, grad=cell.grad and not alone))
    return isinstance(answer, No) or (answer.quadratic and longest is not None and cell.problem.seqlen > longest)


@lru_cache(maxsize=256)
def _is_available(label: str, device: str) -> bool:
    return any(not isinstance(registry.available(kernel, device), No) for kernel in registry.choices(label))


def refuse_hopeless(cells: Iterable[Cell], limits: Limits) -> None:
    """Refuses a run on a CPU with a cell whose time does not suffice for a few calls."""
    slow = [cell for cell in cells if cell.device == "cpu" and LEAST_CALLS * call_s(cell) > limits.time_s]
    if not slow:
        return
    worst = max(slow, key=call_s)
    suite = ", the suite quick-cp" if worst.split else ""
    raise Refused(
        f"{worst.problem.mask} with {format_size(worst.problem.seqlen)} tokens and {worst.problem.heads_q} heads takes about "
        f"{format_duration(call_s(worst))} a call ({worst.problem.pass_.value}) on this CPU, and a cell has "
        f"{format_duration(limits.time_s)}; use a GPU, shorter --seqlens, fewer --heads{suite}, or a longer --deadline."
    )
