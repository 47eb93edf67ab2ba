"""The data of the page. Every verdict in it comes from `results/` and `compare/`; the page's scripts draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from longca import __version__
from longca.compare import words
from longca.compare.changes import changes
from longca.compare.verdicts import Verdict
from longca.report.encoding import Values, column, in_array, joined, rounded
from longca.report.looks import SIMULATED, base_of, line_groups, numbers
from longca.report.page_cells import PageCell, encoded, record_numbers
from longca.report.page_settings import STATES, setting_data
from longca.report.pictures import Pictures
from longca.report.timelines import Timeline
from longca.results.answers import STEPS
from longca.results.dense import only_beside
from longca.results.export import column_chunks
from longca.results.limits import Limits
from longca.results.naming import Row, Setting
from longca.results.points import grouped
from longca.results.ranking import NOISE_EXPLAINS, PRACTICAL
from longca.results.reading import Results
from longca.results.record import NEVER_RAN, Environment, Pass, Record
from longca.results.reproduce import Commands
from longca.results.statuses import WORDS
from longca.results.summary import counts
from longca.text import format_extras, format_heads, printable

PASS_WORDS = {Pass.FWD: "forward", Pass.BWD: "backward", Pass.BOTH: "forward and backward"}
LEFT_OUT = ("schema", "key", "torch", "commit")  # of no use to a reader, or shown with the environment
COMMAND_PARTS = 5
CHANGED = (Verdict.BROKEN, Verdict.SLOWER, Verdict.FASTER, Verdict.MENDED)
MOST_CHANGES = 200  # cells that are listed; the rest is counted


def page_data(
    results: Results, rows: Sequence[Row], title: str, folders: Sequence[str] = (), timelines: Sequence[Timeline] = ()
) -> dict[str, Any]:
    """The data of the page; records are known by their number."""
    groups = grouped(rows, lambda row: row.setting)
    records, limits = record_numbers(results.records), Limits(results)
    settings, cells, pictures = list[dict[str, Any]](), list[PageCell](), Pictures(results.masks)
    for number, group in enumerate(groups.values()):
        place = "rank" if results.environment(group[0].record).on_cpu else "GPU"
        data, own = setting_data(number, group, rows, limits, records, pictures.numbers(group), place)
        settings.append(data)
        cells += own
    return {
        "title": title,
        "count": len(rows),
        "about": f"{len(rows)} records ({counts(results.records)}) from {', '.join(folders)}; written by longca {__version__}.",
        "practical": f"{100 * PRACTICAL:.0f} %",
        "noise": f"{100 * NOISE_EXPLAINS:.0f} %",
        "statuses": [[status, words, status in NEVER_RAN] for status, words in WORDS.items()],
        "states": [state.value for state in STATES],
        "passes": list(PASS_WORDS.items()),
        "steps": STEPS,
        "fields": _fields(results),
        "names": [[name, *column(values)] for name, values in _names(results, rows).items()],
        "looks": _looks(rows),
        "settings": settings,
        "start": _start(groups, rows),
        "cells": encoded(cells),
        "changes": _changes(results, records),
        "environments": [_environment(name, environment) for name, environment in results.environments.items()],
        "pictures": pictures.drawn,
        "timelines": [timeline.data for timeline in timelines],
    }


def _start(groups: dict[Setting, list[Row]], rows: Sequence[Row]) -> int:
    """The number of the setting that the journals are about: the most times, and no dense mask measured only beside block patterns."""
    sizes = [sum(row.record.ok for row in group) * (not only_beside(group, rows)) for group in groups.values()]
    return sizes.index(max(sizes)) if sizes else 0


def _changes(results: Results, records: dict[int, int]) -> dict[str, Any]:
    """How many cells got which verdict, and those that changed: [verdict, record, time before, ratio of times, why, versions]."""
    found = changes(results)
    listed = [cell for cell in found if cell.verdict in CHANGED]
    return {
        "counts": [[verdict.lower(), len(own)] for verdict, own in grouped(found, lambda cell: cell.verdict.value).items()],
        "cells": [
            [
                cell.verdict.lower(),
                records[id(cell.after)],
                rounded(cell.before.times.median) if cell.before.ok else None,
                None if cell.ratio is None else rounded(cell.ratio.value),
                printable(words.why(cell.why)),
                _versions(cell.before),
                _versions(cell.after),
            ]
            for cell in listed[:MOST_CHANGES]
        ],
        "more": max(0, len(listed) - MOST_CHANGES),
    }


def _versions(record: Record) -> str:
    return ", ".join(f"{name} {version}" for name, version in (record.versions or {}).items())


def _fields(results: Results) -> list[list[Any]]:
    """The fields of all records as columns, without those that are None in all of them."""
    parts: dict[str, list[Values]] = {}
    for chunk in column_chunks(results):
        for name, values in chunk.items():
            parts.setdefault(name, []).append(in_array(values))
    columns = [[name, *column(joined(own))] for name, own in parts.items() if name not in LEFT_OUT]
    return [encoded for encoded in columns if encoded[1] != [None]]


def _names(results: Results, rows: Sequence[Row]) -> dict[str, list[Any]]:
    """What names records on the page and is no field of theirs: line, mask, shape, and the command in parts that many records share."""
    maker = Commands(results.environments, results.masks)
    commands = [maker.parts(row.record) or ("",) * COMMAND_PARTS for row in rows]
    heads = {setting: _heads(setting) for setting in {row.setting for row in rows}}
    settings = {setting: number for number, setting in enumerate(dict.fromkeys(row.setting for row in rows))}
    names: dict[str, list[Any]] = {
        "setting": [settings[row.setting] for row in rows],
        "line": [row.line for row in rows],
        "panel": [row.panel for row in rows],
        "same": [row.same for row in rows],
        "heads": [heads[row.setting] for row in rows],
    }
    return names | {f"command{part}": [words[part] for words in commands] for part in range(COMMAND_PARTS)}


def _heads(setting: Setting) -> str:
    own, shape = "" if setting.head_dim == setting.head_dim_v else f"/{setting.head_dim_v}", msgspec.structs.asdict(setting)
    return " ".join([f"{format_heads(shape)}×{setting.head_dim}{own}", *format_extras(shape)])


def _looks(rows: Sequence[Row]) -> list[tuple[str, int, int, bool]]:
    """For each line its number, its turn among the lines of one kernel (over ranks), and whether it was simulated."""
    number = numbers(line_groups(rows))
    ranks = {(row.series, row.line): row.record.ranks or 0 for row in rows}
    looks: dict[str, tuple[str, int, int, bool]] = {}
    turns: dict[str, int] = {}
    for series, line in sorted(ranks, key=lambda names: ranks[names]):
        for name in (series, line):
            if name not in looks:
                turn = turns.setdefault(series, 0) if name == line else 0
                looks[name] = name, number[base_of(series)], turn, SIMULATED in name
        turns[series] = turns.get(series, 0) + 1
    return list(looks.values())


def _environment(name: str, environment: Environment) -> list[Any]:
    """The key of an environment, its title, and its facts with nested ones in their own lines."""
    facts: list[tuple[str, Any]] = []
    for key, value in msgspec.structs.asdict(environment).items():
        facts += [(f"{key}.{inner}", one) for inner, one in value.items()] if isinstance(value, dict) else [(key, value)]
    return [name, f"{environment.name} ({name})", facts]
