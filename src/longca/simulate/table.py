"""The exact plan of each method: bytes, messages, memory and work of its ranks, from their recorded programs. No cluster is modelled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from longca.bench.plan.cell import Cell
from longca.errors import Refused
from longca.results.metrics import imbalance
from longca.results.problem import Pass
from longca.simulate.programs import Programs, messages, pairs, record_job, sent_by_link
from longca.simulate.request import Request, jobs_of


@dataclass(frozen=True)
class Row:
    """One method, grid, mask and pass on some GPUs. Bytes and messages are of the rank with the most, and the mean over ranks."""

    method: str
    grid: str
    options: str
    gpus: int
    mask: str
    seqlen: int
    pass_: str
    seed: int = 0  # of its documents
    refusal: str = ""
    inside_bytes: int = 0
    between_bytes: int = 0
    mean_bytes: float = 0.0
    messages: int = 0
    peak_bytes: int = 0
    attention_calls: int = 0
    pairs: int = 0  # visible pairs of all its heads, of the rank with the most
    tiles: int = 0  # 128 x 128 tiles of all its heads, of the rank with the most
    imbalance: float = 1.0  # of pairs: most over mean
    tile_imbalance: float = 1.0
    details: tuple[str, ...] = ()  # how tokens and documents are shared, where that is uneven

    @property
    def setting(self) -> str:
        """The grid and the options."""
        return f"{self.grid} {self.options}".strip()

    def as_dict(self) -> dict[str, Any]:
        return plain(asdict(self))


def rows(request: Request) -> Iterator[Row]:
    for cells in jobs_of(request.cells()):
        programs = record_job(cells)
        if isinstance(programs, Refused):
            yield from (Row(**names(cell), refusal=str(programs)) for cell in cells)
            continue
        for cell in cells:
            yield _row(cell, programs, request.per_node)


def names(cell: Cell) -> dict[str, Any]:
    """What a cell is of."""
    assert cell.split is not None
    problem, split = cell.problem, cell.split
    case = {"mask": problem.mask_title, "seqlen": problem.seqlen, "pass_": problem.pass_.value, "seed": problem.seed}
    return {"method": split.method, "grid": split.grid, "options": split.options, "gpus": problem.ranks, **case}


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {"pass" if name == "pass_" else name: value for name, value in row.items()}


def _row(cell: Cell, programs: Programs, per_node: int) -> Row:
    events = programs.events(Pass(cell.problem.pass_))
    links = [sent_by_link(rank, number // per_node, per_node) for number, rank in enumerate(events)]
    calls = [[event.call for event in rank if event.call is not None] for rank in events]
    tiles = [sum(call.tiles * call.heads_q for call in rank) for rank in calls]
    work = [pairs(rank) for rank in events]
    return Row(
        **names(cell),
        inside_bytes=max(inside for inside, _ in links),
        between_bytes=max(between for _, between in links),
        mean_bytes=sum(map(sum, links)) / len(links),
        messages=max(map(messages, events)),
        peak_bytes=max(programs.peaks(cell.problem.pass_)),
        attention_calls=max(map(len, calls)),
        pairs=max(work),
        tiles=max(tiles),
        imbalance=imbalance(work),
        tile_imbalance=imbalance(tiles),
        details=tuple(programs.plan.describe()),
    )
