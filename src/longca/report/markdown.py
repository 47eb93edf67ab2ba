"""The report as Markdown: headlines and how to reproduce them, every table of the page, what was not measured and why, and where."""

from __future__ import annotations

import math
from collections.abc import Sequence

from longca.report.terminal import failure_table, fastest_tables
from longca.results.export import NOISY, speed_tables
from longca.results.grouping import grouped, only_beside, timed_lines
from longca.results.groups import Group, Groups
from longca.results.naming import Row, Setting
from longca.results.points import MEMORY, point
from longca.results.problem import Pass
from longca.results.ranking import Ranking
from longca.results.ratio import CONFIDENCE, REPEATS
from longca.results.reading import Results
from longca.results.record import Environment, Record, Status
from longca.results.reproduce import command
from longca.results.statuses import explaining, why
from longca.results.summary import counts, worst_error
from longca.results.tables import (
    FEW,
    SpeedUnit,
    Table,
    code_block,
    escape_markdown,
    format_figure,
    markdown_section,
    speed_unit,
)
from longca.text import format_size

HEADLINES = (
    f"The fastest at the longest length. Kernels are equal (=) where the {CONFIDENCE:.0%} interval of the ratio of their times reaches "
    f"within {REPEATS:.0%} of 1. ~: noisy; {FEW}."
)
COMMANDS = "The command below each table measures the first of them again."
FACTS = ("device", "driver", "cpu", "cores", "threads", "system", "python", "longca", "commit")


def render(results: Results, groups: Groups, title: str) -> str:
    rows = groups.rows
    settings = {setting: own for setting, own in groups.settings.items() if not only_beside(own.rows, rows)}
    parts = [f"# {escape_markdown(title)}", f"{len(rows)} records: {counts(results.records)}.", "## Headlines", f"{HEADLINES} {COMMANDS}"]
    for setting, group in settings.items():
        parts += _headlines(setting, headlines(group), results)
    tables = [table for table in (*fastest_tables(groups), failure_table(rows)) if table.rows]
    parts += ["## Fastest and failed", *map(markdown_section, tables), "## Speeds", NOISY, *map(markdown_section, speed_tables(groups))]
    for section, make in SECTIONS.items():
        made = [
            table
            for setting, group in settings.items()
            for pass_, own in group.passes.items()
            if timed_lines(own.rows) and (table := make(f"{setting.title}, {pass_}", own)).rows
        ]
        parts += [f"## {section}", *map(markdown_section, made)] if made else []
    parts += ["## Environments", *(_environment(name, environment) for name, environment in results.environments.items())]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _environment(name: str, environment: Environment) -> str:
    facts = [[fact, str(value)] for fact in FACTS if (value := getattr(environment, fact)) is not None]
    return markdown_section(
        Table(name, ["fact", "value"], facts + [[package, version] for package, version in environment.packages.items()])
    )


def headlines(groups: Groups) -> list[Group]:
    """Per mask and pass the contest at the longest length at which kernels can be compared; masks in the order of the journal. What was
    simulated is never compared with what was measured."""
    lengths = groups.by(lambda contest: contest._replace(seqlen=0)).values()
    ranked = [several for own in lengths if (several := [group for group in own.measured if group.ranking.best])]
    longest = [max(several, key=lambda group: group.contest.seqlen) for several in ranked]
    panels, passes = list(dict.fromkeys(group.first.panel for group in longest)), list(Pass)
    return sorted(longest, key=lambda group: (panels.index(group.first.panel), passes.index(group.contest.pass_)))


def _headlines(setting: Setting, groups: Sequence[Group], results: Results) -> list[str]:
    """The table, with speeds in the unit that fits all of them, and the commands behind its rows."""
    if not groups:
        return []
    unit = speed_unit(group.ranking.standings[0].tflops for group in groups)
    columns = ["mask", "pass", "length", "fastest", unit.name, "of peak", "ahead of"]
    text = []
    for group in groups:
        best = group.ranking.standings[0]
        commands = _commands(best.records, results)
        title = f"{group.first.panel}, {group.contest.pass_}: {best.line}"
        text += [f"# {' '.join(title.split())}", *commands] if commands else []
    table = markdown_section(Table(setting.title, columns, [headline(group, unit) for group in groups]))
    return [table, *([code_block("\n".join(text))] if text else [])]


def headline(group: Group, unit: SpeedUnit) -> list[str]:
    """The best kernel of a contest and all that are as fast, its speed (of several masks all work over all time, and the range), its share
    of the peak, and how far ahead of the next one it is."""
    ranking, best = group.ranking, group.ranking.standings[0]
    length = format_size(group.contest.seqlen) + (f" (as {group.same})" if group.same else "")
    low, high = map(unit.text, best.speeds)
    speed = unit.text(best.tflops) + (f" ({low} to {high})" if len(best.figures) > 1 else "")
    peak = "" if (share := best.whole.mfu) is None else f"{100 * share:.0f} %"
    return [group.first.panel, group.contest.pass_.value, length, _fastest(ranking), speed, peak, _ahead(ranking)]


def _fastest(ranking: Ranking) -> str:
    return " = ".join(standing.title for standing in ranking.equals)


def _ahead(ranking: Ranking) -> str:
    if ranking.next is None:
        return "no other" if len(ranking.standings) > 1 else "the only one"
    times = 1 / ranking.next.against_best
    return f"{times:.{3 if times < 1.1 else 2}f}× {ranking.next.title}"  # 1.03 would look like 3 %


def _commands(records: Sequence[Record], results: Results) -> list[str]:
    """The commands that measure these records again: one for all seeds, but one for each list of documents that was given."""
    seeds = sorted({record.problem.seed for record in records})
    commands = (command(record, results.environment(record), results.masks, seeds) for record in records)
    return [text for text in dict.fromkeys(commands) if text]


def _accuracy(title: str, groups: Groups) -> Table:
    """A row for each mask, a column for each kernel."""
    rows, cells = groups.rows, grouped(groups.rows, lambda row: (row.panel, row.line))
    lines = sorted({row.line for row in rows if row.record.status in (Status.OK, Status.WRONG)})
    texts = [[panel, *(_error(cells.get((panel, line), [])) for line in lines)] for panel in dict.fromkeys(row.panel for row in rows)]
    return Table(f"{title} (worst error as a share of the tolerance)", ["mask", *lines], texts)


def _error(rows: list[Row]) -> str:
    wrong = [row for row in rows if row.record.status is Status.WRONG]
    worst = worst_error(wrong or [row for row in rows if row.same is None])  # a kernel that can do only the simpler mask runs there too
    if wrong and (worst is None or worst.share <= 1):  # no tensor was off: it changed its inputs, or gave something else the second time
        record = wrong[0].record
        return f"wrong: {' '.join(record.reason.split()) or 'no reason is known'} ({format_size(record.problem.seqlen)})"
    if worst is None:
        return why(rows) if explaining(rows) else f"= {rows[0].same}" if rows and rows[0].same else ""
    share = f"{100 * worst.share:.0f} %" if math.isfinite(worst.share) else "no number"
    return f"{'wrong: ' if wrong else ''}{share} ({worst.tensor}, {format_size(worst.row.record.problem.seqlen)})"


def _memory(title: str, groups: Groups) -> Table:
    """The most of any mask by length; each block pattern by itself, as the size of its blocks matters."""
    own = [row for row in groups.rows if row.record.ok and row.record.peak_gib]
    lengths = sorted({row.record.problem.seqlen for row in own})
    cells = []
    for (mask, line), group in grouped(own, lambda row: (row.panel if row.is_pattern or row.record.method else "any", row.line)).items():
        most = {n: point(here, MEMORY) for n, here in grouped(group, lambda row: row.record.problem.seqlen).items()}
        cells.append([mask, line, *(format_figure(found.value) if (found := most.get(seqlen)) else "" for seqlen in lengths)])
    title = f"{title} (GiB beyond the inputs, the most of the masks measured at each length)"
    return Table(title, ["mask", "kernel", *map(format_size, lengths)], cells)


SECTIONS = {"Accuracy": _accuracy, "Memory": _memory}
