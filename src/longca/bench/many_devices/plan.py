"""The plan of a cell over many ranks: the same in the run and in every rank."""

from __future__ import annotations

from dataclasses import replace

from longca.bench.plan.cell import Cell
from longca.masks import AnyMask
from longca.parallel import options, registry
from longca.parallel.method import Plan


def plan_of(cell: Cell, mask: AnyMask, backward: bool) -> Plan:
    """What the ranks will do; raises Refused."""
    assert cell.split is not None
    case = replace(cell.case(mask), backward=backward)
    split = cell.split
    return registry.plan(split.method, mask, case, cell.problem.ranks, split.grid, cell.kernel, options=options.parse(split.options))
