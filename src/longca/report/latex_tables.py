"""What the LaTeX tables hold, as plain text: the fastest kernels and every speed, by setting and pass. Captions explain every mark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from longca.report.page_data import PASS_WORDS
from longca.report.terminal import contest_title, fastest_in_short
from longca.results.dense import only_beside
from longca.results.export import UNSUPPORTED
from longca.results.naming import Contest, Row, contests
from longca.results.points import by_pass, grouped
from longca.results.ranking import NOISE_EXPLAINS, PRACTICAL
from longca.results.statuses import LETTER_WORDS, LETTERS, NOT_RUN
from longca.results.summary import Headline, headlines, typical_speeds
from longca.results.tables import SpeedUnit, speed_unit
from longca.text import format_size, slug

DASH = "--"
SIGNS = {status.value: DASH if letter == "X" else letter for status, letter in LETTERS.items()}  # instead of words: columns stay narrow
SIGN_WORDS = {DASH if letter == "X" else letter: words for letter, words in LETTER_WORDS.items()}
NOISY = "noisy, as sampling ended before the median reached the target precision"
EQUAL = f"within {100 * PRACTICAL:.0f}\u00a0%, or within {100 * NOISE_EXPLAINS:.0f}\u00a0% with overlapping spreads"
_MASKS = re.compile(r" \(n=(\d+)\)$")


class Block(NamedTuple):
    """Rows that belong together, below a title of their own if it is not empty."""

    title: str
    rows: list[list[str]]


class PaperTable(NamedTuple):
    name: str  # of which its label is made
    caption: str
    heads: list[list[str]]
    blocks: list[Block]
    words: frozenset[int]  # columns of words, which may wrap; the others hold figures

    @property
    def lines(self) -> list[list[str]]:
        """All rows, the head first."""
        return [*self.heads, *(row for block in self.blocks for row in block.rows)]


def paper_tables(rows: Sequence[Row]) -> list[PaperTable]:
    settings = grouped(rows, lambda row: row.setting).values()
    shown = [group for group in settings if not only_beside(group, rows)]
    return [
        *(table for group in shown for table in _fastest_tables(group)),
        *(table for group in settings for table in _speed_tables(group)),
    ]


def _fastest_tables(rows: Sequence[Row]) -> Iterator[PaperTable]:
    """A table per pass, measured or simulated: for each mask the fastest kernel at the longest length."""
    for pass_, lines in by_pass(headlines(rows), lambda line: line.contest.pass_).items():
        for own in grouped(lines, lambda line: line.contest.simulated).values():
            yield _fastest_table(own[0].contest, f"fastest-{slug(pass_)}", own)


def _fastest_table(contest: Contest, kind: str, lines: Sequence[Headline]) -> PaperTable:
    unit, title = speed_unit(line.best.tflops for line in lines), _title(contest)
    lengths = {format_size(line.contest.seqlen) for line in lines}
    columns = ["mask", "tokens", "fastest", unit.name, "peak", "ahead of"]
    cells = [_fastest_cells(line, unit) for line in lines]
    kept = [n for n, name in enumerate(columns) if any(row[n] for row in cells) and (name != "tokens" or len(lengths) > 1)]
    text = "\n".join(cell for row in cells for cell in row)
    notes = {
        "n more": f"so many others are equally fast ({EQUAL})" if "\u00a0more" in text else "",
        unit.name: "of each rank" if contest.ranks else "",
        "peak": "the share of the device's peak" if "%" in text else "",
        "ahead of": "the speed over that of the next" if "×" in text else "",
        "~": NOISY if "~" in text else "",
        "(a to b)": "the range over seeds, beside all work over all time" if " to " in text else "",
        "(as m)": "at this length the mask shows the same pairs as m" if "(as " in text else "",
    }
    at = f" at {lengths.pop()} tokens" if len(lengths) == 1 else ""
    what = "methods" if contest.ranks else "kernels"
    caption = f"The fastest {what} of the {PASS_WORDS[contest.pass_]} pass{at}: {title}. {_legend(notes)}".rstrip()
    heads, body = ([[row[n] for n in kept] for row in part] for part in ([columns], cells))
    words = frozenset(place for place, n in enumerate(kept) if columns[n] in ("mask", "fastest", "ahead of"))
    return PaperTable(f"{kind}-{slug(title)}", caption, heads, [Block("", body)], words)


def _fastest_cells(line: Headline, unit: SpeedUnit) -> list[str]:
    """The row of a headline. Its `~` stands at the speed; a ratio has none, as in the other tables."""
    *_, speed, peak, ahead = line.cells(unit)
    median, _, over_seeds = speed.partition(" ")
    speed = f"{median}{'~' if line.best.noisy else ''} {over_seeds}".rstrip()
    mask = f"{line.panel} (as {line.same})" if line.same else line.panel
    fastest = _without_cluster(fastest_in_short(line.ranking), line.contest).replace(" more", "\u00a0more")
    ahead = _without_cluster(ahead.removesuffix(" ~"), line.contest)
    return [mask, format_size(line.contest.seqlen), fastest, speed, peak, ahead]


def _speed_tables(rows: Sequence[Row]) -> Iterator[PaperTable]:
    """A table per pass, measured or simulated: below each mask a row per kernel, and a column per length and number of ranks."""
    for pass_, own in by_pass(rows).items():
        kinds = grouped(contests(own).items(), lambda item: (item[0].simulated, bool(item[0].ranks)))
        for group in kinds.values():
            if (table := _speed_table(f"speeds-{slug(pass_)}", dict(group))).blocks:
                yield table


Places = dict[tuple[int, int], str]  # texts by ranks and length


def _speed_table(kind: str, group: Mapping[Contest, list[Row]]) -> PaperTable:
    contest, title = next(iter(group)), _title(next(iter(group)))
    unit = speed_unit(row.record.speed for own in group.values() for row in own if row.record.ok)
    masks: dict[str, dict[str, Places]] = {}
    names = _row_names(group)
    for here, own in group.items():
        for line, text in typical_speeds(own, unit).items():
            masks.setdefault(here.problem, {}).setdefault(names[line], {})[here.ranks or 0, here.seqlen] = text
    masks = {mask: kernels for mask, found in masks.items() if (kernels := _supported(found))}
    places = sorted({place for kernels in masks.values() for own in kernels.values() for place in own})
    masks, over = _without_count(masks)
    blocks = [
        Block(mask, [[name, *(_sign(own.get(place, "")) for place in places)] for name, own in sorted(kernels.items())])
        for mask, kernels in masks.items()
    ]
    heads = [["tokens", *(format_size(seqlen) for _, seqlen in places)]]
    if contest.ranks:
        heads.insert(0, ["ranks", *(str(ranks) for ranks, _ in places)])
    each = " of each rank" if contest.ranks else ""
    start = f"Speeds of the {PASS_WORDS[contest.pass_]} pass in {unit.name}{each}: {title}."
    caption = f"{start} {_speed_legend([cell for block in blocks for row in block.rows for cell in row[1:]], over)}".rstrip()
    return PaperTable(f"{kind}-{slug(title)}", caption, heads, blocks, frozenset({0}))


def _row_names(group: Mapping[Contest, list[Row]]) -> dict[str, str]:
    """The name of each line's row: without the grid of a method, unless it ran on several grids of as many ranks."""
    series = {row.line: row.series for own in group.values() for row in own}
    grids = (grouped({row.line for row in own}, lambda line: series[line]) for own in group.values())
    several = {name for found in grids for name, lines in found.items() if len(lines) > 1}
    contest = next(iter(group))
    return {line: _without_cluster(line if name in several else name, contest) for line, name in series.items()}


def _without_cluster(text: str, contest: Contest) -> str:
    """The name without the simulated cluster, which the caption has."""
    return text.replace(f", simulated on {contest.simulated}", "") if contest.simulated else text


def _supported(kernels: Mapping[str, Places]) -> dict[str, Places]:
    """Kernels without those that are unsupported throughout."""
    return {name: own for name, own in kernels.items() if any(text not in UNSUPPORTED for text in own.values())}


def _without_count(masks: dict[str, dict[str, Places]]) -> tuple[dict[str, dict[str, Places]], str]:
    """The texts without the number of masks behind a speed, and that number, if it is the same in the whole table."""
    texts = [text for kernels in masks.values() for own in kernels.values() for text in own.values() if text[:1].isdigit()]
    counts = {found[1] if (found := _MASKS.search(text)) else "" for text in texts}
    if len(counts) != 1 or counts == {""}:
        return masks, ""
    short = {
        mask: {name: {place: _MASKS.sub("", text) for place, text in own.items()} for name, own in kernels.items()}
        for mask, kernels in masks.items()
    }
    return short, counts.pop()


def _sign(text: str) -> str:
    """The text of a cell, with a sign for each status."""
    parts = text.split(", ")
    return ", ".join(dict.fromkeys(SIGNS[part] for part in parts)) if all(part in SIGNS for part in parts) else text


def _speed_legend(cells: Iterable[str], over: str) -> str:
    found = set(cells)
    signs = {sign for cell in found for sign in cell.split(", ")}
    counted = any(_MASKS.search(cell) or "(n=" in cell for cell in found)
    notes = {"~": NOISY if any("~" in cell for cell in found) else ""}
    notes |= {sign: words for sign, words in SIGN_WORDS.items() if sign in signs}
    notes |= {"empty": NOT_RUN if "" in found else "", "n": "masks (one per seed) that a speed is over" if counted else ""}
    notes |= {"other masks": "measured on other masks than the other kernels" if any("(other" in cell for cell in found) else ""}
    return " ".join(part for part in (f"Speeds over {over} masks (one per seed)." if over else "", _legend(notes)) if part)


def _legend(notes: Mapping[str, str]) -> str:
    """Each mark with its meaning; those without one do not occur."""
    told = "; ".join(f"{mark}: {words}" for mark, words in notes.items() if words)
    return f"{told}." if told else ""


def _title(contest: Contest) -> str:
    """The setting, and the cluster if it was simulated."""
    return contest_title(contest._replace(ranks=None)).replace(" · ", ", ")
