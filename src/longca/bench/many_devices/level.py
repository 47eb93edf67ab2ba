"""Which methods, ranks and grids a run of the level `cp` is about, and what of it makes no sense before anything is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from longca.bench import metrics, plan
from longca.bench.catalogue import Catalogue, Entry
from longca.bench.cell import Cell
from longca.bench.cp_memory import refuse_what_does_not_fit
from longca.bench.cp_plugins import load_carefully
from longca.bench.cp_ranks import grid_of, ranks_of
from longca.bench.environment import kernel_versions, methods_version, plugin_version
from longca.bench.plan import Planned, mask_of
from longca.bench.suite import Suite
from longca.errors import Refused
from longca.kernels import registry as kernels
from longca.masks import AnyMask
from longca.parallel import registry
from longca.parallel.method import Plan
from longca.text import parse_list, parse_size

KERNEL = {"cpu": "torch:chunked", "cuda": "fa4"}  # what `all` means here: methods are compared on one kernel
CPU_FLOPS = 4e10  # a second, of a usual machine
HOPELESS = 4  # calls: a cell whose time does not suffice for so many is not begun


def catalogue(suite: Suite, plugins: Sequence[str], device: str, only_named: bool = False) -> Catalogue:
    """The kernels. Files with methods are imported by the run itself: it must know before it starts what they refuse."""
    for path in plugins:
        load_carefully(path, suite.limits.start_s)
    versions = methods_version() | plugin_version(*plugins)
    methods_of(suite)  # refuses names that nobody knows
    found = Catalogue(plugins=tuple(plugins))
    for label in suite.kernels:
        name = KERNEL[device] if label == "all" else label
        kernels.get(name)
        found.add(Entry(name, kernel_versions(name) | versions))
    return found


def methods_of(suite: Suite) -> list[str]:
    names = [name for given in suite.methods for name in (registry.names() if given == "all" else [given])]
    for name in names:
        registry.get(name)
    return list(dict.fromkeys(names))


def cells(suite: Suite, kernel_labels: Sequence[str], device: str, steps: Sequence[Mapping[str, object]] = ()) -> list[Cell]:
    """Every cell with every method."""
    ranks, methods = ranks_of(suite, device), [registry.get(name) for name in methods_of(suite)]
    if suite.per_rank:
        suite = suite.changed(seqlens=tuple(str(parse_size(size) * ranks) for size in suite.seqlens))
    found = []
    for cell in plan.cells(suite, kernel_labels, device, steps):
        case = cell.case(mask_of(cell.problem))
        for method in methods:
            grid = grid_of(method, methods, suite, case, ranks)
            found.append(replace(cell, extra=(("method", method.name), ("ranks", ranks), ("grid", grid))))
    return found


def plan_of(cell: Cell, mask: AnyMask, backward: bool) -> Plan:
    """The same in the run and in every rank; raises Refused."""
    asked = dict(cell.extra)
    return registry.plan(asked["method"], mask, replace(cell.case(mask), backward=backward), asked["ranks"], asked["grid"], cell.kernel)


def admit(planned: Sequence[Planned], suite: Suite, device: str, only_named: bool) -> None:
    """Refuse a run of which nothing can come: too much for a CPU or a GPU, or a combination asked for by name that cannot work.

    Of several methods those that cannot say so in their records, as long as another one can: for the same problem, where they were
    named, and in the grid that was.
    """
    answers: dict[Cell, Refused | None] = {}
    for entry in planned:
        cell, asked = entry.cell, dict(entry.cell.extra)
        mask = mask_of(cell.problem)
        seconds = metrics.flops(mask, cell.case(mask), cell.which) / CPU_FLOPS
        if device == "cpu" and HOPELESS * seconds > suite.limits.time_s:
            raise Refused(
                f"{asked['method']} on {cell.mask} with {cell.seqlen} tokens and {cell.heads_q} heads takes about {seconds:.0f} s "
                f"a call on a CPU, and a cell has {suite.limits.time_s:.0f} s; use GPUs, shorter --seqlens, or the suite quick-cp."
            )
        if cell.job not in answers:
            answers[cell.job] = _refusal(cell, mask, device)
    together: dict[object, list[Refused | None]] = {"all": list(answers.values())}
    for job, answer in answers.items() if only_named else ():
        in_grid = dict(job.extra)["grid"] in parse_list(suite.grid)
        for group in (job.problem, "grid") if in_grid else (job.problem,):
            together.setdefault(group, []).append(answer)
    for alike in together.values():
        refused = [answer for answer in alike if answer is not None]
        if refused and len(refused) == len(alike):
            raise refused[0]


def _refusal(cell: Cell, mask: AnyMask, device: str) -> Refused | None:
    try:
        made = plan_of(cell, mask, cell.grad)
        if device == "cuda":
            refuse_what_does_not_fit(cell, made)
    except Refused as error:
        return error
    return None
