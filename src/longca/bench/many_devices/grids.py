"""How many ranks a run has, which grid and options each method gets, and the plan of a cell."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import replace

from longca import devices
from longca.bench.plan.cell import Cell
from longca.bench.plan.suite import Suite
from longca.errors import BadInput, Refused
from longca.kernels.base import Case
from longca.masks import AnyMask
from longca.parallel import joining, options, registry
from longca.parallel.grid import Grid, divisors
from longca.parallel.method import RANKS_PER_NODE, Method, Plan
from longca.processes import shared_gpu
from longca.results.problem import Sharing
from longca.text import parse_heads, parse_list, plural

RANKS = 2  # on a machine without GPUs, where nobody says how many
RANKS_PER_CORE = 16  # each takes 2 to 4 s of a core to import torch, and some 0.4 GiB: with more, ranks are not there in time


def ranks_of(suite: Suite, device: str) -> int:
    """Under torchrun or srun as many as there are, whatever the suite says; else as asked, or one per GPU."""
    if launch := joining.launched():
        return launch.ranks
    gpus = len(devices.gpus()) if device == "cuda" else 0
    most = gpus * suite.ranks_per_gpu
    ranks = suite.nproc or most or RANKS
    if device == "cuda" and ranks > most:
        needed, share = -(-ranks // suite.ranks_per_gpu), -(-ranks // max(1, gpus))
        raise Refused(
            f"{ranks} ranks need {plural(needed, 'GPU')}, and this machine has {gpus}; ask for --nproc {most}, for --ranks-per-gpu "
            f"{share}, or use --device cpu."
        )
    return ranks


def sharing_of(suite: Suite, device: str) -> Sharing | None:
    """How ranks share GPUs; None where each has its own."""
    per_gpu, nodes = suite.ranks_per_gpu, suite.pretend_nodes
    if per_gpu == nodes == 1:
        return None
    if device != "cuda":
        raise BadInput("--ranks-per-gpu and --pretend-nodes are for GPUs; on CPUs ranks share the machine anyway.")
    if nodes > 1 and ranks_of(suite, device) % nodes:
        raise BadInput(f"{ranks_of(suite, device)} ranks cannot be {nodes} nodes of as many ranks each.")
    return shared_gpu.share_gpus(per_gpu, nodes)


def ranks_per_node(suite: Suite, ranks: int) -> int:
    """How many ranks a node has, or pretends to have."""
    launch = joining.launched()
    return ranks // suite.pretend_nodes if launch is None or suite.pretend_nodes > 1 else launch.ranks_per_node


def settle(suite: Suite, methods: Sequence[str], device: str, nproc: int | None, grid: str | None) -> tuple[Suite, list[str]]:
    """The suite without those of its own grids that are for other numbers of ranks or methods, and notes for the user about the ranks.

    `nproc` and `grid` are what the user typed: they are refused where they cannot be done, never left out.
    """
    launch, ranks = joining.launched(), ranks_of(suite, device)
    if launch is not None and nproc not in (None, ranks):
        raise BadInput(f"--nproc asks for {nproc} ranks, and this process is one of {ranks}; leave out --nproc, or start {nproc} of them.")
    notes = []
    if device == "cpu":
        notes += crowded(launch.ranks_per_node if launch else ranks, len(os.sched_getaffinity(0)))
    if suite.grid and grid is None and not any(has_a_choice(registry.get(name)) for name in methods):
        suite = suite.changed(grid="")
    if suite.grid and grid is None:
        fitting = [text for text in parse_list(suite.grid) if Grid.parse(text).ranks == ranks]
        if not fitting:
            notes.append(f"the suite's grid {suite.grid} is for another number of ranks than {ranks}, so every method uses its own.")
        suite = suite.changed(grid=",".join(fitting))
    return suite, notes + ([] if suite.grid else ringless(suite, methods, ranks, launch.ranks_per_node if launch else RANKS_PER_NODE))


def ringless(suite: Suite, methods: Sequence[str], ranks: int, ranks_per_node: int) -> list[str]:
    """What to say where heads suffice for all ranks, so that methods which could have a ring do what ulysses does."""
    cases = [Case(1, 1, *parse_heads(text), 1, 1) for text in map(str, suite.heads)]
    choosing = [method for method in map(registry.get, methods) if has_a_choice(method) and method.splits_heads]
    same = [method.name for method in choosing if any(method.default_grid(case, ranks, ranks_per_node).ring == 1 for case in cases)]
    if ranks == 1 or not same:
        return []
    ring = divisors(ranks)[1]
    names = f"{' and '.join(same)} {'splits' if len(same) == 1 else 'split'}"
    return [f"without a --grid {names} heads alone here, as ulysses does; --grid {ranks // ring}x{ring} gives a ring."]


def crowded(ranks: int, cores: int) -> list[str]:
    """Returns what to say where ranks share cores."""
    if ranks <= cores:
        return []
    return [f"{ranks} ranks share {plural(cores, 'core')}: they wait for each other, so times are longer than with a core each."]


def refuse_crowd(ranks: int, cores: int) -> None:
    """Refuses more ranks than the cores can start in time."""
    if ranks > cores * RANKS_PER_CORE:
        most = cores * RANKS_PER_CORE
        raise Refused(f"{ranks} ranks are too many for {plural(cores, 'core')}; ask for --nproc {most} at most.")


def has_a_choice(method: Method) -> bool:
    """Between the two numbers of a grid, or of the windows; all others have one grid for every number of ranks."""
    return method.has_ring and (method.has_columns or method.has_windows)


def grid_of(method: Method, methods: Sequence[Method], suite: Suite, case: Case, ranks: int) -> str:
    """A grid goes to the methods that have a choice, or to all where none has, windows first to those that have them.

    Methods that cannot use it as it is take it without its windows, or keep their own, if another method can; if none can, it is refused.
    """
    per_node = ranks_per_node(suite, ranks) if joining.launched() or suite.pretend_nodes > 1 else RANKS_PER_NODE
    default = method.default_grid(case, ranks, per_node)
    choosing = [other for other in methods if has_a_choice(other)] or methods
    if not suite.grid or method not in choosing:
        return str(default)
    given = sorted(map(Grid.parse, parse_list(suite.grid)), key=lambda grid: grid.windows, reverse=method.has_windows)
    usable = [grid for grid in given if _fits(method, grid)]
    if not usable and any(_fits(other, grid) for other in choosing for grid in given):
        usable = [plain for grid in given if _fits(method, plain := Grid(grid.heads, grid.ring))] or [default]
    return str((usable or given)[0])  # however it was written


def _fits(method: Method, grid: Grid) -> bool:
    return (grid.heads == 1 or method.has_columns) and (grid.windows == 1 or method.has_windows)


def refuse_options(suite: Suite, methods: Sequence[str]) -> None:
    """Refuses an option that none of the methods has, and windows that the grid says as well."""
    if "windows" in suite.options and any(Grid.parse(text).windows > 1 for text in parse_list(suite.grid)):
        raise BadInput(f"the grid {suite.grid} and the option windows both say the windows; give one of them.")
    known = {option.name for name in methods for option in registry.get(name).options}
    for name in suite.options:
        if name not in known:
            own = f"they have {', '.join(sorted(known))}" if known else "they have none"
            raise BadInput(f"none of these methods has an option {name!r}; {own}, and `longca ls cp` shows those of all methods.")


def options_of(method: Method, case: Case, grid: Grid, suite: Suite, ranks_per_node: int) -> list[tuple[str, str]]:
    """The grid and the options of each combination of values that the suite has for this method, each once. What the suite does not say
    may follow from heads and nodes."""
    usual = method.default_options(case.group, grid.ranks, ranks_per_node)
    own = {option.name for option in method.options}
    axes = [[(name, value) for value in _values(values)] for name, values in suite.options.items() if name in own]
    return list(dict.fromkeys(_settled(method, grid, usual | dict(chosen)) for chosen in itertools.product(*axes)))


def _settled(method: Method, grid: Grid, chosen: dict[str, int]) -> tuple[str, str]:
    try:
        with_windows, _ = options.settle(method, grid, chosen)
    except Refused:  # as it will be again when the cell is planned, beside others that can be measured
        return str(Grid(grid.heads, grid.ring)), ",".join(f"{name}={value}" for name, value in sorted(chosen.items()))
    return str(with_windows), options.text_of(method, chosen)


def _values(given: int | list[int]) -> list[int]:
    return given if isinstance(given, list) else [given]


def plan_of(cell: Cell, mask: AnyMask, backward: bool) -> Plan:
    """What the ranks will do, the same in the run and in every rank; raises Refused."""
    assert cell.split is not None
    case = replace(cell.case(mask), backward=backward)
    split = cell.split
    return registry.plan(split.method, mask, case, cell.problem.ranks, split.grid, cell.kernel, options=options.parse(split.options))
