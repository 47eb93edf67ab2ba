"""Two journals: every verdict, what is matched, and what must be refused."""

import json
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import longca
from journals import Write
from longca.cli import main
from longca.compare.journals import compare
from longca.compare.matching import match
from longca.compare.verdicts import Cell, Doubt
from longca.errors import BadInput
from longca.results.ratio import REPEATS, as_fast, ratio
from longca.results.reading import read
from report.made import ENVIRONMENT, kernel, make_record


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "SAME"), (0.94, "FASTER"), (1.06, "SLOWER")])
def test_a_time_for_the_reference_clock_is_compared_with_one_as_measured_as_measured(write: Write, factor: float, verdict: str) -> None:
    """An older LongCA measured at 1,500 MHz; times of the new one, also measured there, are given for 1,410 MHz."""
    given = [factor * time * 1500 / 1410 for time in STEADY]
    new = {"clock_mhz": 1500.0, "at_mhz": 1410.0, "clocks": [1500] * len(given)}
    a, b = write("a", [make_record(STEADY, clock_mhz=1500.0)]), write("b", [make_record(given, **new)])
    (row,) = longca.compare(a, b).rows
    assert (row["verdict"], row["a_ms"], row["b_ms"]) == (verdict, 1.0, pytest.approx(factor))
    assert row["ratio"] == pytest.approx(factor)
    assert [row["ms"] for row in longca.history(a, b).rows] == [1.0, pytest.approx(factor)]


def test_two_forwards_without_a_backward_are_compared_each_with_itself(write: Write) -> None:
    """One was asked for alone, the other beside a backward that failed."""
    alone, beside = ({"grad": False, "given": {"params": {}, "grad": grad}} for grad in (False, True))
    journal = write("a", [make_record(STEADY, **alone), make_record([2 * time for time in STEADY], **beside)])
    assert [cell.verdict for cell in compare(journal, journal).cells] == ["SAME", "SAME"]
    copy = Path(shutil.copytree(journal, journal.parent / "b"))
    assert sorted(row["ms"] for row in longca.history(journal, copy).rows) == [1.0, 1.0, 2.0, 2.0]


WIDE = [1.0, 1.09, 0.96, 1.12, 1.01, 0.93, 1.08, 0.95, 1.1, 1.0]
STEPS = [*[1.0, 1.001, 0.999] * 5, *[1.2, 1.199, 1.201] * 5]  # the clock steps by a fifth within the run


@pytest.mark.parametrize(
    ("kind", "noisy", "verdicts"),
    [
        ("cuda", {0: 0.05, 1: 0.01}, {"SLOWER": 9, "UNCLEAR": 1}),  # what only missed a stricter target is not too noisy
        ("cuda", {0: 0.05, 1: 0.05}, {"SLOWER": 8, "UNCLEAR": 2}),
        ("cpu", {0: 0.05, 1: 0.05}, {"SLOWER": 0, "UNCLEAR": 10}),  # which shares its machine with other work
    ],
)
def test_what_the_run_called_noisy_is_never_called_a_change(
    write: Write, kind: str, noisy: dict[int, float], verdicts: dict[str, int]
) -> None:
    a = write("a", [make_record(STEADY, seed=seed) for seed in range(10)], {"device_kind": kind})
    spreads = [(seed, noisy.get(seed)) for seed in range(10)]
    b = write("b", [make_record(SLOW, seed=seed, noisy=bool(own), spread=own or 0.01) for seed, own in spreads], {"device_kind": kind})
    assert {name: compare(a, b).counts[name] for name in verdicts} == verdicts


RISING = [1.0 + 0.0005 * step for step in range(9)]  # .4 % in all, each sample close to the one before


TWICE = Path(__file__).parent / "data" / "h200-twice"


@pytest.mark.parametrize("pair", ["1", "2"])
def test_what_an_h200_measured_twice_did_not_change(pair: str) -> None:
    """40 cells of one commit in separate processes; two of such pairs."""
    compared = compare(TWICE / f"{pair}a", TWICE / f"{pair}b")
    assert len(compared.cells) == 40
    assert compared.counts["SLOWER"] + compared.counts["FASTER"] == 0
    assert compared.counts["SAME"] > 0.75 * 40


def test_two_runs_of_a_cell_are_equal_and_nearly_always_nearer_than_the_margin() -> None:
    folders = [read(TWICE / name).records for name in ("1a", "1b", "2a", "2b")]
    pairs = [pair for first, second in combinations(folders, 2) for pair in match(first, second).pairs]
    samples = [(before.times.samples, after.times.samples) for before, after in pairs]
    assert all(as_fast(*both) for both in samples)
    apart = [abs(ratio(*both).value - 1) for both in samples]
    assert len(apart) == 240
    assert sum(one > REPEATS for one in apart) <= 0.01 * len(apart)


STEADY = [1.0, 1.001, 0.999, 1.002, 0.998, 1.0, 1.001, 0.999]


SLOW = [1.1 * time for time in STEADY]


LOOSE = [0.9, 1.1, 0.95, 1.05, 1.0, 1.02, 0.93, 1.08]


def both(write: Write) -> tuple[str, str]:
    """A pair of journals with a cell of every verdict, written with other keys as another version would."""
    before = [STEADY, STEADY, SLOW, LOOSE, STEADY, None, None, STEADY]
    after = [STEADY, SLOW, STEADY, LOOSE, None, STEADY, None]
    a = [make_record(samples, seed=seed, key=f"a{seed}") for seed, samples in enumerate(before)]
    b = [make_record(samples, seed=seed, key=f"b{seed}", variant="native") for seed, samples in enumerate(after)]
    return str(write("a", a)), str(write("b", b))


def test_every_verdict_worst_first(write: Write) -> None:
    compared = compare(*both(write))
    assert [cell.verdict for cell in compared.cells] == ["BROKEN", "SLOWER", "UNCLEAR", "SAME", "FASTER", "MENDED", "UNMEASURED"]
    assert [cell.before.problem.seed for cell in compared.cells] == [4, 1, 3, 0, 2, 5, 6]
    assert [record.problem.seed for record in compared.only_before] == [7]
    assert compared.only_after == []


def test_a_kernel_that_is_skipped_now_is_not_broken(write: Write) -> None:
    a = write("a", [make_record(STEADY, seed=0), make_record(STEADY, seed=1)])
    b = write("b", [make_record(STEADY, seed=0), make_record(None, seed=1, status="skipped", reason="too slow")])
    for compared in (compare(a, b), compare(b, a)):
        assert [cell.verdict for cell in compared.cells] == ["SAME", "UNMEASURED"]
    assert main(["compare", str(a), str(b)]) == 0
    assert main(["compare", str(a), str(b), "--fail-on", "missing"]) == 1
    assert main(["compare", str(b), str(a), "--fail-on", "missing"]) == 0


def test_a_forward_that_was_tried_without_its_backward_is_compared_where_one_of_both_failed(write: Write) -> None:
    together = make_record(STEADY, grad=True, given={"grad": True}, key="a")
    alone = make_record(STEADY, grad=False, given={"grad": True}, key="b")
    failed = make_record(None, grad=False, given={"grad": True}, key="c")
    assert [cell.verdict for cell in compare(write("a", [together]), write("b", [failed])).cells] == ["BROKEN"]
    assert [cell.verdict for cell in compare(write("c", [failed]), write("d", [together])).cells] == ["MENDED"]
    matched = match(
        *(read(write(name, [record])).records for name, record in (("e", together), ("f", alone)))
    )  # two times that mean something else
    assert (matched.pairs, len(matched.only_before), len(matched.only_after)) == ([], 1, 1)


def test_a_journal_of_several_devices_is_refused(write: Write) -> None:
    a = write("a", [make_record(STEADY), make_record(STEADY, env="other", key="o")])
    (a / "env.json").write_text(json.dumps({"e": ENVIRONMENT, "other": {**ENVIRONMENT, "device": "NVIDIA H100"}}))
    with pytest.raises(BadInput, match=r"several devices \(NVIDIA H100, NVIDIA H200\)"):
        compare(a, write("b", [make_record(STEADY)]), force=True)


@pytest.mark.parametrize("other", [{}, {"power_limit_w": None}, {"power_limit_w": 700}])
def test_a_power_limit_that_one_side_does_not_know_is_no_difference(write: Write, other: dict[str, Any]) -> None:
    """Journals of before it was recorded, or a driver that does not say; 700 is 700.0."""
    a, b = write("a", [make_record(STEADY)], {"power_limit_w": 700.0}), write("b", [make_record(STEADY)], other)
    assert compare(a, b).counts["SAME"] == compare(b, a).counts["SAME"] == 1


def test_a_fourfold_slowdown_on_a_busy_machine_is_slower(write: Write) -> None:
    """Samples scatter by tens of percents, one of each side by far more, and yet the two sets lie far apart."""
    scattered = [0.8, 1.3, 1.0, 0.7, 1.25, 3.2, 0.9, 1.1]
    doubt = {"noisy": True, "spread": 0.3}
    a = write("a", [make_record(scattered, seed=seed, **doubt) for seed in range(3)])
    b = write("b", [make_record([factor * time for time in scattered], seed=seed, **doubt) for seed, factor in enumerate((4, 2, 1))])
    assert compare(a, b).busy
    assert {cell.before.problem.seed: cell.verdict for cell in compare(a, b).cells} == {0: "SLOWER", 1: "UNCLEAR", 2: "UNCLEAR"}
    assert compare(a, b).fails()
    assert {cell.before.problem.seed: cell.verdict for cell in compare(b, a).cells} == {0: "FASTER", 1: "UNCLEAR", 2: "UNCLEAR"}


def names(cells: list[Cell]) -> set[tuple[str, str]]:
    return {(cell.before.asked, cell.after.asked) for cell in cells}


def test_the_same_variant_asked_for_by_two_names_is_one_work(write: Write) -> None:
    bare = kernel("fa4:bands", STEADY, "fwd", asked="fa4", key="bare")
    named = kernel("fa4:bands", SLOW, "fwd", key="named")
    a, b, both = write("a", [bare]), write("b", [named]), write("both", [bare, named])
    assert [cell.verdict for cell in compare(a, b).cells] == ["SLOWER"]
    assert names(compare(both, both).cells) == {("fa4", "fa4"), ("fa4:bands", "fa4:bands")}
    for one, other, expected in ((both, a, ("fa4", "fa4")), (both, b, ("fa4:bands", "fa4:bands")), (b, both, ("fa4:bands", "fa4:bands"))):
        compared = compare(one, other)
        assert names(compared.cells) == {expected}
        assert (compared.only_before, compared.only_after) == ([], []), "the work of the other name is there"


def test_a_request_that_runs_another_variant_now_is_compared(write: Write) -> None:
    before = [kernel("fa4:bands", STEADY, "fwd", asked="fa4"), kernel("fa4:varlen", STEADY, "fwd")]
    after = [kernel("fa4:native", SLOW, "fwd", asked="fa4"), kernel("fa4:bands", STEADY, "fwd", mask="full")]
    compared = compare(write("a", before), write("b", after))
    assert [(cell.before.label, cell.after.label) for cell in compared.cells] == [("fa4:bands", "fa4:native")]
    assert [record.label for record in compared.only_before] == ["fa4:varlen"]
    assert [record.problem.mask for record in compared.only_after] == ["full"]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (make_record([1.0] * 3), make_record([1.1] * 3), Doubt.FEW_SAMPLES),
        (make_record(WIDE), make_record([1.02 * time for time in WIDE]), Doubt.CROSSES),
        (make_record(STEPS), make_record([1.25 * time for time in STEPS]), Doubt.WANDERS),
        (make_record(RISING), make_record([1.03 * time for time in RISING]), Doubt.WIDE),
        (make_record([1.0] * 9), make_record([1.5] * 9, noisy=True, spread=0.05), Doubt.UNTRUSTED),
        (make_record([1.0] * 9, clock_mhz=1980), make_record([1.1] * 9, clock_mhz=1800), Doubt.CLOCK),
        (make_record([1.0] * 9), make_record([1.0] * 9) | {"check": {"out": {"error": 1.0, "allowed": 0.1}}}, Doubt.DOUBTFUL),
    ],
)
def test_an_unclear_cell_has_its_reason(before: Any, after: Any, kind: Doubt, write: Write) -> None:
    others = [make_record([1.0] * 9, seed=seed) for seed in range(1, 4)]
    compared = compare(write("a", [before, *others]), write("b", [after, *others]))
    (own,) = (cell for cell in compared.cells if cell.before.problem.seed == 0)
    assert own.why is not None
    assert (own.verdict, own.why.kind) == ("UNCLEAR", kind)
    assert all(row["why"] for row in compared.rows if row["verdict"] == "UNCLEAR")


@pytest.mark.parametrize(
    ("after", "also", "threshold", "fails"),
    [
        ([STEADY, STEADY], [], 0.03, False),
        ([SLOW, STEADY], [], 0.03, True),
        ([SLOW, STEADY], [], 0.15, False),
        ([None, STEADY], [], 0.03, True),
        ([LOOSE, STEADY], [], 0.03, False),
        ([LOOSE, STEADY], ["unclear"], 0.03, True),
        ([STEADY], ["unclear"], 0.03, False),
        ([STEADY], ["slower", "missing"], 0.03, True),
    ],
)
def test_what_fails(write: Write, after: list[list[float] | None], also: list[str], threshold: float, fails: bool) -> None:
    a = write("a", [make_record(STEADY, seed=seed) for seed in range(2)])
    b = write("b", [make_record(samples, seed=seed) for seed, samples in enumerate(after)])
    assert compare(a, b, threshold).fails(also) == fails
    flags = ["--fail-on", ",".join(also)] if also else []
    assert main(["compare", str(a), str(b), "--threshold", f"{100 * threshold:g}%", *flags]) == fails


def test_json_is_complete(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *both(write), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["SLOWER"] == 1
    slower = found["cells"][1]
    assert slower["ratio"] == pytest.approx(1.1, rel=1e-3)
    assert 1.03 < slower["low"] <= slower["high"]
    assert (found["cells"][0]["a_status"], found["cells"][0]["b_status"]) == ("ok", "error")
    assert [cell["mask"] for cell in found["only_in_a"]] == ["causal"]


@pytest.mark.parametrize(
    ("environment", "title"),
    [
        ({"device": "NVIDIA H100"}, "the device"),
        ({"clock": {**ENVIRONMENT["clock"], "target": 0.05}}, "the clock's settings"),
        ({"threads": 4}, "the number of threads"),
        ({"power_limit_w": 500.0}, "the power limit in W"),
        ({"application_sm_mhz": 1410.0}, "the application clock of the SMs in MHz"),
    ],
)
def test_what_cannot_be_compared_is_refused_unless_forced(write: Write, environment: dict[str, Any], title: str) -> None:
    held = {"power_limit_w": 700.0, "application_sm_mhz": 1980.0}
    a, b = write("a", [make_record(STEADY)], held), write("b", [make_record(STEADY)], held | environment)
    with pytest.raises(BadInput, match=rf"differ in {title} \(.* and .*\); `longca compare --force` compares them anyway\."):
        compare(a, b)
    assert [difference.title for difference in compare(a, b, force=True).differences] == [title]


def test_a_kernel_is_compared_only_where_it_can_be(write: Write) -> None:
    records = [kernel("mine", [0.02] * 5, "fwd"), kernel("fa4:bands", [0.0125] * 5, "fwd"), kernel("flex", [0.04] * 5, "fwd")]
    folder, alone = write("a", records), write("b", records[:1])
    failed = write("d", [kernel("mine", None, "fwd", status="oom", reason="out of memory"), records[2]])
    ranks = {"level": "cp", "method": "ulysses", "ranks": 2, "grid": "2x1", "tflops": records[0]["tflops"] / 2}
    split = write("c", [records[0] | ranks])
    for place, name, why in (
        (split, "mine", "has only records of many ranks"),
        (folder, "fa5", "has no record of 'fa5'; it has fa4, fa4:bands, flex, mine."),
        (failed, "mine", "mine has no time in .*: 1 oom"),
        (alone, "mine", "measure more kernels: --kernels all"),
    ):
        with pytest.raises(BadInput, match=why):
            longca.compare(place, kernel=name)
    (row,) = longca.compare(folder, kernel="fa4").rows
    assert row["8K"].endswith(" 1.60x of mine")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a"], "give two folders A and B"),
        (["a", "a", "--kernel", "mine"], "give two folders A and B"),
        (["a", "--kernel", "fa4", "--json"], "--json is for two folders"),
        (["a", "a", "--md", "--json"], "choose one"),
        (["a", "a", "--threshold", "much"], "--threshold 'much'"),
        (["a", "a", "--threshold=-3%"], "--threshold"),
        (["a", "a", "--fail-on", "rain"], "--fail-on 'rain'"),
        (["a", "missing"], "there is no journal in"),
        (["a", "empty"], "there is no record in empty"),
        (["a", "other"], "no cell in common"),
        (["a", "split"], "options (not recorded and none)"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], words: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    split = make_record(STEADY, level="cp", method="usp", grid="2x1", options="", ranks=2)
    for name, records in (("a", [make_record(STEADY)]), ("empty", []), ("other", [make_record(STEADY, mask="full")]), ("split", [split])):
        write(name, records)
    assert main(["compare", *arguments]) == 2
    assert words in capsys.readouterr().err
