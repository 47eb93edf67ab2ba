"""A pinned baseline, a history, and a comment on a pull request: with journals whose times a test chooses."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longca
from journals import Write
from longca.bench.run.campaign import Finished
from longca.cli import main
from longca.compare.baseline import Against, hold_against
from longca.results.reading import read
from report.made import make_record

FOUR_PERCENT = [1.04**commit for commit in range(6)]


def samples(ms: float, seed: int = 0) -> list[float]:
    return (ms * np.exp(0.003 * np.random.default_rng(seed).standard_normal(30))).tolist()  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def commits(write: Write) -> list[Path]:
    """Six journals, each four percent slower than the one before."""
    return [write(f"commit-{number}", [make_record(samples(ms, number))]) for number, ms in enumerate(FOUR_PERCENT)]


def against(folder: Path, name: str = "main", left: int = 0, **settings: Any) -> Against:
    return hold_against(folder, read(folder).records, left, name, **{"threshold": 0.05, **settings})


def test_four_percent_per_commit_add_up_to_an_alarm(commits: list[Path]) -> None:
    first, *later = (against(folder) for folder in commits)
    assert first.ok
    assert [one.ok for one in later] == [True, False, False, False, False]
    assert all(longca.compare(a, b, threshold="5%").ok for a, b in pairwise(commits)), "neighbours are alike"
    assert "SLOWER" in str(later[-1].parts()[2])
    assert read("baselines/main").records == read(commits[0]).records


def test_it_is_kept_until_somebody_renews_it(commits: list[Path], write: Write) -> None:
    against(commits[0])
    assert not against(commits[5]).ok
    assert against(commits[5], renew=True).ok
    assert against(commits[5]).ok
    assert [path.name for path in Path("baselines").iterdir()] == ["main"], "nothing else is left behind"
    broken = write("broken", [make_record(samples(1.0)), make_record(None, seed=1, status="wrong", reason="out is off")])
    assert not against(broken, renew=True).ok
    assert "this run is not stored, because 1 cell failed" in against(broken, "other").said
    assert against(commits[5]).ok


def test_a_cell_that_is_not_measured_any_more_fails(write: Write) -> None:
    against(write("two", [make_record(samples(1.0), seed=seed) for seed in range(2)]))
    assert not against(write("one", [make_record(samples(1.0))])).ok


def test_a_noisy_baseline_is_stored_with_a_warning(write: Write) -> None:
    noisy = make_record(samples(1.0), noisy=True, spread=0.05)
    stored = against(write("noisy", [noisy]))
    assert stored.ok
    assert stored.said.endswith(" warning: 1 of 1 time is noisy, so verdicts there will be UNCLEAR.")
    quiet = against(write("quiet", [make_record(samples(1.0)), make_record(samples(1.0), seed=1, noisy=True)]), "quiet")
    assert "noisy" not in quiet.said, "one that missed a stricter target only is not too noisy"


def test_a_run_that_cannot_be_compared_says_so_and_is_shown(commits: list[Path], write: Write) -> None:
    against(commits[0])
    other = against(write("other", [make_record(samples(1.0), seqlen=4096)]))
    assert not other.ok
    assert "have no cell in common" in other.said
    against(write("held", [make_record(samples(1.0))], {"power_limit_w": 700.0}), "held")
    capped = against(write("capped", [make_record(samples(1.0))], {"power_limit_w": 400.0}), "held")
    assert not capped.ok
    assert "the power limit" in capped.said


def test_a_run_that_is_not_complete_is_neither_compared_nor_kept(commits: list[Path]) -> None:
    assert not against(commits[0], left=3).ok
    assert not Path("baselines").exists()


RUN = ["run", "--kernels", "torch:plain", "--masks", "causal", "--seqlens", "64", "--heads", "2:1", "--head-dim", "8", "--dtype", "fp32"]


def test_the_command_pins_compares_and_fails(
    commits: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With made journals in the place of measured ones."""
    number = iter([0, 1, 5, 5])

    def measured(level: Any, planned: Any, out: Path, **_: Any) -> Finished:
        folder = commits[next(number)]
        Path("now").unlink(missing_ok=True)
        Path("now").symlink_to(folder)
        return Finished(read(folder), 0, False, 0, 0.0, {})

    monkeypatch.setattr("longca.api.run.measure", measured)
    command = [*RUN, "--device", "cpu", "--out", "now", "--baseline", "main", "--threshold", "5%"]
    assert main(command) == 0
    assert "there was none; this run is stored as the baseline" in capsys.readouterr().out
    assert main(command) == 0
    *_, against, counts = capsys.readouterr().out.splitlines()
    assert (against, counts) == ("against the baseline main (baselines/main), with a threshold of 5 %:", "1 SAME")
    assert main(command) == 1
    assert "SLOWER   fa4" in capsys.readouterr().out
    assert main([*command, "--renew-baseline"]) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--renew-baseline"], "--renew-baseline is for a baseline"),
        (["--threshold", "5%"], "--threshold is for a baseline"),
        (["--baseline", "a b"], "'a b' is not a valid name of a baseline"),
        (["--baseline", "a", "--threshold", "x"], "--threshold 'x' is not understood"),
        (["--baseline", "a", "--shard", "1/2"], "a shard is a part of a run"),
        (["--baseline", "../main"], "the baseline ../main would be outside of its folder; write its path without '..'."),
        (["--baseline", "/dev/null"], "the baseline /dev/null needs a folder, and /dev/null is a file; give another name."),
        (["--baseline", "/dev/null/a"], "the baseline /dev/null/a needs a folder, and /dev/null is a file"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_measured(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN, *flags]) == 2
    assert capsys.readouterr().err.startswith(f"longca: {message}")


@pytest.mark.parametrize("count", [12, 200])
def test_two_journals_have_the_numbers_of_compare(count: int, write: Write) -> None:
    """Skewed times, of which the ratio of the medians is another one."""
    rng = np.random.default_rng(3)
    before, after = (level * (1 + rng.gamma(0.5, spread, count)) for level, spread in ((1.0, 0.1), (1.8, 0.02)))
    a, b = (write(name, [make_record(list(times))]) for name, times in (("a", before), ("b", after)))
    (row,) = longca.compare(a, b).rows
    shifts = np.log(after[:, None] / before[None, :])
    assert row["ratio"] == pytest.approx(np.exp(np.median(shifts)))
    last = longca.history(a, b).rows[-1]
    assert last["ratio"] == row["ratio"]
    percents = [f"{100 * (row[name] - 1):+.1f}" for name in ("ratio", "low", "high")]
    assert last["step"] == f"SLOWER {percents[0]} % ({percents[1]} to {percents[2]} %)"
    assert abs(row["ratio"] - row["b_ms"] / row["a_ms"]) > 0.001


def test_a_history_leaves_out_what_is_not_trusted(write: Write) -> None:
    doubtful = make_record(samples(1.4), noisy=True, spread=0.05)
    steady = [make_record(samples(1.0, seed), seed=seed + 1) for seed in range(4)]
    failed = make_record(None, status="oom", reason="out of memory")
    folders = [write(f"c{number}", [record, *steady]) for number, record in enumerate([make_record(samples(1.0)), doubtful, failed])]
    found = longca.history(*folders)
    assert found.ok
    assert [row["step"] for row in found.rows if "seed 0" in row["shape"]] == ["", "noisy", "oom: out of memory"]
    sentence = "2 of 15 times were not compared: they are missing, doubtful, noisy or of too few samples"
    assert f"{sentence}; --all shows why." in repr(found)
    assert f"{sentence}." in found.markdown(everything=True)
    assert "not compared" not in repr(longca.history(*(write(name, steady) for name in ("before", "after"))))


def test_a_history_is_in_the_order_of_its_numbers(write: Write) -> None:
    Path("bench").mkdir()
    for number, ms in zip((8, 9, 10, 11), (1.0, 1.0, 1.0, 1.2), strict=True):
        write(f"run-{number}", [make_record(samples(ms, number))]).rename(Path("bench") / f"run-{number}")
    rows = longca.history("bench").rows
    assert [row["commit"] for row in rows] == ["run-8", "run-9", "run-10", "run-11"]
    assert [row["commit"] for row in rows if row["step"]] == ["run-11"]
    assert main(["compare", "--history", "bench"]) == 0, "an old slowdown is not today's failure"
    assert main(["compare", "--history", "bench", "--fail-on", "slower"]) == 1
    write("run-12", [make_record(samples(1.0, 12))]).rename(Path("bench") / "run-12")
    assert main(["compare", "--history", "bench", "--fail-on", "slower"]) == 0, "a single slow run is no failure of later ones"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--history", "one"], "a history needs two journals or more"),
        (["one", "--history", "one", "one"], "--history takes all its folders itself"),
        (["--history", "one", "other"], "one and other differ in the device"),
        (["--history", "one", "one", "--fail-on", "missing"], "--fail-on missing is for two folders"),
    ],
)
def test_bad_histories(arguments: list[str], message: str, write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("one", [make_record(samples(1.0))])
    write("other", [make_record(samples(1.0))], {"device": "another"})
    assert main(["compare", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"longca: {message}")


def test_a_comment_on_a_pull_request_is_of_bounded_length(write: Write) -> None:
    a = write("a", [make_record(samples(1.0), seed=seed) for seed in range(130)])
    b = write("b", [make_record(samples(1.2), seed=seed) for seed in range(129)])
    headline, table, *rest = longca.compare(a, b).markdown().split("\n\n")  # type: ignore[union-attr]
    assert headline == "**129 SLOWER; 1 cell only in A, 0 only in B**"
    assert len(table.splitlines()) == 2 + 100
    assert rest[0] == "* 29 more rows"
