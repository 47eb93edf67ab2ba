"""From a suite to cells, and from cells to planned ones: with their key, their mask as the journal keeps it, and duplicates dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, TypeVar

from msgspec.structs import asdict, replace

from longca import lengths, masks
from longca.bench.plan.cell import Cell, fingerprint, key
from longca.bench.plan.suite import Number, Suite
from longca.bench.plan.workload import Step, drawing
from longca.errors import BadInput
from longca.kernels.block_selection import Heads
from longca.masks import AnyMask, BlockMask
from longca.masks.by_name import Named
from longca.masks.selection import RULES
from longca.processes import host_memory
from longca.results.problem import Operator, Pass, Problem
from longca.results.record import LevelName, MaskEntry
from longca.text import format_memory, format_size, parse_dims, parse_heads

M = TypeVar("M")
LONGEST = 1 << 30  # tokens: the twelve masks of that length take some 20 s and 1.5 GiB to make, and far more beyond


@dataclass(frozen=True)
class Planned:
    """A cell with its key, the versions in it, and its mask, known before it is run: a large mask is not built again for a record."""

    cell: Cell
    key: str
    mask: MaskEntry
    versions: Mapping[str, str]

    @property
    def shown(self) -> tuple[int, str]:
        """What tells which pairs the mask shows: its length and its digest."""
        return self.cell.problem.seqlen, self.mask.digest


def make_cells(suite: Suite, kernels: Sequence[str], device: str, steps: Sequence[Step] = ()) -> list[Cell]:
    """All cells of a suite. `steps` (a workload) takes the place of masks, lengths and seeds."""
    grad = any(pass_ is not Pass.FWD for pass_ in suite.passes)
    cells: dict[Cell, None] = {}
    grid = [(step.cell_fields, kernels) for step in steps] or list(_grid(suite, kernels))
    for heads, dims, dtype in product(suite.heads, suite.head_dims, suite.dtypes):
        (heads_q, heads_kv), (head_dim, head_dim_v) = parse_heads(str(heads)), parse_dims(str(dims))
        operator = Operator(
            heads_q=heads_q,
            heads_kv=heads_kv,
            head_dim=head_dim,
            head_dim_v=head_dim_v,
            dtype=dtype,
            deterministic=suite.deterministic,
            softcap=suite.softcap,
            sinks=suite.sinks,
            scale=suite.scale,
            cudagraph=suite.cudagraph,
        )
        for fields, labels in grid:
            pattern = masks.has_blocks(fields["mask"])
            level = LevelName.SPARSE if suite.level is LevelName.KERNEL and pattern else suite.level
            source = suite.source if pattern else "random"
            for kernel, pass_ in product(labels, suite.passes):
                problem = Problem(**asdict(operator), pass_=pass_, source=source, **fields)
                cells[Cell(problem=problem, kernel=kernel, level=level, device=device, grad=grad)] = None
    if cells and suite.source != "random" and all(cell.problem.source == "random" for cell in cells):
        raise BadInput(
            f"the source {suite.source} is for block patterns, and none is asked for; add --masks {','.join(masks.block_names())}."
        )
    return list(cells)


def _grid(suite: Suite, kernels: Sequence[str]) -> Iterator[tuple[dict[str, Any], Sequence[str]]]:
    """The mask part of cells, and the kernels that run it: at each length the dense mask first, then every kernel on every mask."""
    names, seeds = suite.mask_names, suite.seed_list
    for seqlen in suite.lengths:
        if suite.level is not LevelName.CP and any(map(masks.has_blocks, names)):
            yield {"mask": masks.dense_of(suite.source), "seqlen": seqlen, "seed": seeds[0], "params": ()}, suite.dense
        for name in names:
            pattern = masks.find(name)
            drawn = documents_of(suite, pattern, seqlen)
            for params in _choices(suite.params_of(name)):
                for seed in seeds:
                    yield {"mask": name, "seqlen": seqlen, "seed": seed, "params": params, **drawn}, kernels


def documents_of(suite: Suite, pattern: Named, seqlen: int) -> dict[str, Any]:
    """The lengths of a mask's documents that are given, or how they are drawn."""
    if not pattern.has_documents:
        return {}
    if suite.documents:
        return {"documents": tuple(lengths.fit(suite.document_lengths, seqlen))}
    return drawing(pattern, suite.distribution or None, suite.packing or None)


def _choices(params: Mapping[str, Number | list[Number]]) -> Iterator[tuple[tuple[str, Number], ...]]:
    """Every combination of parameters that are given as lists."""
    values = [value if isinstance(value, list) else [value] for value in params.values()]
    for chosen in product(*values):
        yield tuple(zip(params, chosen, strict=True))


def full_title(problem: Problem) -> str:
    """The mask with all that was asked for: its parameters, and how its documents are drawn."""
    return problem.mask_title + problem.documents_title


def kept_by_problem(most: int) -> Callable[[Callable[[Problem], M]], Callable[[Problem], M]]:
    """Keeps what a function makes of the last problems, whatever their passes."""

    def decorate(make: Callable[[Problem], M]) -> Callable[[Problem], M]:
        kept = lru_cache(maxsize=most)(make)
        return lambda problem: kept(problem.every_pass)

    return decorate


@kept_by_problem(4)  # cells of one problem follow one another
def mask_of(problem: Problem) -> AnyMask:
    """The mask of a problem."""
    refuse_too_long(problem)
    return problem.build_mask()


def refuse_too_long(problem: Problem) -> None:
    """Refuses a mask that no machine, or not this one, has the memory for, before it is made."""
    if problem.seqlen > LONGEST:
        raise BadInput(f"{format_size(problem.seqlen)} tokens are too many: masks are made for up to {format_size(LONGEST)}; give fewer.")
    if masks.has_blocks(problem.mask):
        refuse_large_pattern(problem.mask, problem.seqlen, {"heads": problem.patterns, **dict(problem.params)})


def refuse_large_pattern(name: str, seqlen: int, params: Mapping[str, float]) -> None:
    blocks = masks.blocks_of(name, params)
    need, free = 2 * blocks[0].block_count(seqlen, blocks[1]) if blocks else 0, host_memory.limit()
    if need > free:
        raise BadInput(
            f"{name} takes {format_memory(need)} of host memory for its blocks at {format_size(seqlen)} tokens, and "
            f"{format_memory(free)} are free; give fewer tokens, larger blocks or fewer heads."
        )


@kept_by_problem(4096)
def mask_entry(problem: Problem) -> MaskEntry:
    """The mask of a problem as the journal keeps it."""
    return describe_mask(mask_of(problem), problem.token_shape)


def describe_mask(mask: AnyMask, token_shape: Heads | None = None) -> MaskEntry:
    """The mask as masks.jsonl keeps it; with the shape of q and k where these selected the blocks."""
    pattern = isinstance(mask, BlockMask)
    entry = MaskEntry(
        digest=mask.digest,
        mask=mask.name,
        seed=mask.seed,
        params=dict(mask.params),
        documents=None if mask.documents is None else list(mask.documents),
        source=mask.source if isinstance(mask, BlockMask) else None,
        seqlen_q=mask.seqlen_q,
        seqlen_k=mask.seqlen_k,
        area=mask.area,
        bands=None if isinstance(mask, BlockMask) else [(q0, q1, lo, a, hi, b) for q0, q1, lo, a, hi, b in mask.table],
    )
    if pattern and token_shape is not None and entry.source in RULES:
        return replace(entry, heads_q=token_shape.q, heads_kv=token_shape.kv, head_dim=token_shape.size)
    return entry


@kept_by_problem(4096)
def mask_outline(problem: Problem) -> MaskEntry:
    """The mask of a problem without its blocks, in milliseconds instead of minutes: for dry runs, shards and estimates. A pattern of 128K
    tokens and 64 heads has 268 million blocks; how many are kept follows from its parameters. So its area is the expected one, and its
    digest is that of how it is made: two seeds whose rule happens to select the same blocks count as two."""
    if problem.mask not in masks.block_names():  # with bands on top of blocks, what is left of these is not known beforehand
        return mask_entry(problem)
    refuse_too_long(problem)
    params = {**dict(problem.params), "heads": problem.patterns}
    rows, columns, count, known = masks.BLOCK_PATTERNS[problem.mask].frame(problem.seqlen, problem.seed, params, problem.source)
    random = problem.source == "random"
    draws_nothing = count == len(columns) - 1  # every block is kept
    made_from = None if draws_nothing else (problem.seed, problem.source, None if random else problem.token_shape)
    part = count / (len(columns) - 1)
    area = part if random else part - part**2 / 2  # a causal mask lies on top: a row sees its own part of what comes before it
    return MaskEntry(
        digest=fingerprint(rows.tolist(), columns.tolist(), count, known["heads"], made_from),
        mask=problem.mask,
        seed=problem.seed,
        params=known,
        source=problem.source,
        seqlen_q=problem.seqlen,
        seqlen_k=problem.seqlen,
        area=round(known["heads"] * problem.seqlen**2 * area),
        bands=None,
    )


def names_by_pairs(
    planned: Iterable[Planned], name: Callable[[Problem], str] = lambda problem: problem.mask
) -> dict[tuple[int, str], list[str]]:
    """The names of masks by length and digest: those of one entry show the same pairs."""
    names: dict[tuple[int, str], dict[str, None]] = {}
    for entry in planned:
        names.setdefault(entry.shown, {})[name(entry.cell.problem)] = None
    return {shown: list(same) for shown, same in names.items()}


def equal_masks(planned: Iterable[Planned]) -> list[str]:
    """A sentence for each set of masks that are the same mask at a length: a kernel that ignores what tells them apart is right there."""
    same = [(names, n) for (n, _), names in names_by_pairs(planned).items() if len(names) > 1]
    return [f"{', '.join(names[:-1])} and {names[-1]} are the same mask at {n} tokens" for names, n in same]


def plan(
    cells: Iterable[Cell],
    device_model: str,
    versions: Mapping[str, Mapping[str, str]],
    describe: Callable[[Problem], MaskEntry] = mask_entry,
) -> list[Planned]:
    """Keys for cells. Where seeds give the same mask (full, causal, windows) only the first is kept; other parameters are another cell,
    even where they happen to show the same: who asks for two ratios gets figures for two. `versions` are by `Cell.title` or kernel.

    `describe` makes the mask of a problem; with an outline of it the keys are not those of a journal.
    """
    planned: dict[tuple[Any, ...], Planned] = {}
    for cell in cells:
        mask = describe(cell.problem)
        same = (cell.with_problem(seed=0, params=(), documents=None), mask.digest, tuple(sorted(mask.params.items())))
        if same not in planned:
            own = {**versions[cell.kernel], **(versions[cell.title] if cell.split else {})}
            planned[same] = Planned(cell, key(cell, mask.digest, device_model, own), mask, own)
    return list(planned.values())
