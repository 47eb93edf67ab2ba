"""One journal, one answer: page, Markdown, terminal, `compare --kernel` and `recommend` name the same fastest kernel.

The rule is written here a second time, from its definition: kernels that failed on a mask are out; the others are compared on the masks
with the most figures (kernels that have all of them, times masks) on which no kernel that lacks some of them is faster than the best where
both have a time; their speeds are all work over all time on these masks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from longca.cli import main
from longca.compare.standing import positions
from longca.recommend.question import Question
from longca.recommend.rank import recommend
from longca.report import markdown
from longca.report.page_data import page_data
from longca.report.terminal import fastest_tables
from longca.results.groups import Groups, groups_of
from longca.results.reading import Results
from longca.results.tables import speed_unit
from longca.results.words import excluded
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


def expected(journal: Journal, kept: str = "") -> dict[str, float]:
    """The speeds of the compared kernels by the definition, the fastest first; `kept` is not left out for masks that it lacks."""
    times: dict[str, dict[int, float]] = {}
    failed = {name for (name, _), outcome in journal.items() if isinstance(outcome, str)}
    for (name, seed), outcome in journal.items():
        if isinstance(outcome, float) and name not in failed:
            times.setdefault(name, {})[seed] = outcome
    pairs = {frozenset(own) & frozenset(other) for own in times.values() for other in times.values()} - {frozenset()}

    def worth(option: frozenset[int]) -> tuple[Any, ...]:
        having = ordered(times, option)
        return len(having) > 1 and kept in having, len(having) > 1, len(having) * len(option), len(option), sorted(option)

    options = sorted(pairs, key=worth, reverse=True)
    usable = [option for option in options if not misses_a_faster(times, option)]
    return ordered(times, (usable or options)[0]) if options else {}


def misses_a_faster(times: Mapping[str, Mapping[int, float]], seeds: frozenset[int]) -> bool:
    best = times[next(iter(ordered(times, seeds)))]
    common = [(own, seeds & own.keys()) for own in times.values() if not seeds <= own.keys()]
    return any(sum(best[seed] for seed in both) >= sum(own[seed] for seed in both) for own, both in common if both)


def ordered(times: Mapping[str, Mapping[int, float]], seeds: Collection[int]) -> dict[str, float]:
    """The speeds of kernels that have all of these seeds, the fastest first."""
    having = {name: own for name, own in times.items() if own.keys() >= set(seeds)}
    work = sum((seed + 1) * WORK for seed in seeds)
    speeds = {name: work / sum(own[seed] for seed in seeds) / 1e9 for name, own in having.items()}
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

SLOW = ("fa3", "sdpa:flash")
MORE = {(name, seed): None if name in SLOW and seed else 3.0 if name in SLOW else 1.0 + seed for name in KERNELS for seed in SEEDS}


@example(journal=SEEN, noisy=False)
@example(journal=MORE, noisy=False)
@given(journal=journals, noisy=st.booleans())
def test_all_surfaces_give_one_answer(journal: Journal, noisy: bool) -> None:
    found = results(journal, noisy)
    groups, speeds = groups_of(found), expected(journal)
    page = [cell for setting in page_data(found, groups, "title")["settings"] for cell in setting["matrix"]]
    terminal = [row for table in fastest_tables(groups) for row in table.rows]
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
    assert headline["tflops"] == pytest.approx(speeds[best], rel=1e-4)  # the page has five digits
    assert headline["next"] == next((name for name in others if name not in equal), None)
    assert speed_unit(speeds.values()).text(speeds[best], noisy) in row[1]
    check_markdown(markdown.render(found, groups, "title"), equal, speeds[best])
    check_compare(groups, journal)


def check_markdown(text: str, equal: list[str], speed: float) -> None:
    headline = next(line for line in text.splitlines() if line.startswith("| causal_document | fwd"))
    cells = [cell.strip() for cell in headline.strip("|").split("|")]
    assert names(cells[3]) == equal
    assert cells[4].partition(" (")[0] == speed_unit([speed]).text(speed)


def check_compare(groups: Groups, journal: Journal) -> None:
    """Every kernel against the best other one, on masks that it has."""
    (group,) = groups.every
    for name in KERNELS:
        position = positions(groups, name.partition(":")[0])[group.contest]
        speeds = expected(journal, kept=name)
        own = name if name in speeds else None
        other = next((line for line in speeds if line != name), None)
        assert (position.own and position.own.line) == own
        assert (position.other and position.other.line) == other
        if own and other:
            assert position.ratio == pytest.approx(speeds[own] / speeds[other])


def test_kernels_with_fewer_seeds_stand_as_on_their_seed() -> None:
    found, asked = results(MORE), Question.parse("causal_document", 8192, pass_="fwd")
    answer = recommend(asked, found)
    assert answer.seeds == tuple(SEEDS)
    assert [choice.name for choice in answer.choices] == ["fa4:bands", "torch:chunked"]
    reason = "it was measured on 1 of the 3 masks (seeds) on which the others are compared; there it has 0.33 times the speed of fa4:bands"
    assert [(out.line, out.status, excluded(out)) for out in answer.out] == [(name, "fewer masks", reason) for name in SLOW]
    (setting,) = page_data(found, groups_of(found), "title")["settings"]
    shares = {name: share for _, order in setting["order"] for name, share, _ in order}
    assert shares == {"fa4:bands": 1, "torch:chunked": 1} | dict.fromkeys(SLOW, pytest.approx(1 / 3, rel=1e-3))


def test_the_commands_print_that_answer(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The journal in which page and command line once named different kernels."""
    from journals import writer

    folder = writer(tmp_path)("seen", [record(name, seed, outcome, False) for (name, seed), outcome in SEEN.items() if outcome is not None])
    assert main(["report", str(folder), "-o", str(tmp_path / "page.html"), "--md", str(tmp_path / "report.md")]) == 0
    assert main(["recommend", "--mask", "causal_document", "--seqlen", "8K", "--pass", "fwd", "--results", str(folder)]) == 0
    assert "use sdpa:flash: " in capsys.readouterr().out
    assert main(["compare", str(folder), "--kernel", "sdpa"]) == 0
    assert "1.50x of fa3" in capsys.readouterr().out
    check_markdown((tmp_path / "report.md").read_text(), ["sdpa:flash"], expected(SEEN)["sdpa:flash"])
