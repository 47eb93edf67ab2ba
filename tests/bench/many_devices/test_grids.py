"""How many ranks there are and which grid each method gets; and plugins that break whoever imports them."""

import os
from pathlib import Path

import pytest

from bench.many_devices.conftest import SHAPE, SMALL
from longca.bench.many_devices.grids import crowded, ranks_of, refuse_crowd, settle
from longca.bench.many_devices.level import ManyDevices
from longca.bench.plan import suite as suites
from longca.cli import main
from longca.errors import Refused


def grids(suite: suites.Suite) -> dict[str, str]:
    return {cell.split.method: cell.split.grid for cell in ManyDevices(suite, "cpu").cells([]) if cell.split}


@pytest.mark.parametrize(
    ("grid", "usp", "loongtrain", "burst"),
    [
        ("2x2", "2x2", "2x2", "1x4x2"),
        ("1x4", "1x4", "1x4", "1x4"),
        ("2x2x2", "2x2", "2x2x2", "1x4x2"),
        ("2x2,1x4x2", "2x2", "1x4x2", "1x4x2"),
        ("1x4x4,2x2", "2x2", "1x4x4", "1x4x4"),
    ],
)
def test_windows_go_to_the_methods_that_have_them(grid: str, usp: str, loongtrain: str, burst: str) -> None:
    """A ring that splits no heads keeps its own grid where the given one splits them; a mesh takes the same as usp."""
    given = grids(SMALL.changed(nproc=4, grid=grid))
    assert (given["usp"], given["loongtrain"], given["burst"], given["mesh"]) == (usp, loongtrain, burst, usp)
    assert (given["ulysses"], given["magi"]) == ("4x1", "1x4")


def test_a_suites_grid_for_other_ranks_gives_way_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["run", "quick-cp", "--masks", "causal", "--passes", "fwd", "--device", "cpu", "--nproc", "3", "--dry-run"]
    assert main(asked) == 0
    said = capsys.readouterr()
    assert "note: the suite's grid 2x2,1x4x2 is for another number of ranks than 3, so every method uses its own." in said.err
    assert ["usp", "3", "3x1"] in [line.split()[:3] for line in said.out.splitlines()]
    assert main([*asked, "--grid", "2x2"]) == 2  # what a user says is never left out
    assert "the grid 2x2 is for 4 ranks, and there are 3" in capsys.readouterr().err


def test_another_number_of_ranks_than_the_job_has_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert main(["run", "--methods", "ulysses", *SHAPE, "--nproc", "4"]) == 2
    sentence = "longca: --nproc asks for 4 ranks, and this process is one of 2; leave out --nproc, or start 4 of them.\n"
    assert capsys.readouterr().err == sentence
    suite, _ = settle(SMALL.changed(nproc=4, grid="2x2"), ["usp"], "cpu", None, None)  # what a suite says is another matter
    assert (ranks_of(suite, "cpu"), suite.grid) == (2, "")


def test_ranks_that_share_cores_are_told_and_too_many_refused(capsys: pytest.CaptureFixture[str]) -> None:
    cores = len(os.sched_getaffinity(0))
    assert main(["run", "--methods", "ring_p2p", *SHAPE, "--nproc", str(2 * cores), "--dry-run"]) == 0
    assert f"note: {2 * cores} ranks share {cores} core" in capsys.readouterr().err
    many = ["run", "--methods", "ring_p2p", *SHAPE, "--nproc", str(17 * cores)]
    assert main(many) == 2
    assert capsys.readouterr().err.endswith(f"ask for --nproc {16 * cores} at most.\n")
    assert main([*many, "--dry-run"]) == 0  # which starts none
    assert crowded(4, 4) == []
    with pytest.raises(Refused, match="33 ranks are too many for 2 cores"):
        refuse_crowd(33, 2)


@pytest.mark.parametrize("asked", [["run", "--methods", "all", *SHAPE, "--dry-run"], ["ls", "cp"]])
def test_a_plugin_that_ends_its_process_is_a_sentence(asked: list[str], plugins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = plugins / "dying_import.py"
    assert main([*asked, "--plugin", str(path)]) == 2
    why = "its process ended with exit code 3 during import"
    assert capsys.readouterr().err == f"longca: the plugin {path} breaks the process that imports it, so fix it first: {why}.\n"


@pytest.mark.parametrize("grid", ["2x2,1x4", "2x2x1,2x2x2"])
def test_two_grids_of_a_kind_are_refused(grid: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "quick-cp", "--grid", grid, "--nproc", "4", "--dry-run", "--device", "cpu"]) == 2
    assert f"the grid {grid} names several of a kind" in capsys.readouterr().err
