"""What to plan or simulate: a suite of the level cp, for several numbers of GPUs, with one grid or all grids of each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from msgspec.structs import replace

from longca import masks
from longca.bench.many_devices.grids import grid_of, has_a_choice, options_of, plan_of, refuse_options
from longca.bench.many_devices.level import methods_of
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import make_cells, mask_of
from longca.bench.plan.suite import Suite, check
from longca.bench.plan.workload import Step
from longca.errors import BadInput, Refused, Unavailable
from longca.kernels import registry as kernels
from longca.kernels.base import Case
from longca.parallel import registry
from longca.parallel.grid import Grid, divisors
from longca.parallel.method import Method, Plan
from longca.results.grouping import grouped
from longca.results.problem import Problem, Split
from longca.results.record import LevelName
from longca.text import parse_size

MOST_GPUS = 4096


@dataclass(frozen=True)
class Request:
    """`suite.seqlens` are tokens of all GPUs together, or of each where `suite.per_rank` says so."""

    suite: Suite
    gpus: tuple[int, ...]
    per_node: int
    device: str = "cuda"  # cpu: the cluster has no GPUs
    all_grids: bool = False  # every grid, unless the suite gives one
    all_options: bool = False  # every value that a search tries of options that the suite does not give
    steps: tuple[Step, ...] = ()  # of a workload, in place of masks and lengths
    layers: Mapping[str, int] = field(default_factory=dict)  # of a model with several masks: how many layers have each
    tensor: int = 1  # GPUs that share the heads; the suite has those of one
    total: int | None = None  # GPUs in all: those that share neither the sequence nor the heads have other data

    def __post_init__(self) -> None:
        check(self.suite)
        refuse_options(self.suite, methods_of(self.suite))
        for number in self.gpus:
            if not 1 <= number <= MOST_GPUS:
                raise BadInput(f"--gpus must be from 1 to {MOST_GPUS}, not {number}.")

    @cached_property
    def methods(self) -> list[Method]:
        return [registry.get(name) for name in methods_of(self.suite)]

    @property
    def kernel(self) -> str:
        """Methods are compared on one kernel."""
        named = [label for label in self.suite.kernels if label != "all"]
        return named[0] if named else kernels.default_for_methods(self.device)

    def cells(self) -> list[Cell]:
        """Every mask, length and pass with every method, for each number of GPUs."""
        cells = []
        for ranks in self.gpus:
            suite = self.suite.changed(level=LevelName.CP, nproc=ranks)
            if suite.per_rank:
                suite = suite.changed(seqlens=tuple(parse_size(str(size)) * ranks for size in suite.seqlens))
            for cell in make_cells(suite, [self.kernel], self.device, self.steps):
                if cell.problem.seed != suite.seed_list[0] and not self.steps and not _is_drawn(cell.problem):
                    continue
                case = cell.case(mask_of(cell.problem))
                for method in self.methods:
                    grids = [Grid.parse(grid) for grid in self._grids(method, suite, case, ranks)]
                    chosen = self._with_choices(method, suite)
                    settled = dict.fromkeys(each for grid in grids for each in options_of(method, case, grid, chosen, self.per_node))
                    cells += [replace(cell.with_problem(ranks=ranks), split=Split(method.name, *each)) for each in settled]
        return cells

    def _with_choices(self, method: Method, suite: Suite) -> Suite:
        if not self.all_options:
            return suite
        return suite.changed(options={option.name: list(option.choices) for option in method.options if option.choices} | suite.options)

    def _grids(self, method: Method, suite: Suite, case: Case, ranks: int) -> list[str]:
        if suite.grid:
            return [grid_of(method, self.methods, suite, case, ranks)]
        if self.all_grids:
            return [str(grid) for grid in every_grid(method, case, ranks)]
        return [str(method.default_grid(case, ranks, self.per_node))]


def _is_drawn(problem: Problem) -> bool:
    """Whether other seeds are other documents."""
    return problem.documents is None and masks.find(problem.mask).has_documents


def every_grid(method: Method, case: Case, ranks: int) -> list[Grid]:
    """The grids that a method has a choice between; its default where there is none."""
    if not has_a_choice(method):
        return [method.default_grid(case, ranks)]
    grids = []
    for heads in divisors(ranks) if method.has_columns else [1]:
        ring = ranks // heads
        windows = [number for number in divisors(ring) if number < ring or ring == 1] if method.has_windows else [1]
        grids += [Grid(heads, ring, number) for number in windows if heads <= case.heads_q or not method.splits_heads]
    return grids


def jobs_of(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The cells of each job: the passes of one plan."""
    return list(grouped(cells, lambda cell: cell.job).values())


def plan_job(cells: Sequence[Cell]) -> Plan:
    """The plan of a job; raises Refused where there is none."""
    try:
        plan = plan_of(cells[0], mask_of(cells[0].problem), cells[0].grad)
    except Unavailable as error:
        raise Refused(str(error)) from error
    if plan.method.peer:
        raise Refused(f"{plan.method.name} calls torch.distributed itself, so what it sends cannot be recorded.")
    return plan
