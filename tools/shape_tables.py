"""Tables of the fastest kernels by mask and shape, for docs/measured.md and docs/measured-shapes.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from measured_tables import PASSES, fastest_of, in_order, named

from longca.results.groups import group_rows
from longca.results.naming import Contest, Row
from longca.results.problem import Pass
from longca.results.ranking import Ranking
from longca.results.record import Record
from longca.results.tables import markdown_table
from longca.text import format_dims, format_heads, format_size

SEEDS, SHAPES, PAPER = "h200/seeds", "h200/model-shapes", "h200/paper-kernel"
KEYS = (512, 1024, 2048, 4096, 8192)  # bounds of keys that a query sees on average
SHOWN, LENGTHS = 32768, (8192, 32768, 131072)

Shape = tuple[int, int, int, int]
USUAL: Shape = (64, 8, 128, 128)
LIKE_OTHERS: Shape = (40, 8, 128, 128)
Place = tuple[str, Pass, int]  # mask, pass and length


def fastest() -> str:
    """The fastest kernels per mask, pass and length: of masks with documents over all seeds, since one seed is not typical."""
    rankings = _rankings(named(PAPER)) | dict(rankings_of_all_seeds())
    table = [
        [mask, *(_both([rankings.get((mask, pass_, seqlen)) for pass_ in PASSES]) for seqlen in LENGTHS)]
        for mask in in_order({mask for mask, _, _ in rankings})
    ]
    return markdown_table(["mask", *(f"{format_size(seqlen)}, fwd / bwd" for seqlen in LENGTHS)], table)


def _both(rankings: Iterable[Ranking | None]) -> str:
    """The fastest kernels of forward / backward."""
    return " / ".join(fastest_of(ranking) for ranking in rankings if ranking)


def by_keys() -> str:
    """The speed of the fastest kernel on each mask, by the number of keys that a query sees on average."""
    groups: dict[tuple[Pass, int], list[float]] = {}
    for (_, pass_, seqlen), ranking in rankings_of_all_seeds():
        for digest in ranking.masks:
            area = ranking.standings[0].figures[digest].records[0].built.area or 0
            place = pass_, sum(area / seqlen >= bound for bound in KEYS)
            groups.setdefault(place, []).append(max(own.figures[digest].tflops for own in ranking.standings))
    table = []
    for step in range(len(KEYS) + 1):
        own = [groups.get((pass_, step), []) for pass_ in PASSES]
        if any(own):
            table.append(
                [_bin(step), str(len(own[0])), *(f"{median(speeds):.0f} ({min(speeds):.0f} to {max(speeds):.0f})" for speeds in own)]
            )
    return markdown_table(["keys per query", "masks", *(f"{pass_.value}, TFLOP/s" for pass_ in PASSES)], table)


def _bin(step: int) -> str:
    if step == 0:
        return f"under {format_size(KEYS[0])}"
    low = format_size(KEYS[step - 1])
    return f"{low} to {format_size(KEYS[step])}" if step < len(KEYS) else f"{low} and more"


def shapes() -> str:
    """The fastest kernels per mask, pass and shape."""
    found = _by_shape()
    columns = {shape: None for own in found.values() for shape in own if shape != LIKE_OTHERS}
    table = [
        [mask, *(_both([found.get((mask, pass_, SHOWN), {}).get(shape) for pass_ in PASSES]) for shape in columns)]
        for mask in in_order({mask for mask, _, _ in found})
    ]
    return markdown_table(["mask", *map(_name, columns)], table)


def rankings_of_all_seeds() -> Iterator[tuple[Place, Ranking]]:
    """Rankings of masks and lengths of which all seeds were measured, in order."""
    rows = named(SEEDS)
    count = len({row.record.problem.seed for row in rows})
    for place, ranking in _rankings(rows).items():
        if len(ranking.masks) == count:
            yield place, ranking


def _rankings(rows: Iterable[Row]) -> dict[Place, Ranking]:
    found = {_place(group.contest): group.ranking for group in group_rows(rows).measured}
    order = in_order({mask for mask, _, _ in found})
    places = sorted(found, key=lambda place: (order.index(place[0]), PASSES.index(place[1]), place[2]))
    return {place: found[place] for place in places}


def _place(contest: Contest) -> Place:
    return contest.mask_name, contest.pass_, contest.seqlen


def _by_shape() -> Mapping[Place, Mapping[Shape, Ranking]]:
    """Rankings by place, and there by shape, 64:8 heads first, where other shapes were measured."""
    groups: dict[Shape, list[Row]] = {USUAL: list(named(PAPER))}
    for row in named(SHAPES):
        groups.setdefault(_shape(row.record), []).append(row)
    rankings = {shape: _rankings(own if shape == USUAL else _of_all_kernels(own)) for shape, own in groups.items()}
    places = {place: None for shape in groups if shape != USUAL for place in rankings[shape]}
    return {place: {shape: own[place] for shape, own in rankings.items() if place in own and own[place].best} for place in places}


def _of_all_kernels(rows: Sequence[Row]) -> list[Row]:
    """Rows of one shape, at lengths where no kernel is missing that other lengths of the mask have."""
    tried: dict[str, dict[int, set[str]]] = {}
    for row in rows:
        tried.setdefault(row.mask_name, {}).setdefault(row.record.problem.seqlen, set()).add(row.line)
    return [row for row in rows if tried[row.mask_name][row.record.problem.seqlen] == set().union(*tried[row.mask_name].values())]


def _shape(record: Record) -> Shape:
    return record.problem.heads_q, record.problem.heads_kv, record.problem.head_dim, record.problem.head_dim_v


def _name(shape: Sequence[int]) -> str:
    named_shape = dict(zip(("heads_q", "heads_kv", "head_dim", "head_dim_v"), shape, strict=True))
    return f"{format_heads(named_shape)} of {format_dims(named_shape)}"


TABLES = {"fastest": fastest, "seeds-by-keys": by_keys, "shapes": shapes}
