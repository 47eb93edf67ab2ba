"""How long cells take at a usual speed: for the time left of a run, and to refuse what would never end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import Planned
from longca.bench.plan.outline import mask_outline
from longca.bench.plan.suite import Suite
from longca.errors import Refused
from longca.results import metrics
from longca.results.settings import Limits
from longca.text import format_duration, format_size

GPU_FLOPS, CORE_FLOPS = 4e14, 2e10  # per second, of a usual GPU and of a usual core
LEAST_CALLS = 4  # a cell whose time does not suffice for so many calls is not begun
CHECK_CALLS = 6  # what checking a kernel costs, in its own calls
REFERENCE_WORK = 56 / 64 * 10  # of the whole square of pairs, per pair, head and head size: sampled rows in fp64, at a tenth of the speed
SHORTEST = 128


def flops_per_second(device: str) -> float:
    return GPU_FLOPS if device == "cuda" else CORE_FLOPS * len(os.sched_getaffinity(0))


def call_s(cell: Cell) -> float:
    """Seconds of one call at a usual speed. Of a block pattern the expected part of the blocks counts."""
    pairs = mask_outline(cell.problem).area // cell.patterns * cell.heads_q
    return metrics.flops_of(pairs, cell.head_dim, cell.head_dim_v, cell.pass_) / flops_per_second(cell.device)


def estimates_s(planned: Iterable[Planned], suite: Suite) -> dict[str, float]:
    """Seconds of each cell by its key: what the clock may spend, and what slow calls cost. The first cell of a kernel on a problem bears
    its check, and the first cell of a problem the reference."""
    seconds, seen = dict[str, float](), set[Cell]()
    for entry in planned:
        cell, call = entry.cell, call_s(entry.cell)
        own = max(suite.clock.warmup_s + suite.clock.budget_s, (suite.clock.least + 1) * call) + 0.05
        if cell.job not in seen:
            own += 0.2 + CHECK_CALLS * call
        if cell.problem not in seen:
            own += 0.2 + REFERENCE_WORK * cell.seqlen**2 * cell.heads_q * cell.head_dim / flops_per_second(cell.device)
        seen |= {cell.job, cell.problem}
        seconds[entry.key] = own
    return seconds


def refuse_hopeless(planned: Sequence[Planned], limits: Limits, per_rank: bool = False) -> None:
    """Refuses a run on a CPU with a cell whose time does not suffice for a few calls, and names the longest length that would do, in the
    suite's own terms: the tokens of each rank, or all of them."""
    slow = [entry.cell for entry in planned if entry.cell.device == "cpu" and LEAST_CALLS * call_s(entry.cell) > limits.time_s]
    if not slow:
        return
    worst = max(slow, key=call_s)
    ranks = worst.split.ranks if worst.split and per_rank else 1
    fits, each = _longest(worst, limits.time_s, ranks), " per rank" if per_rank else ""
    advice = f"--seqlens up to {format_size(fits)}{each}" if fits else "fewer --heads"
    tokens = f"{format_size(worst.seqlen)} tokens" + (f" ({format_size(worst.seqlen // ranks)} per rank)" if per_rank else "")
    suite = ", the suite quick-cp" if worst.split else ""
    raise Refused(
        f"{worst.mask} with {tokens} and {worst.heads_q} heads takes about {format_duration(call_s(worst))} "
        f"a call ({worst.pass_.value}) on this CPU, and a cell has {format_duration(limits.time_s)}; "
        f"use a GPU, {advice}{suite}, or a longer --deadline."
    )


def _longest(cell: Cell, time_s: float, ranks: int) -> int | None:
    """The largest power of two below the cell's length for each rank at which it has time enough; None where its documents are given."""
    size = 1 << (cell.seqlen // ranks - 1).bit_length() - 1
    while size * ranks >= SHORTEST and cell.documents is None:
        shorter = replace(cell, seqlen=size * ranks)
        if LEAST_CALLS * call_s(shorter) <= time_s:
            return size
        size //= 2
    return None
