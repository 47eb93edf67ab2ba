"""The report as Markdown: headlines and how to reproduce them, every table of the page, what was not measured and why, and where."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from longca.bench.export import to_markdown
from longca.bench.summary import Table, counts, fastest
from longca.report import PRACTICAL
from longca.report.gather import Gathered
from longca.report.measures import described, only_beside
from longca.report.reading import Drawn, Record
from longca.report.settings import by_setting
from longca.report.tables import SECTIONS, Headline, headline_table, headlines, tables
from longca.report.unmeasured import not_measured

HEADLINES = (
    f"The fastest at the longest length; kernels within {PRACTICAL:.0%} of it are equal, and `~` marks noisy ones. "
    "Below each table stands what measures the first of them again."
)
FACTS = ("device", "driver", "cpu", "cores", "threads", "system", "python", "longca", "commit")


def render(found: Gathered, title: str) -> str:
    records, environments = found.records, found.environments
    named = described(found)
    settings = {name: group for name, group in by_setting(named, environments).items() if not only_beside(group, named)}
    parts = [f"# {escaped(title)}", f"{len(records)} records: {counts(records)}.", "## Headlines", HEADLINES]
    for setting, group in settings.items():
        parts += _headlines(setting, headlines(group), environments, found.masks)
    parts += ["## Fastest and failed", *(_table(table) for table in [*fastest(records), not_measured(records)] if table.rows)]
    parts += ["## Speeds", to_markdown([_safe(record) for record in records], environments)]
    contents = [tables(setting, group) for setting, group in settings.items()]
    for section in SECTIONS:
        own = [table for content in contents for table in content[section]]
        parts += [f"## {section}", *map(_table, own)] if own else []
    parts.append("## Environments")
    for name, facts in environments.items():
        rows = [[fact, str(facts[fact])] for fact in FACTS if facts.get(fact) is not None]
        rows += [[package, str(version)] for package, version in (facts.get("packages") or {}).items()]
        parts.append(_table(Table(name, ["fact", "value"], rows)))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _headlines(setting: str, found: Sequence[Headline], environments: Mapping[str, Record], drawn: Drawn) -> list[str]:
    """The table, and the command behind each row, to be copied."""
    if not found:
        return []
    lines = []
    for headline in found:
        commands = headline.commands(environments, drawn)
        if commands:
            about = f"{headline.mask}, {headline.which}: {headline.records[0]['line']}"
            lines += [f"# {' '.join(about.split())}", *commands]  # in one line, whatever a kernel is called
    return [_table(headline_table(setting, found)), *([_fenced("\n".join(lines))] if lines else [])]


def _fenced(text: str) -> str:
    """Nothing in it can end the block: its fence is longer than any row of backticks there."""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{fence}sh\n{text}\n{fence}"


def escaped(text: str) -> str:
    """Text that stays text in a Markdown table: no cell ends, no element begins, no line breaks."""
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("\n", " ")):
        text = text.replace(character, entity)
    return text


def _safe(record: Record) -> Record:
    names = ("kernel", "variant", "mask", "dtype", "pass")
    return record | {name: escaped(record[name]) for name in names if record[name] is not None}


def _table(table: Table) -> str:
    columns = [escaped(column) for column in table.columns]
    lines = [f"### {escaped(table.title)}", "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(escaped, row))} |" for row in table.rows)])
