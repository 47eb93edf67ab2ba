"""The level of context parallelism: which methods, ranks and grids a run has, and what is refused before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from longca import masks
from longca.bench.many_devices.grids import (
    grid_of,
    options_of,
    plan_of,
    ranks_of,
    ranks_per_node,
    refuse_crowd,
    refuse_options,
    settle,
    sharing_of,
)
from longca.bench.many_devices.ranks import Ranks
from longca.bench.many_devices.refusals import refusal_of
from longca.bench.plan.catalogue import Catalogue, Entry
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import Planned, make_cells, mask_of
from longca.bench.plan.plugins import load_carefully
from longca.bench.plan.suite import Suite
from longca.bench.plan.versions import kernel_versions, method_versions
from longca.bench.plan.workload import Step
from longca.bench.run.level import Level
from longca.errors import Unavailable
from longca.kernels import registry as kernels
from longca.parallel import joining, registry
from longca.parallel.grid import Grid
from longca.processes import shared_gpu
from longca.results.problem import Split
from longca.text import parse_list, parse_size


class ManyDevices(Level):
    def __init__(
        self,
        suite: Suite,
        device: str,
        plugins: Sequence[str] = (),
        *,
        nproc: int | None = None,
        grid: str | None = None,
        trace: str | Path | None = None,
    ) -> None:
        """`nproc` and `grid` are what the user typed: that is refused where it cannot be done, never left out. `trace` is a folder.

        The run itself imports plugin files, after a child process has: it must know before it starts what their methods refuse.
        """
        loaded = [name for path in plugins for name in load_carefully(path, suite.limits.start_s)]
        methods = methods_of(suite)
        refuse_options(suite, methods)
        suite, self.notes = settle(suite, methods, device, nproc, grid)
        self._has_typed_grid, self._trace = grid is not None, None if trace is None else Path(trace)
        super().__init__(suite, device, _catalogue(suite, plugins, device, methods))
        used = {label.partition(":")[0] for label in self.catalogue.entries}
        unused = [name for name in loaded if name in kernels.names() and name not in used]
        run = " and ".join(self.catalogue.entries)
        self.notes += [f"{name} of the plugin is not used: all ranks run {run}; --kernels {name} uses it." for name in unused]

    def cells(self, steps: Sequence[Step]) -> list[Cell]:
        """Every cell with every method."""
        suite, device, sharing = self.suite, self.device, sharing_of(self.suite, self.device)
        ranks, methods = ranks_of(suite, device), [registry.get(name) for name in methods_of(suite)]
        if suite.per_rank:
            suite = suite.changed(seqlens=tuple(parse_size(str(size)) * ranks for size in suite.seqlens))
        split = []
        for cell in make_cells(suite, self.catalogue.for_all_masks, device, steps):
            case = cell.case(mask_of(cell.problem))
            for method in methods:
                grid = Grid.parse(grid_of(method, methods, suite, case, ranks))
                options = options_of(method, case, grid, suite, ranks_per_node(suite, ranks))
                on_ranks = cell.with_problem(ranks=ranks, sharing=sharing)
                split += [replace(on_ranks, split=Split(method.name, *settled)) for settled in options]
        return split

    def executor(self, device_model: str, cache: Path, full: bool) -> Ranks:
        return Ranks(self.suite, self.catalogue, self.device, device_model, cache, self._trace)

    def refuse_crowd(self) -> None:
        """Refuses more ranks than this machine can start, and ranks that share a GPU without an NCCL that can."""
        sharing = sharing_of(self.suite, self.device)
        if sharing is not None and sharing.ranks > 1:
            shared_gpu.find_library()
        if self.device == "cpu":
            launch = joining.launched()
            refuse_crowd(launch.ranks_per_node if launch else ranks_of(self.suite, self.device), len(os.sched_getaffinity(0)))

    def admit(self, planned: Sequence[Planned], dry: bool) -> None:
        """Refuses a run of which nothing can come, or nothing in the grid that was typed. Otherwise the records of methods and masks that
        cannot be done say why."""
        if not dry:
            self.refuse_crowd()
        jobs = list(dict.fromkeys(entry.cell.job for entry in planned))
        self.refuse_if_all_are(jobs, dry)
        if self._has_typed_grid:
            self.refuse_if_all_are([job for job in jobs if job.split and job.split.grid in parse_list(self.suite.grid)], dry)

    def refuse_if_all_are(self, jobs: Iterable[Cell], dry: bool = False) -> None:
        """Raises the first refusal if no method supports any of these."""
        refused = None
        for job in jobs:
            answer = refusal_of(job, dry)
            if answer is None:
                return
            refused = refused or answer
        if refused is not None:
            raise refused

    def details(self, planned: Sequence[Planned]) -> list[str]:
        """How tokens and documents are shared where that is uneven."""
        lines = []
        for job in dict.fromkeys(entry.cell.job for entry in planned):
            if refusal_of(job, dry=True) is None and (about := plan_of(job, mask_of(job.problem), job.grad).describe()):
                lines += [f"{job.title} on {job.problem.mask_title}, {job.problem.seqlen} tokens:", *(f"  {line}" for line in about)]
        return lines


def _catalogue(suite: Suite, plugins: Sequence[str], device: str, methods: Sequence[str]) -> Catalogue:
    catalogue = Catalogue(plugins=tuple(plugins), methods={name: method_versions(name) for name in methods})
    for label in suite.kernels:
        name = kernels.default_for_methods(device) if label == "all" else label  # methods are compared on one kernel
        kernels.get(name)
        catalogue.add(Entry(name, kernel_versions(name)))
    return catalogue


def methods_of(suite: Suite) -> list[str]:
    """The methods of a suite; refuses unknown names. `all` stands for LongCA's own, without those for block patterns where there are none;
    `peers` for other projects' methods that are installed, and their balancers."""
    blocks = any(map(masks.has_blocks, suite.mask_names))
    own = [name for name in registry.names() if blocks or not registry.get(name).takes_blocks_alone]
    groups = {"all": own, "peers": [name for name in registry.peers() if registry.get(name).available()]}
    names = [name for given in suite.methods for name in groups.get(given, [given])]
    if not names:
        raise Unavailable(f"none of the peers is installed; `longca ls cp` says how to install {', '.join(registry.peers())}.")
    for name in names:
        registry.get(name)
    return list(dict.fromkeys(names))
