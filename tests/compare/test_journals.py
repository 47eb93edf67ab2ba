"""Two journals: every verdict, what is matched, and what must be refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from journals import Write
from longca.cli import main
from longca.compare.describe import describe_all
from longca.compare.journals import compare
from longca.compare.matching import match
from longca.compare.ratio import ratio
from longca.compare.verdicts import Cell, Verdict, decide
from longca.errors import BadInput
from longca.results.ranking import PRACTICAL
from longca.results.reading import read
from longca.results.record import Record
from longca.results.schema import decode_record
from report.made import ENVIRONMENT, kernel, line, make_record


def test_what_the_run_called_noisy_is_never_called_a_change(write: Write) -> None:
    a = write("a", [make_record(STEADY, seed=seed) for seed in range(11)])
    b = write("b", [make_record(SLOW, seed=seed, noisy=seed < 2, spread=0.05 if seed == 0 else 0.01) for seed in range(11)])
    assert [cell.verdict for cell in compare(a, b).cells] == [*["SLOWER"] * 10, "UNCLEAR"]
    assert compare(b, a).counts["UNCLEAR"] == 1


@pytest.mark.parametrize(("clocks", "expected"), [((1980, 1980), "SLOWER"), ((1980, 1782), "UNCLEAR"), ((None, 1782), "SLOWER")])
def test_what_a_slower_clock_explains_is_no_change(write: Write, clocks: tuple[int | None, int], expected: str) -> None:
    """A device that got warm between two runs: ten percent slower at a clock that is ten percent lower."""
    a, b = (write(name, [make_record(STEADY if name == "a" else SLOW, clock_mhz=mhz)]) for name, mhz in zip("ab", clocks, strict=True))
    assert [cell.verdict for cell in compare(a, b).cells] == [expected]


def test_a_kernel_that_became_ten_times_slower_is_slower_on_any_machine(write: Write) -> None:
    """Unsteady cells are never called changed by the doubt that hangs over them, but no such doubt is that large."""
    doubt = {"noisy": True, "spread": 0.08}
    a = write("a", [make_record(LOOSE, seed=seed, **doubt) for seed in range(2)])
    b = write("b", [make_record([factor * time for time in LOOSE], seed=seed, **doubt) for seed, factor in ((0, 2.5), (1, 10))])
    assert [cell.verdict for cell in compare(a, b).cells] == ["SLOWER", "UNCLEAR"]
    assert [cell.verdict for cell in compare(b, a).cells] == ["UNCLEAR", "FASTER"]


def test_a_busy_machine_is_not_trusted_in_any_cell(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    a = write("a", [make_record(STEADY, seed=seed) for seed in range(3)])
    b = write("b", [make_record(SLOW, seed=seed, noisy=True, spread=0.05 if seed < 2 else 0.015) for seed in range(3)])
    assert main(["compare", str(a), str(b)]) == 0
    said = capsys.readouterr().out
    assert f"2 of 3 cells of {b} are unsteady, so none of its cells is trusted: only changes by a factor of 3 or more are decided; " in said
    assert said.endswith("3 UNCLEAR\n")
    assert "noisy" not in said
    assert said.count("ms unsteady") == 2, "as many rows are marked as the sentence counts"


WIDE = [1.0, 1.09, 0.96, 1.12, 1.01, 0.93, 1.08, 0.95, 1.1, 1.0]
STEPS = [*[1.0, 1.001, 0.999] * 5, *[1.2, 1.199, 1.201] * 5]  # the clock steps by a fifth within the run


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (make_record([1.0] * 3), make_record([1.1] * 3), "fewer than 5 samples on a side"),
        (make_record(WIDE), make_record([1.02 * time for time in WIDE]), "the interval crosses the threshold of 3 %"),
        (make_record(STEPS), make_record([1.25 * time for time in STEPS]), "a drift or step within a run may explain it"),
        (make_record([1.0] * 9), make_record([1.5] * 9, noisy=True, spread=0.05), "B unsteady; busy machine in A"),
        (make_record([1.0] * 9, clock_mhz=1980), make_record([1.1] * 9, clock_mhz=1800), "the SM clock explains it (1980 and 1800 MHz)"),
    ],
)
def test_an_unclear_row_has_its_reason(before: Any, after: Any, why: str, write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """In the table and in JSON. More than half of the cells of A are unsteady where it is busy."""
    others = [make_record([1.0] * 9, seed=seed) for seed in range(1, 4)]
    unsteady = [make_record([1.0] * 9, seed=seed, noisy=True, spread=0.05) for seed in range(4, 10)] if "busy" in why else []
    a, b = write("a", [before, *others, *unsteady]), write("b", [after, *others, *[other | {"noisy": False} for other in unsteady]])
    main(["compare", str(a), str(b), "--json"])
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert all(cell["why"] for cell in cells if cell["verdict"] == "UNCLEAR")
    (own,) = (cell for cell in cells if cell["cell"]["seed"] == 0)
    assert (own["verdict"], own["why"]) == ("UNCLEAR", why)
    main(["compare", str(a), str(b)])
    table = capsys.readouterr().out
    assert table.splitlines()[0].split()[-1] == "why"
    assert f"  {why}\n" in table


def test_a_steady_cell_of_a_busy_journal_has_its_reason(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    records = [make_record([1.0] * 9, seed=seed) for seed in range(8)]
    noisy = make_record([1.0] * 9, seed=8, noisy=True, spread=0.05)
    a, b = write("a", [*records, noisy], {"device_kind": "cpu"}), write("b", [*records, noisy | {"noisy": False}], {"device_kind": "cpu"})
    main(["compare", str(a), str(b)])
    out = capsys.readouterr().out
    assert out.count("  busy machine in A\n") == 8
    assert out.count("  A unsteady\n") == 1
    assert f"1 of 9 cells of {a} is unsteady, so none of its cells is trusted: only changes by a factor of 3 or more are decided; " in out


@pytest.mark.parametrize(("kind", "verdicts"), [("cuda", {"SLOWER": 8, "UNCLEAR": 2}), ("cpu", {"SLOWER": 0, "UNCLEAR": 10})])
def test_a_cpu_is_trusted_less(write: Write, kind: str, verdicts: dict[str, int]) -> None:
    a = write("a", [make_record(STEADY, seed=seed) for seed in range(10)], {"device_kind": kind})
    b = write("b", [make_record(SLOW, seed=seed, noisy=seed < 2, spread=0.05) for seed in range(10)], {"device_kind": kind})
    assert {name: compare(a, b).counts[name] for name in verdicts} == verdicts


RISING = [1.0 + 0.0005 * step for step in range(9)]  # .4 % in all, each sample close to the one before


def test_a_drift_explains_no_more_than_a_drift_can(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    far = ratio(RISING, [1.289 * time for time in RISING])
    assert far.drifting
    assert far.low == pytest.approx(1.289 / 1.004)
    assert far.high == pytest.approx(1.289 * 1.004)
    assert decide(far, PRACTICAL) is Verdict.SLOWER
    assert decide(ratio(RISING, [1.04 * time for time in RISING]), PRACTICAL) is Verdict.UNCLEAR
    assert decide(ratio(RISING, [1.02 * time for time in RISING]), PRACTICAL) is Verdict.SAME
    a, b, c = (write(name, [make_record([scale * time for time in RISING])]) for name, scale in (("a", 1), ("b", 1.289), ("c", 1.03)))
    assert main(["compare", str(a), str(b)]) == 1
    assert main(["compare", str(a), str(c)]) == 0
    said = capsys.readouterr().out
    assert "% (drift)" in said
    assert "1 cell with (drift): neighbouring samples are alike" in said
    assert "--clock least=20, or a larger --budget" in said
    assert "too few samples" not in said


def test_a_kernel_against_the_best_other_of_its_journal(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    records = [kernel("mine", [0.02] * 5, "fwd"), kernel("fa4:bands", [0.0125] * 5, "fwd"), kernel("flex", [0.04] * 5, "fwd")]
    folder = str(write("a", records))
    speeds = [record["tflops"] for record in records]
    assert main(["compare", folder, "--kernel", "mine"]) == 0
    assert f"{speeds[0]:.0f} 0.62x of fa4:bands" in capsys.readouterr().out
    assert main(["compare", folder, "--kernel", "fa4", "--md"]) == 0
    assert f"| causal | {speeds[1]:.0f} 1.60x of mine |" in capsys.readouterr().out
    assert main(["compare", folder, "--kernel", "fa4:bands"]) == 0
    assert f"{speeds[1]:.0f} 1.60x of mine" in capsys.readouterr().out
    alone = str(write("b", [kernel("mine", [2.0] * 5, "fwd")]))
    failed = str(write("d", [kernel("mine", None, "fwd", status="oom", reason="out of memory"), records[2]]))
    ranks = {"level": "cp", "method": "ulysses", "ranks": 2, "grid": "2x1", "tflops": speeds[0] / 2}
    split = str(write("c", [kernel("mine", [0.02] * 5, "fwd") | ranks]))
    for arguments, said in (
        ([split, "--kernel", "mine"], "has only records of many ranks"),
        ([folder, "--kernel", "fa5"], "has no record of 'fa5'; it has fa4, fa4:bands, flex, mine."),
        ([failed, "--kernel", "mine"], f"mine has no time in {failed}: 1 oom"),
        ([f"{folder}/results.jsonl", "--kernel", "mine"], f"results.jsonl is a file; give the folder of a journal, {folder}/."),
        ([alone, "--kernel", "mine"], "measure more kernels: --kernels all"),
        ([folder], "give two folders A and B"),
        ([folder, folder, "--kernel", "mine"], "give two folders A and B"),
        ([folder, "--kernel", "mine", "--json"], "--json is for two folders"),
        ([folder, folder, "--md", "--json"], "choose one"),
    ):
        assert main(["compare", *arguments]) == 2
        assert said in capsys.readouterr().err


def test_a_table_for_a_pull_request(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *both(write), "--md"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("**1 BROKEN, 1 SLOWER")
    assert said[2].startswith("| verdict | kernel | mask |")
    assert said[3] == "|" + "---|" * 11
    assert any(line.startswith("| SLOWER | fa4 |") for line in said)


def test_too_few_samples_are_said_with_what_helps(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write("a", [make_record([1.0] * 4)]), write("b", [make_record([2.0] * 4)])
    assert main(["compare", str(a), str(b)]) == 0
    said = capsys.readouterr().out
    assert "too few samples" in said
    assert "--clock least=20" in said


TWICE = Path(__file__).parent / "data" / "h200-twice"


@pytest.mark.parametrize("pair", ["1", "2"])
def test_what_an_h200_measured_twice_did_not_change(pair: str) -> None:
    """40 cells of one commit in separate processes; two of such pairs."""
    compared = compare(TWICE / f"{pair}a", TWICE / f"{pair}b")
    assert len(compared.cells) == 40
    assert compared.counts["SLOWER"] + compared.counts["FASTER"] == 0
    assert compared.counts["SAME"] > 0.75 * 40


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


def test_the_table_and_the_counts(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *both(write)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:6]] == ["BROKEN", "SLOWER", "UNCLEAR", "FASTER", "MENDED"]
    assert "+10.0 %" in lines[2]
    assert lines[1].split()[-3:] == ["error", "it", "broke"], "the status and the reason of B"
    assert lines[5].endswith("it broke"), "of A, where B is mended"
    assert [line.split("bf16 ")[1].split()[:2] for line in lines[1:6]] == [["seed", str(seed)] for seed in (4, 1, 3, 2, 5)]
    assert "only in A: fa4 causal 8K fwd 64:8x128 bf16" in lines
    assert lines[-1] == ("1 BROKEN, 1 SLOWER, 1 UNCLEAR, 1 SAME, 1 FASTER, 1 MENDED, 1 UNMEASURED; 1 cell only in A, 0 only in B")


def test_json_is_complete(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *both(write), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["counts"]["SLOWER"] == 1
    slower = found["cells"][1]
    assert slower["ratio"]["value"] == pytest.approx(1.1, rel=1e-3)
    assert 1.03 < slower["ratio"]["low"] <= slower["ratio"]["high"]
    assert (slower["a"]["kernel"], slower["b"]["kernel"]) == ("fa4:bands", "fa4:native")
    assert [cell["seed"] for cell in found["only_in_a"]] == [7]


@pytest.mark.parametrize(
    ("after", "arguments", "code"),
    [
        ([STEADY, STEADY], [], 0),
        ([SLOW, STEADY], [], 1),
        ([SLOW, STEADY], ["--threshold", "15%"], 0),
        ([SLOW, STEADY], ["--threshold", "0.15"], 0),
        ([None, STEADY], [], 1),
        ([LOOSE, STEADY], [], 0),
        ([LOOSE, STEADY], ["--fail-on", "unclear"], 1),
        ([STEADY], [], 0),
        ([STEADY], ["--fail-on", "unclear"], 0),
        ([STEADY], ["--fail-on", "slower,missing"], 1),
    ],
)
def test_exit_codes(write: Write, after: list[list[float] | None], arguments: list[str], code: int) -> None:
    a = write("a", [make_record(STEADY, seed=seed) for seed in range(2)])
    b = write("b", [make_record(samples, seed=seed) for seed, samples in enumerate(after)])
    assert main(["compare", str(a), str(b), *arguments]) == code


@pytest.mark.parametrize(
    ("environment", "fields", "said"),
    [
        ({"device": "NVIDIA H100"}, {}, "the device (NVIDIA H200 and NVIDIA H100)"),
        ({"clock": {"target": 0.05}}, {}, "the clock's settings"),
        ({"clock": {**ENVIRONMENT["clock"], "target": 0.05}}, {}, "the clock's settings (target 0.02 and target 0.05)"),
        ({"threads": 4}, {}, "the number of threads (not recorded and 4)"),
        ({"power_limit_w": 500.0}, {}, "the power limit in W (700 and 500)"),
        ({"application_sm_mhz": 1410.0}, {}, "the application clock of the SMs in MHz (1980 and 1410)"),
        ({"application_memory_mhz": 2619.0}, {}, "the application clock of the memory in MHz (3201 and 2619)"),
    ],
)
def test_what_cannot_be_compared_is_refused_unless_forced(
    write: Write, capsys: pytest.CaptureFixture[str], environment: dict[str, Any], fields: dict[str, Any], said: str
) -> None:
    held = {"power_limit_w": 700.0, "application_sm_mhz": 1980.0, "application_memory_mhz": 3201.0}
    a, b = write("a", [make_record(STEADY)], held), write("b", [make_record(STEADY, **fields)], held | environment)
    assert main(["compare", str(a), str(b)]) == 2
    assert said in capsys.readouterr().err
    assert main(["compare", str(a), str(b), "--force"]) == 0
    assert f"compared anyway: A and B differ in {said}" in capsys.readouterr().out


def test_a_run_resumed_under_other_conditions_is_told_cell_by_cell(write: Write) -> None:
    """Both journals have cells at 700 and at 400 W, yet no cell was measured twice at the same limit."""
    a = write("a", [make_record(STEADY, seed=0), make_record(STEADY, seed=1, env="capped")])
    b = write("b", [make_record(SLOW, seed=0, env="capped"), make_record(SLOW, seed=1)])
    limits = {"e": {**ENVIRONMENT, "power_limit_w": 700.0}, "capped": {**ENVIRONMENT, "power_limit_w": 400.0}}
    for folder in (a, b):
        (folder / "env.json").write_text(json.dumps(limits))
    with pytest.raises(BadInput, match=r"the power limit in W \(400 and 700, 700 and 400\)"):
        compare(a, b)
    assert len(compare(a, b, force=True).cells) == 2


def test_a_journal_of_several_devices_is_refused(write: Write) -> None:
    a = write("a", [make_record(STEADY), make_record(STEADY, env="other", key="o")])
    (a / "env.json").write_text(json.dumps({"e": ENVIRONMENT, "other": {**ENVIRONMENT, "device": "NVIDIA H100"}}))
    with pytest.raises(BadInput, match=r"several devices \(NVIDIA H100, NVIDIA H200\)"):
        compare(a, write("b", [make_record(STEADY)]), force=True)


@pytest.mark.parametrize("other", [{}, {"power_limit_w": None}, {"power_limit_w": 700}])
def test_a_power_limit_that_one_side_does_not_know_is_no_difference(write: Write, other: dict[str, Any]) -> None:
    """Journals of before it was recorded, or a driver that does not say."""
    a, b = write("a", [make_record(STEADY)], {"power_limit_w": 700.0}), write("b", [make_record(STEADY)], other)
    assert compare(a, b).counts["SAME"] == compare(b, a).counts["SAME"] == 1


def test_a_whole_number_of_seconds_is_the_same_setting_with_a_point(write: Write) -> None:
    a, b = (write(name, [make_record(STEADY)], {"clock": {"budget_s": seconds}}) for name, seconds in (("a", 1), ("b", 1.0)))
    assert compare(a, b).counts["SAME"] == 1


def typed(samples: Any = (1.0,), **fields: Any) -> Record:
    return decode_record(line(make_record(samples, **fields)).encode())


def test_rows_that_would_read_the_same_say_what_tells_them_apart() -> None:
    seeds = [typed(seed=seed, mask_digest=f"d{seed}") for seed in (0, 1)]
    drawn = [typed(mask="full_document", mask_digest=digest) for digest in ("x", "y")]
    params = [typed(mask="sliding_window", params={"w": w}) for w in (512, 1024)]
    rows = describe_all([*seeds, *drawn, *params])
    shape = "64:8x128 bf16"
    assert [row[-1] for row in rows] == [
        *(f"{shape} seed 0", f"{shape} seed 1", f"{shape} mask_digest x", f"{shape} mask_digest y", shape, shape)
    ]
    assert [row[1] for row in rows[4:]] == ["sliding_window(w=512)", "sliding_window(w=1024)"]
    blocks = [typed(level="sparse", mask="uniform_block", source=source, mask_digest=source) for source in ("random", "nsa")]
    assert [row[-1] for row in describe_all(blocks)] == [f"{shape} source random", f"{shape} source nsa"]


def test_an_empty_journal_is_named(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write("a", []), write("b", [make_record(STEADY)])
    for pair in ((a, b), (b, a)):
        assert main(["compare", *map(str, pair)]) == 2
        assert f"there is no record in {a}; give folders in which" in capsys.readouterr().err


def test_nothing_in_common(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write("a", [make_record(STEADY)]), write("b", [make_record(STEADY, mask="full")])
    assert main(["compare", str(a), str(b)]) == 2
    assert "no cell in common" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--threshold", "much"], "--threshold 'much'"), (["--threshold", "-3%"], "--threshold"), (["--fail-on", "rain"], "--fail-on 'rain'")],
)
def test_settings_that_make_no_sense(write: Write, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    a = str(write("a", [make_record(STEADY)]))
    assert main(["compare", a, a, *(f"{arguments[0]}={arguments[1]}",)]) == 2
    assert said in capsys.readouterr().err
    assert main(["compare", a, a + "-missing"]) == 2
    assert "there is no journal in" in capsys.readouterr().err


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


@pytest.mark.parametrize("samples", [[4.0] * 3, [4.0]])
def test_fewer_than_five_samples_never_decide(write: Write, samples: list[float]) -> None:
    a, b = write("a", [make_record([1.0] * 25)]), write("b", [make_record(samples)])
    assert [cell.verdict for one, other in ((a, b), (b, a)) for cell in compare(one, other).cells] == ["UNCLEAR", "UNCLEAR"]


def test_a_doubtful_record_is_unclear_with_the_reason(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    doubtful = make_record(SLOW)
    doubtful["check"] = {"out": {"error": 1.0, "allowed": 0.1}}
    a, b = write("a", [make_record(STEADY)]), write("b", [doubtful])
    assert main(["compare", str(a), str(b)]) == 0
    assert "doubtful" in capsys.readouterr().out
    for one, other, side in ((a, b, "B"), (b, a, "A")):
        (cell,) = compare(one, other).cells
        assert (cell.verdict, cell.why) == ("UNCLEAR", f"{side} is doubtful: the error of out is above the tolerance")
    assert main(["compare", str(a), str(b), "--fail-on", "unclear", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["cells"][0]["why"] == "B is doubtful: the error of out is above the tolerance"


def test_a_record_of_older_code_is_noted(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    a = str(write("a", [make_record(STEADY), kernel("somebodys", STEADY, "fwd")]))
    assert main(["compare", a, a]) == 0
    assert "older version of the kernel's code than this LongCA has: 1 cell of A and 1 cell of B." in capsys.readouterr().out
    assert main(["compare", a, a, "--json"]) == 0
    assert [cell["a"]["older"] for cell in json.loads(capsys.readouterr().out)["cells"]] == [True, False]


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


PAPER = Path(__file__).parents[2] / "results" / "h200" / "paper-kernel"


def test_a_shipped_journal_matches_a_run_that_asked_by_bare_names() -> None:
    """Of each kernel and cell the run has the fastest variant, or the first where none has a time."""
    everything = read(PAPER).records
    chosen: dict[tuple[Any, ...], Record] = {}
    for record in everything:
        place = (record.kernel, record.problem.mask, record.built.digest, record.problem.seqlen, record.problem.pass_)
        if place not in chosen or (record.ok and (not chosen[place].ok or record.times.median < chosen[place].times.median)):
            chosen[place] = record
    bare = [replace(record, asked=record.kernel) for record in chosen.values()]
    assert len(bare) < len(everything)
    matches = match(everything, bare)
    assert len(matches.pairs) == len(bare)
    assert all(one.label == other.label for one, other in matches.pairs)
    assert matches.only_after == []
    assert {id(record) for record in matches.only_before} == {id(record) for record in everything} - {id(one) for one, _ in matches.pairs}


@pytest.mark.parametrize(
    "arguments",
    [["", "B"], ["A", ""], ["A", "--kernel", ""], ["A", "B", "--threshold", ""], ["A", "B", "--fail-on", " "]],
)
def test_an_empty_argument_is_refused(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(["compare", *arguments]) == 2
    assert " is empty; give a value, or leave it out." in capsys.readouterr().err
