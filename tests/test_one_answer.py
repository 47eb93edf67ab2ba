"""One journal, one answer: page, Markdown, terminal, `compare --kernel` and `recommend` name the same fastest kernel.

The rule is written here a second time, from its definition: kernels that failed on a mask are out; the others are compared on the masks
that most of them share; their speeds are medians over these masks.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longca.cli import main
from longca.compare.standing import positions
from longca.recommend.answer import recommend
from longca.recommend.question import Question
from longca.report import markdown
from longca.report.page_data import page_data
from longca.report.terminal import fastest_tables
from longca.results.naming import contests, rows
from longca.results.reading import Results
from longca.results.tables import speed_unit
from report.made import Record, around, kernel, results_of

KERNELS = ("fa4:bands", "fa3", "sdpa:flash", "torch:chunked")
SEEDS = range(3)
WORK = 10**11  # so that no speed is above the device's peak
FAILURES = ("oom", "wrong", "timeout", "error", "unsupported", "skipped")
Outcome = float | str | None  # milliseconds, a status, or never measured
Journal = dict[tuple[str, int], Outcome]

outcomes = st.one_of(
    st.none(), st.sampled_from(FAILURES), st.floats(1.0, 4.0).map(lambda ms: round(ms, 2)), st.sampled_from([1.0, 1.02, 1.05])
)
journals = st.fixed_dictionaries({(name, seed): outcomes for name in KERNELS for seed in SEEDS})


def record(name: str, seed: int, outcome: Outcome, noisy: bool) -> Record:
    where = {"mask": "causal_document", "seed": seed, "mask_digest": f"mask-{seed}", "noisy": noisy, "which": "fwd", "grad": True}
    if isinstance(outcome, str):
        return kernel(name, None, status=outcome, reason=f"it was {outcome}", **where)
    assert outcome is not None
    return kernel(name, around(outcome), flops=WORK * (seed + 1), **where)


def results(journal: Journal, noisy: bool = False) -> Results:
    made = results_of(record(name, seed, outcome, noisy) for (name, seed), outcome in journal.items() if outcome is not None)
    return replace(made, folders=[Path("made")])


def expected(journal: Journal) -> dict[str, float]:
    """The speeds of the compared kernels by the definition, the fastest first."""
    figures: dict[str, dict[int, float]] = {}
    failed = {name for (name, _), outcome in journal.items() if isinstance(outcome, str)}
    for (name, seed), outcome in journal.items():
        if isinstance(outcome, float) and name not in failed:
            figures.setdefault(name, {})[seed] = (seed + 1) * WORK / outcome / 1e9
    sets = [frozenset(own) for own in figures.values()]
    options = {*sets, *([frozenset.intersection(*sets)] if sets else [])} - {frozenset()}
    if not options:
        return {}
    shared = max(options, key=lambda option: (sum(option <= own for own in sets), len(option), sorted(option)))
    speeds = {name: median(own[seed] for seed in shared) for name, own in figures.items() if shared <= own.keys()}
    return dict(sorted(speeds.items(), key=lambda entry: (-entry[1], entry[0])))


def names(text: str) -> list[str]:
    """The kernels that a cell of a table names, in its order."""
    return [word for word in re.findall(r"[\w:]+", text) if word in KERNELS]


SEEN = {(name, seed): None for name in KERNELS for seed in SEEDS} | {  # one kernel out of memory on one seed and not measured on another
    ("torch:chunked", 0): 1.0,
    ("torch:chunked", 1): "oom",
    **{("sdpa:flash", seed): 2.0 for seed in SEEDS},
    **{("fa3", seed): 3.0 for seed in SEEDS},
}


@example(journal=SEEN, noisy=False)
@given(journal=journals, noisy=st.booleans())
def test_all_surfaces_give_one_answer(journal: Journal, noisy: bool) -> None:
    found = results(journal, noisy)
    named, speeds = rows(found), expected(journal)
    page = [cell for setting in page_data(found, named, "title")["settings"] for cell in setting["matrix"]]
    terminal = [row for table in fastest_tables(named) for row in table.rows]
    answer = recommend(Question.parse("causal_document", 8192, pass_="fwd"), found)
    assert [choice.name for choice in answer.choices] == list(speeds)
    if not speeds:
        assert page == []
        assert all(cell == "" for row in terminal for cell in row[1:])
        return
    best, *others = speeds
    equal = [best, *(choice.name for choice in answer.choices if choice.as_good)]
    (headline,), (row,) = page, terminal
    assert headline["fastest"] == names(row[1]) == equal
    assert headline["tflops"] == pytest.approx(speeds[best], rel=1e-3)  # the page has four digits
    assert headline["next"] == next((name for name in others if name not in equal), None)
    assert speed_unit(speeds.values()).text(speeds[best], noisy) in row[1]
    check_markdown(markdown.render(found, named, "title"), equal, speeds[best])
    check_compare(found, speeds)


def check_markdown(text: str, equal: list[str], speed: float) -> None:
    headline = next(line for line in text.splitlines() if line.startswith("| causal_document | fwd"))
    cells = [cell.strip() for cell in headline.strip("|").split("|")]
    assert names(cells[3]) == equal
    assert cells[4] == speed_unit([speed]).text(speed)


def check_compare(found: Results, speeds: dict[str, float]) -> None:
    """Every kernel against the best other one."""
    (contest,) = contests(rows(found))
    for name in {line.partition(":")[0] for line in KERNELS}:
        position = positions(found, name)[contest]
        own = next((line for line in speeds if line.partition(":")[0] == name), None)
        other = next((line for line in speeds if line.partition(":")[0] != name), None)
        assert (position.own and position.own.line) == own
        assert (position.other and position.other.line) == other
        if own and other:
            assert position.ratio == pytest.approx(speeds[own] / speeds[other])


def test_the_commands_print_that_answer(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The journal in which page and command line once named different kernels."""
    from journals import writer

    folder = writer(tmp_path)("seen", [record(name, seed, outcome, False) for (name, seed), outcome in SEEN.items() if outcome is not None])
    assert main(["report", str(folder), "-o", str(tmp_path / "page.html"), "--md", str(tmp_path / "report.md")]) == 0
    assert main(["recommend", "--mask", "causal_document", "--seqlen", "8K", "--pass", "fwd", "--results", str(folder)]) == 0
    assert "use sdpa:flash for causal_document, 8K tokens" in capsys.readouterr().out
    assert main(["compare", str(folder), "--kernel", "sdpa"]) == 0
    assert "1.50x of fa3" in capsys.readouterr().out
    check_markdown((tmp_path / "report.md").read_text(), ["sdpa:flash"], expected(SEEN)["sdpa:flash"])
