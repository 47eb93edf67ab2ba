"""Cells for tests, from fields side by side, and jobs of a suite."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import make_cells, plan
from longca.bench.plan.jobs import Job, make_jobs
from longca.bench.plan.suite import Suite
from longca.results.problem import Problem

SHAPE = {"heads_q": 4, "heads_kv": 2, "head_dim": 16, "head_dim_v": 16, "dtype": "fp32"}


def changed(cell: Cell, **fields: Any) -> Cell:
    """The cell with other fields, of itself or of its problem."""
    problem = {name: fields.pop(name) for name in Problem.__struct_fields__ if name in fields}
    return replace(cell.with_problem(**problem), **fields)


def make_cell(kernel: str = "torch", **fields: Any) -> Cell:
    """A cell; fields of its problem are given by name."""
    problem = {name: fields.pop(name) for name in Problem.__struct_fields__ if name in fields}
    return Cell(problem=Problem(**{**SHAPE, **problem}), kernel=kernel, **fields)


def made_jobs(suite: Suite, kernels: Sequence[str] = ("torch",), grouping: str = "kernel") -> list[Job]:
    """The jobs of a suite on a CPU."""
    planned = plan(make_cells(suite, kernels, "cpu"), "a CPU", {name: {} for name in kernels})
    return make_jobs(planned, grouping)
