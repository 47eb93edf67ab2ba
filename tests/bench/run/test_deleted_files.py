"""Somebody deletes files of a journal while a run writes to it: nothing that was measured is lost without a word."""

import os
import shutil
from pathlib import Path

import pytest

from longca.bench.one_device.level import OneDevice
from longca.bench.plan.suite import Suite
from longca.bench.run.campaign import Finished, measure, plan_level
from longca.results.files import read_results
from longca.results.journal import CannotWrite, Journal

pytestmark = pytest.mark.usefixtures("in_process")
PLUGIN = Path(__file__).parents[1] / "plugins" / "deletes.py"
MASKS = ("causal", "full", "sliding_window")


def run(out: Path, deleted: Path, monkeypatch: pytest.MonkeyPatch) -> Finished:
    monkeypatch.setenv("LONGCA_DELETE", str(deleted))
    suite = Suite(kernels=("deletes",), masks=MASKS, seqlens=("64",), heads=("2:1",), head_dims=("8",), dtypes=("fp32",))
    level = OneDevice(suite, "cpu", [str(PLUGIN)])
    return measure(level, plan_level(level), out)


@pytest.mark.parametrize("name", ["results.jsonl", "masks.jsonl", "env.json", ".lock", ".cache"])
def test_a_deleted_file_is_written_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    finished = run(out, out / name, monkeypatch)
    assert [record.mask for record in finished.results.records if record.pass_ == "fwd"] == list(MASKS)
    assert len(read_results(out).entries) == 6
    assert name == ".cache" or (out / name).exists()
    told = f"{name} in {out} changed or vanished during the run" in capsys.readouterr().err
    assert told == (not name.startswith("."))
    again = run(out, tmp_path / "nothing", monkeypatch)
    assert again.measured == 0


def test_a_removed_folder_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    with pytest.raises(CannotWrite, match="was removed during the run") as raised:
        run(out, out, monkeypatch)
    assert raised.value.exit_code == 2
    assert not out.exists()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal with six records."""
    run(tmp_path / "made", tmp_path / "nothing", monkeypatch)
    return tmp_path / "made"


@pytest.mark.parametrize("damage", ["deleted", "replaced by a part", "cut", "torn", "emptied"])
def test_the_journal_holds_every_record_whatever_happened_before_the_last(damage: str, made: Path, tmp_path: Path) -> None:
    records, said = read_results(made).entries, list[str]()
    with Journal(tmp_path / "other", said.append) as journal:
        path = journal.folder / "results.jsonl"
        for record in records[:-1]:
            journal.add(record)
        lines = path.read_bytes().splitlines(keepends=True)
        if damage == "deleted":
            path.unlink()
        elif damage == "replaced by a part":
            (tmp_path / "part").write_bytes(lines[0])
            (tmp_path / "part").replace(path)
        else:
            os.truncate(path, {"cut": len(lines[0]), "torn": len(lines[0]) + 7, "emptied": 0}[damage])
        journal.add(records[-1])
        assert journal.written() == {record.key: record for record in records}
    assert read_results(tmp_path / "other").entries == records
    assert len(said) == 1


def test_a_folder_that_another_run_took_over_is_left_to_it(made: Path) -> None:
    record = read_results(made).entries[0]
    with Journal(made) as journal:
        shutil.rmtree(made)
        with Journal(made) as other:
            with pytest.raises(ValueError, match="another run is writing"):
                journal.add(record)
            other.add(record)
    assert read_results(made).entries == [record]
