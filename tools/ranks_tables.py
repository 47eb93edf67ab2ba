"""How far off the simulation is: of the attention calls in results/h200/ranks_on_one_gpu.jsonl, and of published figures."""

from __future__ import annotations

from functools import cache
from statistics import median
from typing import Any

from measured_tables import PASSES, json_rows

from longca import masks
from longca.kernels.base import Case
from longca.parallel import registry
from longca.parallel.method import make_plan
from longca.results.problem import Pass
from longca.results.tables import markdown_table
from longca.simulate.cluster import find
from longca.simulate.costs import attention_s
from longca.simulate.errors import ledgers, spread_of
from longca.simulate.programs import Programs
from longca.text import parse_dims, parse_heads

CLUSTER = "h200-ib"
Row = dict[str, Any]


@cache
def rows() -> dict[tuple[str, str], Row]:
    """The rows by method and mask."""
    return {(row["method"], row["mask"]): row for row in json_rows("h200/ranks_on_one_gpu.jsonl")}


@cache
def _simulated(method: str, mask_name: str) -> dict[Pass, float]:
    """By pass, the simulated milliseconds of the attention calls of the slowest rank."""
    row, (_, cluster) = rows()[method, mask_name], find(CLUSTER)
    mask = masks.build(mask_name, row["seqlen"], seed=row["seed"])
    shape = (*parse_heads(row["heads"]), *parse_dims(row["head_dim"]), row["dtype"], "cuda")
    case = Case(row["seqlen"], row["seqlen"], *shape, partial_backward=True)
    programs = Programs.of(make_plan(registry.get(method), mask, case, row["ranks"], None, row["kernel"]))

    def attention_ms(pass_: Pass) -> list[float]:
        return [1e3 * sum(attention_s(event.call, cluster.compute) for event in rank if event.call) for rank in programs.events(pass_)]

    return {pass_: max(attention_ms(pass_)) for pass_ in PASSES}


def error(row: Row, pass_: Pass) -> float:
    """By how much the simulated time of the slowest rank is longer."""
    return _simulated(row["method"], row["mask"])[pass_] / max(row[pass_]) - 1


def simulated() -> str:
    forward, backward = (100 * median(abs(error(row, pass_)) for row in rows().values()) for pass_ in PASSES)
    far, method, mask, pass_ = max((abs(error(row, pass_)), *key, pass_.value) for key, row in rows().items() for pass_ in PASSES)
    most = f"The largest is {100 * far:.0f} % (`{method}` on `{mask}`, {pass_})."
    return f"The median error of the {len(rows())} cells is {forward:.0f} % forward and {backward:.0f} % backward. {most}"


def errors() -> str:
    """The errors of predictions against published figures, by cluster, kind of mask and method."""
    kinds = [(name, kind) for name in ("h100-ib", "b200-ib") for kind in ("full and causal", "documents")]
    known, rows = ledgers(), list[list[str]]()
    for method in (*dict.fromkeys(row.method for name, _ in kinds for row in known[name].rows), "all"):
        cells = []
        for name, kind in kinds:
            own = [row for row in known[name].rows if row.kind == kind and method in ("all", row.method)]
            found = spread_of(error for row in own for error in row.errors) if own else None
            cells.append(f"{100 * found.median:.0f}/{100 * found.most:.0f}" if found else "-")
        rows.append([method, *cells])
    return markdown_table(["method", *(f"{name}, {kind}" for name, kind in kinds)], rows)


TABLES = {"ranks-simulated": simulated, "cluster-errors": errors}
