"""From a suite to jobs: which cells, in which order, which of them are done already, and how long they may take.

A job is what one worker does in one go: the passes of one kernel on one problem. Problems come one after the other, and within a
problem the kernels: so the reference of a problem is made once and forgotten when the next one begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

from longca import masks
from longca.bench import metrics
from longca.bench.cell import Cell, key
from longca.bench.journal import describe_mask
from longca.bench.suite import Suite
from longca.errors import BadInput
from longca.masks import AnyMask
from longca.processes import host_memory
from longca.text import format_memory, format_size, parse_dims, parse_heads, parse_size

Number = int | float
LONGEST = 1 << 30  # tokens: the twelve masks of that length take some 20 s and 1.5 GiB to make, and far more beyond
FAILED = ("oom", "timeout", "wrong", "error", "invalid", "unavailable")  # what `--retry failed` runs again


@dataclass(frozen=True)
class Planned:
    """A cell with its key and its mask as the journal tells it, known before it is run: a large mask is not built again for a record."""

    cell: Cell
    key: str
    mask: Mapping[str, Any]

    @property
    def digest(self) -> str:
        return str(self.mask["digest"])

    @property
    def area(self) -> int:
        return int(self.mask["area"])


@dataclass(frozen=True)
class Job:
    """Passes of one kernel on one problem; `last` tells its worker that nothing more comes for this problem."""

    planned: tuple[Planned, ...]
    worker: str
    last: bool = True

    @property
    def cell(self) -> Cell:
        return self.planned[0].cell


def cells(suite: Suite, kernels: Sequence[str], device: str, steps: Sequence[Mapping[str, object]] = ()) -> list[Cell]:
    """All cells of a suite. `steps` (a workload) takes the place of masks, lengths and seeds."""
    grad = any(which != "fwd" for which in suite.passes)
    found: dict[Cell, None] = {}
    for heads_text, dim_text, dtype in ((h, d, t) for h in suite.heads for d in suite.head_dims for t in suite.dtypes):
        (heads_q, heads_kv), (head_dim, head_dim_v) = parse_heads(heads_text), parse_dims(dim_text)
        for about, labels in [(step, kernels) for step in steps] or _grid(suite, kernels):
            for kernel in labels:
                for which in suite.passes:
                    shape = dict(heads_q=heads_q, heads_kv=heads_kv, head_dim=head_dim, head_dim_v=head_dim_v, dtype=dtype, which=which)
                    level = "sparse" if suite.level == "kernel" and about["mask"] in masks.block_names() else suite.level
                    source = suite.source if about["mask"] in masks.block_names() else "random"
                    options = dict(deterministic=suite.deterministic, grad=grad, device=device, level=level, source=source)
                    found[Cell(kernel=kernel, **shape, **options, **about)] = None  # type: ignore[arg-type]
    if found and suite.source != "random" and all(cell.source == "random" for cell in found):
        raise BadInput(
            f"the source {suite.source} is for block patterns, and none is asked for; add --masks {','.join(masks.block_names())}."
        )
    return list(found)


def _grid(suite: Suite, kernels: Sequence[str]) -> Iterator[tuple[dict[str, object], Sequence[str]]]:
    """The mask part of cells, and the kernels that run it: at each length the dense ones first, then every kernel on every mask."""
    names = [name for given in suite.masks for name in (masks.names() if given == "all" else [given])]
    for seqlen in sorted(parse_size(text) for text in suite.seqlens):
        if suite.level != "cp" and any(name in masks.block_names() for name in names):
            yield {"mask": masks.dense_of(suite.source), "seqlen": seqlen, "seed": suite.seeds[0], "params": ()}, suite.dense
        for name in names:
            pattern = masks.find(name)
            options = (
                _lengths(suite, pattern.own_lengths is not None) if isinstance(pattern, masks.Pattern) and pattern.has_documents else {}
            )
            for params in _choices(suite.params.get(name, {})):
                for seed in suite.seeds:
                    yield {"mask": name, "seqlen": seqlen, "seed": seed, "params": params, **options}, kernels


def _lengths(suite: Suite, own: bool) -> dict[str, object]:
    """How document lengths are drawn. `draw` is what happens anyway, but for masks with their `own` lengths: the same work has one key."""
    distribution, packing = suite.distribution or None, suite.packing or None
    if packing == "draw" and (distribution or not own):
        packing = None
    return {"distribution": distribution, "packing": packing}


def _choices(params: Mapping[str, Number | Sequence[Number]]) -> Iterator[tuple[tuple[str, Number], ...]]:
    """Every combination of parameters that are given as lists."""
    values = [value if isinstance(value, Sequence) else [value] for value in params.values()]
    for chosen in product(*values):
        yield tuple(zip(params, chosen, strict=True))


def admit(planned: Sequence[Planned], suite: Suite, device: str, only_named: bool) -> None:
    """Kernels are always tried: each cell says what became of it."""


@lru_cache(maxsize=4)
def mask_of(problem: Cell) -> AnyMask:
    """The mask of the problem at hand: cells of one problem come one after the other."""
    refuse_too_long(problem)
    return problem.build_mask()


def refuse_too_long(problem: Cell) -> None:
    """Before a mask is made that no machine, or not this one, has the memory for."""
    if problem.seqlen > LONGEST:
        raise BadInput(f"{format_size(problem.seqlen)} tokens are too many: masks are made for up to {format_size(LONGEST)}; give fewer.")
    if problem.mask in masks.block_names():
        refuse_large_pattern(problem.mask, problem.seqlen, {"heads": problem.patterns, **dict(problem.params)})


def refuse_large_pattern(name: str, seqlen: int, params: Mapping[str, float]) -> None:
    need, free = 2 * masks.BLOCK_PATTERNS[name].block_count(seqlen, params), host_memory.limit()
    if need > free:
        raise BadInput(
            f"{name} takes {format_memory(need)} of host memory for its blocks at {format_size(seqlen)} tokens, and "
            f"{format_memory(free)} are free; give fewer tokens, larger blocks or fewer heads."
        )


@lru_cache(maxsize=4096)
def _facts(problem: Cell) -> dict[str, Any]:
    return describe_mask(mask_of(problem), problem.token)


def plan(found: Iterable[Cell], device_model: str, versions: Mapping[str, Mapping[str, str]]) -> list[Planned]:
    """Keys for cells; where seeds give the same mask (full, causal, windows) only the first is kept. Other parameters are another cell,
    even if they happen to show the same: who asks for two ratios gets figures for two."""
    planned: dict[tuple[Cell, str, str], Planned] = {}
    for cell in found:
        mask = _facts(cell.problem)
        same = (replace(cell, seed=0, params=(), documents=None), mask["digest"], json.dumps(mask["params"], sort_keys=True))
        if same not in planned:
            planned[same] = Planned(cell, key(cell, mask["digest"], device_model, versions[cell.kernel]), mask)
    return list(planned.values())


def jobs(planned: Iterable[Planned], workers: str = "kernel") -> list[Job]:
    """Grouped by problem, then by worker, so that `last` can tell a worker when a problem is over for it."""
    problems: dict[Cell, dict[Cell, list[Planned]]] = {}
    for entry in planned:
        problems.setdefault(entry.cell.problem, {}).setdefault(entry.cell.job, []).append(entry)
    result: list[Job] = []
    for kernels in problems.values():
        groups = [tuple(passes) for passes in kernels.values()]
        names = [worker_of(group[0].cell, workers) for group in groups]
        for name in sorted(set(names)):
            mine = [Job(group, name, last=False) for group, worker in zip(groups, names, strict=True) if worker == name]
            result += [*mine[:-1], replace(mine[-1], last=True)]
    return result


def worker_of(cell: Cell, workers: str) -> str:
    """The name of the worker that runs a cell: one per kernel, shared by its variants; or one for all."""
    return f"{cell.level}/{cell.kernel.partition(':')[0]}" if workers == "kernel" else cell.level


def shard(planned: list[Planned], text: str) -> list[Planned]:
    """'3/8': the third of eight parts of about the same cost. A problem stays whole, so that its kernels are compared on one machine."""
    try:
        part, parts = (int(number) for number in text.split("/"))
    except ValueError:
        part = parts = 0
    if not 1 <= part <= parts:
        raise BadInput(f"{text!r} is no shard; write one such as 3/8, from 1/8 to 8/8.")
    problems = {entry.cell.problem: entry.area for entry in planned}
    by_cost = sorted(problems, key=lambda problem: -problems[problem])  # a stable sort: every machine deals the same way
    mine = set(by_cost[part - 1 :: parts])
    return [entry for entry in planned if entry.cell.problem in mine]


def left_to_do(
    planned: list[Planned], records: Mapping[str, Mapping[str, object]], *, retry: bool = False, full: bool = False
) -> list[Planned]:
    """What a journal does not hold yet, and what it should try again."""

    def undone(entry: Planned) -> bool:
        record = records.get(entry.key)
        if record is None or (retry and record["status"] in FAILED):
            return True
        return full and bool(record.get("limited"))

    return [entry for entry in planned if undone(entry)]


def estimate_s(planned: Sequence[Planned], suite: Suite) -> float:
    """A rough guess, for people: what the clock may spend, and what check and slow calls cost at a usual speed."""
    total, seen = 0.0, set[Cell]()
    for entry in planned:
        cell = entry.cell
        per_second = 4e14 if cell.device == "cuda" else 4e10
        work = 2 * entry.area // cell.patterns * cell.heads_q * (cell.head_dim + cell.head_dim_v) * metrics.COST[cell.which]
        total += max(suite.clock.warmup_s + suite.clock.budget_s, (suite.clock.least + 1) * work / per_second) + 0.05
        if cell.job not in seen:
            seen.add(cell.job)
            total += 0.2 + 6 * work / per_second
        if cell.problem not in seen:
            seen.add(cell.problem)
            total += 0.2 + cell.seqlen**2 / 64 * cell.heads_q * cell.head_dim * 56 / (per_second / 10)
    return total
