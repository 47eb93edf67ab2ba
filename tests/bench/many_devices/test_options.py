"""Options of methods: from the command line and the suite to cells, records and the command that measures them again."""

from pathlib import Path

import pytest

from bench.many_devices.conftest import SHAPE, SMALL
from longca.bench.many_devices.level import ManyDevices
from longca.cli import main
from longca.results import reproduce
from longca.results.reading import read


def splits(**given: object) -> list[tuple[str, str, str]]:
    cells = ManyDevices(SMALL.changed(nproc=8, heads=("4:2",), **given), "cpu").cells([])
    return [(cell.split.method, cell.split.grid, cell.split.options) for cell in cells if cell.split]


def test_options_go_to_the_methods_that_have_them_and_windows_into_the_grid() -> None:
    given = splits(methods=("ring_p2p", "magi", "burst"), options={"stages": [1, 2, 4], "windows": 4})
    assert given == [
        ("ring_p2p", "1x8", ""),
        *(("magi", "1x8", options) for options in ("stages=1", "", "stages=4")),  # two is what it does anyway
        ("burst", "1x8x4", ""),
    ]
    assert splits(methods=("loongtrain",), grid="2x4", options={"windows": [1, 2, 4]}) == [
        ("loongtrain", grid, "") for grid in ("2x4", "2x4x2", "2x4x4")
    ]


def test_relays_are_used_where_a_job_has_several_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of ranks is one node; under torchrun a node has LOCAL_WORLD_SIZE ranks, and cells and records say so."""
    assert splits(methods=("magi", "ring_p2p")) == [("magi", "1x8", "stages=1"), ("ring_p2p", "1x8", "")]
    for name, value in {"RANK": "1", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert splits(methods=("magi", "ring_p2p")) == [("magi", "1x8", "node=4"), ("ring_p2p", "1x8", "")]
    assert splits(methods=("magi",), options={"node": [1, 2], "stages": 4}) == [("magi", "1x8", o) for o in ("stages=4", "node=2,stages=4")]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert splits(methods=("magi",)) == [("magi", "1x8", "stages=1")]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            ["--methods", "magi,burst", "--option", "stage=4"],
            "an option 'stage'; they have node, stages, windows, and `longca ls cp` shows",
        ),
        (["--methods", "magi", "--option", "stages=1.5"], "the option stages must be a whole number, not 1.5"),
        (["--methods", "burst", "--option", "windows=4", "--grid", "1x4x2"], "both say the windows; give one of them"),
        (["--kernels", "torch", "--option", "stages=4"], "--option is for context parallelism; add --level cp, or leave it out"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_starts(
    asked: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = [] if "--kernels" in asked else ["--nproc", "4"]
    assert main(["run", *asked, *SHAPE, *ranks, "--out", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_records_have_options_and_so_has_the_command_that_measures_them_again(tmp_path: Path) -> None:
    asked = ["run", "--methods", "magi", *SHAPE, "--option", "stages=1,2", "--passes", "fwd", "--nproc", "2", "--budget", "0.02"]
    assert main([*asked, "--out", str(tmp_path)]) == 0
    results = read(tmp_path)
    by_options = {record.split.options: record for record in results.records}
    assert set(by_options) == {"stages=1", ""}
    record = by_options["stages=1"]
    assert record.status == "ok", record.reason
    assert record.split_name == "magi 1x2 stages=1"
    command = reproduce.command(record, results.environment(record), results.masks)
    assert "--grid 1x2 --option stages=1 " in command
    usual = reproduce.command(by_options[""], results.environment(record), results.masks)
    assert "--grid 1x2 --option stages=2 " in usual  # a run would take one stage on one node
    again = command.split()[2:] if command.startswith("OMP") else command.split()[1:]
    assert main([*again, "--out", str(tmp_path)]) == 0  # the same key: nothing is measured twice
    assert len(read(tmp_path).records) == 2
