"""The tables of the Markdown report: headlines, and per kernel the share of peak, errors, memory and preparing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from longca.bench.summary import Table
from longca.bench.summary import speed as number
from longca.report import PRACTICAL
from longca.report.measures import at_longest, best_share, fastest_of_masks, grouped, peak_known, timed, word, worst_error
from longca.report.reading import Drawn, Record
from longca.report.reproduce import command
from longca.report.settings import PASSES
from longca.text import format_size

SECTIONS = ("Share of peak", "Accuracy", "Memory", "Preparing")


class Headline(NamedTuple):
    """The fastest kernels on a mask at its longest length (a difference that does not matter is none), and the records of the first."""

    mask: str
    which: str
    length: str
    lines: str
    tflops: float
    peak: float | None
    ahead: str
    records: list[Record]

    @property
    def row(self) -> list[str]:
        peak = "" if self.peak is None else f"{100 * self.peak:.0f} %"
        return [self.mask, self.which, self.length, self.lines, number(self.tflops), peak, self.ahead]

    def commands(self, environments: Mapping[str, Record], drawn: Drawn) -> list[str]:
        """What measures it again: once for all seeds, but for each list of documents that was given."""
        seeds = sorted({record["seed"] for record in self.records})
        found = (command(record, environments, drawn, seeds) for record in self.records)
        return [text for text in dict.fromkeys(found) if text]


def headlines(records: Sequence[Record]) -> list[Headline]:
    """Per mask and pass. What was simulated is never ahead of, or behind, what was measured."""
    marked = [record | {"simulated": record.get("simulated")} for record in records if record["status"] == "ok"]
    found = []
    for group in grouped(marked, "problem", "simulated").values():
        for which in PASSES:
            own = [record for record in group if record["pass"] == which]
            if own:
                found.append(_headline(at_longest(own, "problem")))
    return found


def _headline(records: Sequence[Record]) -> Headline:
    """Of the kernels that were measured on as many masks as any was."""
    lines = grouped(records, "line")
    seen = {line: {record["mask_digest"] for record in own} for line, own in lines.items()}
    shared = max(seen.values(), key=len)
    speeds = {line: median(record["tflops"] for record in own) for line, own in lines.items() if seen[line] >= shared}
    best, *others = sorted(speeds, key=lambda line: -speeds[line])
    equal = [best, *(line for line in others if speeds[best] <= speeds[line] * (1 + PRACTICAL))]
    slower = others[len(equal) - 1 :]
    marked = {line: f"{line} ~" if any(record["noisy"] for record in own) else line for line, own in lines.items()}
    names = ", ".join(marked[line] for line in equal) + (f" within {100 * PRACTICAL:.0f} %" if len(equal) > 1 else "")
    first, own = records[0], lines[best]
    same = f" (as {first['same']})" if first["same"] else ""
    shares = [record["mfu"] for record in own if record.get("mfu") is not None]
    times = speeds[best] / speeds[slower[0]] if slower else 0.0
    ahead = f"{times:.{3 if times < 1.1 else 2}f}× {marked[slower[0]]}" if slower else "no other" if others else "the only one"
    peak = median(shares) if shares else None
    return Headline(first["problem"], first["pass"], format_size(first["seqlen"]) + same, names, speeds[best], peak, ahead, own)


def headline_table(title: str, found: Sequence[Headline]) -> Table:
    return Table(title, ["mask", "pass", "length", "fastest", "TFLOP/s", "of peak", "ahead of"], [headline.row for headline in found])


def tables(setting: str, records: Sequence[Record]) -> dict[str, list[Table]]:
    """By section, for one setting."""
    found: dict[str, list[Table]] = {section: [] for section in SECTIONS}
    for which in PASSES:
        own = [record for record in records if record["pass"] == which]
        if not timed(own):
            continue
        title = f"{setting}, {which}"
        found["Share of peak"].append(_shares(title, own))
        found["Accuracy"].append(_by_mask(f"{title} (worst error as a share of what is allowed)", own, _error, ("ok", "wrong")))
        found["Memory"].append(_memory(f"{title} (GiB beyond the inputs)", own))
        found["Preparing"].append(_preparing(f"{title} (ms: median, most)", own))
    return {section: [table for table in several if table.rows] for section, several in found.items()}


def _by_mask(title: str, records: Sequence[Record], cell: Callable[[list[Record]], str], kept: Sequence[str] = ("ok",)) -> Table:
    """A row for each mask, a column for each kernel."""
    lines = sorted({record["line"] for record in records if record["status"] in kept})
    cells = grouped(records, "problem", "line")
    rows = [[mask, *(cell(cells.get((mask, line), [])) for line in lines)] for mask in grouped(records, "problem")]
    return Table(title, ["mask", *lines], rows)


def _shares(title: str, records: Sequence[Record]) -> Table:
    fastest = None if peak_known(records) else fastest_of_masks(records)

    def cell(found: list[Record]) -> str:
        share = best_share(found, fastest)
        failed = sorted((record for record in found if record["status"] != "ok"), key=lambda record: record["status"] != "wrong")
        if share is None or (failed and failed[0]["status"] == "wrong"):
            return word(failed) if failed or not found else f"= {found[0]['same']}"
        return f"{100 * share:.{int(share < 0.1)}f} %"

    of = "the device's peak" if fastest is None else "the fastest kernel's speed"
    return _by_mask(f"{title} (share of {of}, best of all lengths)", records, cell)


def _error(found: list[Record]) -> str:
    wrong = [record for record in found if record["status"] == "wrong"]
    worst = worst_error(wrong or (record for record in found if not record["same"]))
    if wrong and (worst is None or worst.share <= 1):  # no tensor was off: it changed its inputs, or gave something else the second time
        reason = " ".join(wrong[0]["reason"].split()) or "no reason is known"
        return f"wrong: {reason} ({format_size(wrong[0]['seqlen'])})"
    if worst is None:
        failed = [record for record in found if record["status"] != "ok"]
        return word(failed) if failed else f"= {found[0]['same']}" if found and found[0]["same"] else ""
    share = f"{100 * worst.share:.0f} %" if math.isfinite(worst.share) else "no number"
    return f"{'wrong: ' if wrong else ''}{share} ({worst.tensor}, {format_size(worst.record['seqlen'])})"


def _memory(title: str, records: Sequence[Record]) -> Table:
    """The most of any mask by length; block patterns each for itself, as the size of their blocks matters."""
    own = [
        record | {"of": record["problem"] if record["sparse"] or record.get("ranks") else "any"}
        for record in records
        if record.get("peak_gib")
    ]
    lengths = sorted(grouped(own, "seqlen"))
    rows = []
    for (mask, line), group in grouped(own, "of", "line").items():
        most = {seqlen: max(record["peak_gib"] for record in here) for seqlen, here in grouped(group, "seqlen").items()}
        rows.append([mask, line, *(number(most[seqlen]) if seqlen in most else "" for seqlen in lengths)])
    return Table(title, ["mask", "kernel", *map(format_size, lengths)], rows)


def _preparing(title: str, records: Sequence[Record]) -> Table:
    """Of compiling only the most: what was compiled for one cell serves the next."""
    own = [record for record in records if record["status"] == "ok" and not record.get("simulated")]
    rows = []
    for line, group in sorted(grouped(own, "line").items()):
        rows.append(
            [line, _typical(group, "build_ms"), _typical(group, "plan_ms"), number(max(record.get("compile_ms") or 0 for record in group))]
        )
    return Table(title, ["kernel", "making the mask", "planning", "compiling (most)"], rows)


def _typical(records: Sequence[Record], field: str) -> str:
    values: list[Any] = [record[field] for record in records if record.get(field) is not None]
    return f"{number(median(values))}, {number(max(values))}" if values else ""
