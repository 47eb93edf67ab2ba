"""What the page draws, as plain data. Every number in it comes from `results/`; the page's scripts compute none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from longca import __version__
from longca.report import sections
from longca.report.encoding import column
from longca.report.looks import SIMULATED, base_of, line_groups, numbers
from longca.report.pictures import pictures
from longca.results.export import raw_columns
from longca.results.naming import Row
from longca.results.points import grouped
from longca.results.ranking import PRACTICAL
from longca.results.reading import Results
from longca.results.record import NEVER_RAN, Environment, Pass
from longca.results.reproduce import Commands
from longca.results.statuses import LETTERS, LETTERS_EXPLAINED, WORDS
from longca.results.summary import HEADLINE_COLUMNS, Headline, counts, headlines
from longca.text import format_extras, format_heads

PASS_WORDS = {Pass.FWD: "forward", Pass.BWD: "backward", Pass.BOTH: "forward and backward"}
LEFT_OUT = ("schema", "key", "torch", "commit")  # of no use to a reader, or shown with the environment
COMMAND_PARTS = 5


def page_data(results: Results, rows: Sequence[Row], title: str, folders: Sequence[str] = ()) -> dict[str, Any]:
    """The data of the page; records are known by their number."""
    settings = grouped(rows, lambda row: row.setting)
    place = {setting: number for number, setting in enumerate(settings)}
    fields = raw_columns(results, without=LEFT_OUT)
    records = {id(row): number for number, row in enumerate(rows)}
    return {
        "title": title,
        "count": len(rows),
        "about": f"{len(rows)} records ({counts(results.records)}) from {', '.join(folders)}; written by longca {__version__}.",
        "practical": f"{100 * PRACTICAL:.0f} %",
        "statuses": [[status, LETTERS.get(status, ""), words, status in NEVER_RAN] for status, words in WORDS.items()],
        "letters": LETTERS_EXPLAINED,
        "passes": list(PASS_WORDS.items()),
        "headlineColumns": HEADLINE_COLUMNS,
        "headlines": [headline_data(line, place[line.contest.setting]) for line in headlines(rows)],
        "fields": [[name, *column(values)] for name, values in fields.items() if values.count(None) < len(values)],
        "names": [[name, *column(values)] for name, values in _names(results, rows).items()],
        "looks": _looks(rows),
        "settings": [sections.setting_data(setting.title, group, rows, records) for setting, group in settings.items()],
        "environments": [_environment(name, environment) for name, environment in results.environments.items()],
        "pictures": list(pictures(rows, results.masks).items()),
    }


def headline_data(headline: Headline, setting: int) -> dict[str, Any]:
    """One headline: the cells as they are shown, and the same for programs."""
    behind, best = headline.ranking.next, headline.best
    return {
        "setting": setting,
        "cells": headline.row,
        "mask": headline.panel,
        "pass": headline.contest.pass_,
        "seqlen": headline.contest.seqlen,
        "simulated": headline.contest.simulated,
        "fastest": [standing.line for standing in headline.ranking.equals],
        "tflops": best.tflops,
        "next": None if behind is None else behind.line,
        "ahead": None if behind is None else 1 / behind.against_best,
    }


def _names(results: Results, rows: Sequence[Row]) -> dict[str, list[Any]]:
    """What names records on the page and is no field of theirs: line, mask, shape, and the command in parts that many records share."""
    maker = Commands(results.environments, results.masks)
    commands = [maker.parts(row.record) or ("",) * COMMAND_PARTS for row in rows]
    heads: dict[Any, str] = {setting: _heads(setting) for setting in {row.setting for row in rows}}
    names: dict[str, list[Any]] = {
        "line": [row.line for row in rows],
        "panel": [row.panel for row in rows],
        "same": [row.same for row in rows],
        "heads": [heads[row.setting] for row in rows],
    }
    return names | {f"command{part}": [words[part] for words in commands] for part in range(COMMAND_PARTS)}


def _heads(setting: Any) -> str:
    own = "" if setting.head_dim == setting.head_dim_v else f"/{setting.head_dim_v}"
    return " ".join([f"{format_heads(setting._asdict())}×{setting.head_dim}{own}", *format_extras(setting._asdict())])


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


def _environment(name: str, environment: Environment) -> tuple[str, list[tuple[str, Any]]]:
    """The title of an environment, and its facts with nested ones in their own lines."""
    facts: list[tuple[str, Any]] = []
    for key, value in msgspec.structs.asdict(environment).items():
        facts += [(f"{key}.{inner}", one) for inner, one in value.items()] if isinstance(value, dict) else [(key, value)]
    return f"{environment.name} ({name})", facts
