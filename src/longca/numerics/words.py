"""Tables and sentences about measured errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from longca.numerics.errors import NAMES, growth
from longca.numerics.measure import Measured
from longca.results.shown import Part
from longca.results.tables import Table
from longca.text import format_size, plural


def parts(measured: Sequence[Measured]) -> list[Part]:
    """The answers first, then the tables, then what was refused."""
    alone = [row for row in measured if not row.method and row.errors]
    split = [row for row in measured if row.method and row.errors]
    shown: list[Part] = [*_answer(alone, split)]
    if alone:
        title = "errors against fp64 in epsilons of the tensor's dtype: median, and what 99.9 % of its elements stay below"
        shown += ["", Table(title, ["kernel", "mask", "tokens", "dtype", *NAMES, "repeats"], list(map(_table_row, alone)))]
    if split:
        title = "methods: the 99.9 % error over that of one call, and in brackets the elements whose bits differ from it"
        shown += ["", Table(title, ["method", "ranks", "mask", "tokens", "dtype", *NAMES, "repeats"], list(map(_table_row, split)))]
    return [*shown, *_refusals(measured)]


def as_row(row: Measured) -> dict[str, object]:
    """A dictionary, with the same keys for every row."""
    flat: dict[str, object] = {
        "kernel": row.kernel, "method": row.method, "ranks": row.ranks, "mask": row.mask, "seqlen": row.seqlen,
        "dtype": row.dtype, "seed": row.seed, "repeats": row.repeats if row.errors else None, "refused": row.refused,
    }  # fmt: skip
    for name in NAMES:
        error, alone = (found.get(name) if found else None for found in (row.errors, row.alone))
        flat[f"{name}_median"] = error.median if error else None
        flat[f"{name}_far"] = error.far if error else None
        flat[f"{name}_far_of_one_call"] = alone.far if alone else None
        flat[f"{name}_changed"] = row.changed.get(name) if row.changed else None
    return flat


def _answer(alone: Sequence[Measured], split: Sequence[Measured]) -> list[str]:
    sentences = []
    if alone:
        grown = [factor for row in _longest(alone) if (factor := _growth(alone, row)) is not None]
        text = (
            f"{plural(len({row.kernel for row in alone}), 'kernel')}: 99.9 % of out is within {_span(_far(alone, 'out'))} epsilons of fp64"
        )
        text += f", of dq, dk and dv within {_span([x for name in NAMES[2:] for x in _far(alone, name)])}"
        sentences.append(f"{text}." if not grown else f"{text}; the error of out grows {median(grown):.2f}-fold when the length doubles.")
    if split:
        ratios = [_ratio(row, name) for row in split for name in NAMES if row.errors and name in row.errors]
        most = max((value for row in split for value in (row.changed or {}).values()), default=0.0)
        text = f"{plural(len({row.method for row in split}), 'method')} on up to {max(row.ranks for row in split)} ranks: "
        text += f"the 99.9 % error is {min(ratios):.2f} to {max(ratios):.2f} times that of one call (median {median(ratios):.2f})"
        sentences.append(f"{text}; up to {most:.0%} of the elements of a tensor have other bits.")
    other = [row for row in [*alone, *split] if not row.repeats]
    if alone or split:
        sentences.append("Every second call gave the same bits." if not other else f"Other bits in a second call: {_labels(other)}.")
    return sentences


def _far(rows: Iterable[Measured], name: str) -> list[float]:
    return [row.errors[name].far for row in rows if row.errors and name in row.errors]


def _span(values: Sequence[float]) -> str:
    least, most = f"{min(values):.2g}", f"{max(values):.2g}"
    return least if least == most else f"{least} to {most}"


def _longest(rows: Sequence[Measured]) -> list[Measured]:
    """One row of each kernel, mask and dtype."""
    return list({(row.kernel, row.mask, row.dtype): row for row in rows}.values())


def _growth(rows: Sequence[Measured], like: Measured) -> float | None:
    same = [row for row in rows if (row.kernel, row.mask, row.dtype) == (like.kernel, like.mask, like.dtype)]
    return growth([row.seqlen for row in same], _far(same, "out"))


def _ratio(row: Measured, name: str) -> float:
    assert row.errors is not None
    assert row.alone is not None
    return row.errors[name].far / row.alone[name].far if row.alone[name].far else 1.0 if not row.errors[name].far else float("inf")


def _table_row(row: Measured) -> list[str]:
    place = [row.method, str(row.ranks)] if row.method else [row.kernel]
    cells = [_cell(row, name) if row.errors and name in row.errors else "-" for name in NAMES]
    return [*place, row.mask, format_size(row.seqlen), row.dtype, *cells, "yes" if row.repeats else "no"]


def _cell(row: Measured, name: str) -> str:
    assert row.errors is not None
    if not row.method:
        return f"{row.errors[name].median:.2g} / {row.errors[name].far:.2g}"
    return f"{_ratio(row, name):.2f} ({row.changed[name]:.0%})" if row.changed and name in row.changed else "-"


def _refusals(measured: Iterable[Measured]) -> list[str]:
    """One line per reason."""
    by_reason = dict[tuple[str, str], list[str]]()
    for row in measured:
        if row.refused:
            by_reason.setdefault((_label(row), row.refused), []).append(row.mask)
    lines = [f"not measured: {label} on {', '.join(dict.fromkeys(names))}: {reason}" for (label, reason), names in by_reason.items()]
    return ["", *lines] if lines else []


def _label(row: Measured) -> str:
    return f"{row.method} on {row.ranks} ranks" if row.method else row.kernel


def _labels(rows: Iterable[Measured]) -> str:
    return ", ".join(dict.fromkeys(map(_label, rows)))
