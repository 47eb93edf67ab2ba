"""The tables of the Markdown report: headlines, and per kernel the share of peak, errors, memory and preparing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from longca.bench.summary import Table
from longca.bench.summary import speed as number
from longca.report import PRACTICAL
from longca.report.measures import (
    Share,
    at_longest,
    best_share,
    fastest_of_masks,
    grouped,
    longest_timed,
    peak_known,
    percent,
    timed,
    untimed,
    word,
    worst_error,
)
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
        found["Memory"].append(_memory(f"{title} (GiB beyond the inputs, the most of the masks measured at each length)", own))
        found["Preparing"].append(_preparing(f"{title} (ms: median, most)", own))
    return {section: [table for table in several if table.rows] for section, several in found.items()}


def _by_mask(title: str, records: Sequence[Record], cell: Callable[[list[Record]], str], kept: Sequence[str] = ("ok",)) -> Table:
    """A row for each mask, a column for each kernel."""
    lines = sorted({record["line"] for record in records if record["status"] in kept})
    cells = grouped(records, "problem", "line")
    rows = [[mask, *(cell(cells.get((mask, line), [])) for line in lines)] for mask in grouped(records, "problem")]
    return Table(title, ["mask", *lines], rows)


def _shares(title: str, records: Sequence[Record]) -> Table:
    """At the longest length; the best of all lengths beside it where that is another."""
    known, lines, everywhere = peak_known(records), timed(records), grouped(records, "problem", "line")
    rows = []
    for mask, (seqlen, own) in longest_timed(records).items():
        fastest, here = None if known else fastest_of_masks(own), grouped(own, "line")
        best = {line: best_share(everywhere.get((mask, line), []), None) for line in lines}
        cells = [_share(here.get(line, []), fastest, best[line], seqlen) for line in lines]
        rows.append([f"{mask}, {format_size(seqlen)}", *cells])
    of = "the device's peak" if known else "the fastest kernel's speed"
    return Table(f"{title} (share of {of} at the longest length)", ["mask", *lines], rows)


def _share(found: list[Record], fastest: Mapping[Any, float] | None, best: Share | None, seqlen: int) -> str:
    share = best_share(found, fastest)
    if untimed(found) == "wrong":
        return word(found)
    text = percent(share.value) if share else word(found) if untimed(found) or not found else f"= {found[0]['same']}"
    better = best and best.seqlen != seqlen and (share is None or best.value > share.value * (1 + PRACTICAL))
    return f"{text} (best {percent(best.value)} at {format_size(best.seqlen)})" if best and better else text


def _error(found: list[Record]) -> str:
    wrong = [record for record in found if record["status"] == "wrong"]
    worst = worst_error(wrong or (record for record in found if not record["same"]))
    if wrong and (worst is None or worst.share <= 1):  # no tensor was off: it changed its inputs, or gave something else the second time
        reason = " ".join(wrong[0]["reason"].split()) or "no reason is known"
        return f"wrong: {reason} ({format_size(wrong[0]['seqlen'])})"
    if worst is None:
        return word(found) if untimed(found) else f"= {found[0]['same']}" if found and found[0]["same"] else ""
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
