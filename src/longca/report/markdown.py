"""The report as Markdown: who is fastest, every speed, what was not measured and why, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longca.bench.export import to_markdown
from longca.bench.summary import Table, counts, failures, fastest
from longca.report.reading import Record

FACTS = ("device", "driver", "cpu", "cores", "threads", "system", "python", "longca", "commit")


def render(records: Sequence[Record], environments: Mapping[str, Record], title: str) -> str:
    tables = [*fastest(records), failures(records)]
    parts = [f"# {escaped(title)}", f"{len(records)} records: {counts(records)}."]
    parts += ["## Fastest and failed", *(_table(table) for table in tables if table.rows)]
    parts += ["## Speeds", to_markdown([_safe(record) for record in records], environments), "## Environments"]
    for name, facts in environments.items():
        rows = [[fact, str(facts[fact])] for fact in FACTS if facts.get(fact) is not None]
        rows += [[package, str(version)] for package, version in (facts.get("packages") or {}).items()]
        parts.append(_table(Table(name, ["fact", "value"], rows)))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def escaped(text: str) -> str:
    """Text that stays text in a Markdown table: no cell ends, no element begins, no line breaks."""
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("\n", " ")):
        text = text.replace(character, entity)
    return text


def _safe(record: Record) -> Record:
    names = ("kernel", "variant", "mask", "dtype", "pass")
    return record | {name: escaped(record[name]) for name in names if record[name] is not None}


def _table(table: Table) -> str:
    lines = [f"### {escaped(table.title)}", "", f"| {' | '.join(table.columns)} |", f"|{'---|' * len(table.columns)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(escaped, row))} |" for row in table.rows)])
