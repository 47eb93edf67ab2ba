"""Cells for tests, from fields side by side."""

from typing import Any

from longca.bench.plan.cell import Cell
from longca.results.problem import Problem

SHAPE = {"heads_q": 4, "heads_kv": 2, "head_dim": 16, "head_dim_v": 16, "dtype": "fp32"}


def make_cell(kernel: str = "torch", **fields: Any) -> Cell:
    """A cell; fields of its problem are given by name."""
    problem = {name: fields.pop(name) for name in Problem.__struct_fields__ if name in fields}
    return Cell(problem=Problem(**{**SHAPE, **problem}), kernel=kernel, **fields)
