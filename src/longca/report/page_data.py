"""The data of the page. Every verdict in it comes from `results/`; the page's scripts draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from longca import __version__
from longca.report.looks import line_groups, numbers
from longca.report.page_settings import setting_data
from longca.report.pictures import pictures
from longca.results.cells import STATES
from longca.results.export import columns
from longca.results.grouping import only_beside
from longca.results.groups import STEPS, Groups
from longca.results.limits import Limits
from longca.results.naming import Row, Setting
from longca.results.problem import Pass
from longca.results.ratio import CONFIDENCE, REPEATS
from longca.results.reading import Results
from longca.results.record import NEVER_RAN, Environment
from longca.results.reproduce import command
from longca.results.statuses import WORDS
from longca.results.summary import counts
from longca.text import format_extras, format_heads

PASS_WORDS = {Pass.FWD: "forward", Pass.BWD: "backward", Pass.BOTH: "forward and backward"}
LEFT_OUT = ("schema", "key", "torch", "commit")  # of no use to a reader, or shown with the environment


def page_data(results: Results, grouping: Groups, title: str, folders: Sequence[str] = ()) -> dict[str, Any]:
    """The data of the page; records are known by their number."""
    rows, settings = grouping.rows, grouping.settings
    records = {record.key: number for number, record in enumerate(results.records)}
    limits = Limits(results)
    return {
        "title": title,
        "count": len(rows),
        "about": f"{len(rows)} records ({counts(results.records)}) from {', '.join(folders)}; written by longca {__version__}.",
        "confidence": f"{100 * CONFIDENCE:.0f} %",
        "repeats": f"{100 * REPEATS:.0f} %",
        "statuses": [[status, words, status in NEVER_RAN] for status, words in WORDS.items()],
        "states": [state.value for state in STATES],
        "passes": list(PASS_WORDS.items()),
        "steps": STEPS,
        "fields": _fields(results),
        "names": _names(results, rows),
        "looks": _looks(rows),
        "settings": [
            setting_data(own, rows, limits, records, pictures(own.rows, results.masks), _place(results, own)) for own in settings.values()
        ],
        "start": _start(settings, rows),
        "environments": [_environment(name, environment) for name, environment in results.environments.items()],
    }


def _place(results: Results, groups: Groups) -> str:
    """What a rank runs on."""
    return "rank" if results.environment(groups.rows[0].record).on_cpu else "GPU"


def _start(settings: dict[Setting, Groups], rows: Sequence[Row]) -> int:
    """The number of the setting that the journals are about: the most times, and no dense mask measured only beside block patterns."""
    sizes = [sum([row.record.ok for row in own.rows]) * (not only_beside(own.rows, rows)) for own in settings.values()]
    return sizes.index(max(sizes)) if sizes else 0


def _fields(results: Results) -> list[tuple[str, list[Any]]]:
    """The fields of all records as columns, without those that are None in all of them."""
    table = columns(results).items()
    return [(name, own) for name, own in table if name not in LEFT_OUT and own.count(None) < len(own)]


def _names(results: Results, rows: Sequence[Row]) -> list[tuple[str, list[Any]]]:
    """What names records on the page and is no field of theirs, as columns: setting, line, mask, shape, and the command."""
    settings = {setting: number for number, setting in enumerate(dict.fromkeys([row.contest.setting for row in rows]))}
    heads = {setting: _heads(setting) for setting in settings}
    return [
        ("setting", [settings[row.contest.setting] for row in rows]),
        ("line", [row.line for row in rows]),
        ("panel", [row.panel for row in rows]),
        ("same", [row.same for row in rows]),
        ("heads", [heads[row.contest.setting] for row in rows]),
        ("command", [command(row.record, results.environment(row.record), results.masks) for row in rows]),
    ]


def _heads(setting: Setting) -> str:
    operator, shape = setting.operator, msgspec.structs.asdict(setting.operator)
    own = "" if operator.head_dim == operator.head_dim_v else f"/{operator.head_dim_v}"
    return " ".join([f"{format_heads(shape)}×{operator.head_dim}{own}", *format_extras(shape)])


def _looks(rows: Sequence[Row]) -> list[tuple[str, int, int, bool]]:
    """For each line its number, its turn among the lines of one kernel (over ranks), and whether it was simulated."""
    number = numbers(line_groups(rows))
    lines = {(row.series, row.line): row for row in rows}
    looks: dict[str, tuple[str, int, int, bool]] = {}
    turns: dict[str, int] = {}
    for row in sorted(lines.values(), key=lambda row: row.record.problem.ranks):
        turn = turns.setdefault(row.series, 0)
        for name in (row.series, row.line):
            looks.setdefault(name, (name, number[row.base], turn if name == row.line else 0, row.record.simulated is not None))
        turns[row.series] = turn + 1
    return list(looks.values())


def _environment(name: str, environment: Environment) -> list[Any]:
    """The key of an environment, its title, and its facts with nested ones in their own lines."""
    facts: list[tuple[str, Any]] = []
    for key, value in msgspec.structs.asdict(environment).items():
        facts += [(f"{key}.{inner}", one) for inner, one in value.items()] if isinstance(value, dict) else [(key, value)]
    return [name, f"{environment.name} ({name})", facts]
