"""Which records of a journal count, and what is said of those that do not."""

import json
from pathlib import Path

import pytest

from journals import Write
from longca.cli import main
from longca.results import reading
from longca.results.record import Record as TypedRecord
from report.made import Record, around, kernel


def read(folder: Path) -> list[TypedRecord]:
    return reading.read(folder).records


def edited() -> list[Record]:
    """A kernel of which the text changed twice, which gives it another key each time; beside it one that stayed."""
    mine = {"seqlen": 1024, "which": "fwd"}
    wrong = {"status": "wrong", "reason": "out is off", "check": {"out": {"error": 1.0, "allowed": 0.1}}}
    versions = [kernel("mine", None, **mine) | wrong, kernel("mine", around(4.0), **mine), kernel("mine", around(20.0), **mine)]
    keyed = [record | {"key": f"v{number}"} for number, record in enumerate(versions, 1)]
    return [keyed[0], kernel("fa4:bands", around(10.0), **mine), *keyed[1:]]


def test_of_records_that_measure_the_same_the_last_one_counts(write: Write) -> None:
    folder = write("edited", edited())
    assert [record.key for record in read(folder) if record.kernel == "mine"] == ["v3"]
    assert [record.kernel for record in read(folder)] == ["mine", "fa4"], "at the place of the first"


def test_a_forward_whose_backward_was_mended_replaces_the_one_that_ran_alone(write: Write) -> None:
    alone, beside = kernel("mine", around(4.0), "fwd", grad=False), kernel("mine", around(5.0), "fwd", grad=True)
    planned = {"given": {"grad": True}}
    folder = write("mended", [alone | planned | {"key": "v1"}, beside | planned | {"key": "v2"}])
    assert [record.key for record in read(folder)] == ["v2"]
    folder = write("apart", [alone | {"key": "v1", "given": {}}, beside | planned | {"key": "v2"}])  # asked for alone: another thing
    assert [record.key for record in read(folder)] == ["v1", "v2"]


SHAPE = ["--masks", "causal", "--seqlens", "64", "--heads", "1:1", "--head-dim", "16", "--dtype", "fp32", "--passes", "fwd"]
RUN = ["run", "--kernels", "torch:plain", *SHAPE, "--budget", "0.02", "--device", "cpu"]


@pytest.mark.usefixtures("in_process")
def test_going_back_to_an_older_version_makes_it_count_again(tmp_path: Path) -> None:
    """Its record is there, so it is not measured; yet a report must show what this run says."""
    run = [*RUN, "--out", str(tmp_path)]
    assert main(run) == 0
    (first,) = read(tmp_path)
    path = tmp_path / "results.jsonl"
    with path.open("a") as file:
        file.write(json.dumps(json.loads(path.read_text()) | {"key": "of a later version"}) + "\n")
    assert [record.key for record in read(tmp_path)] == ["of a later version"]
    for _ in range(2):
        assert main(run) == 0
        assert read(tmp_path) == [first]
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3, "once is enough"


def test_what_differs_in_anything_that_is_asked_for_stays(write: Write) -> None:
    made = [kernel("mine", around(1.0), seed=seed, grad=grad, which="fwd") for seed in (0, 1) for grad in (True, False)]
    made += [kernel("mine", around(1.0), env="other"), kernel("mine", around(1.0)), kernel("mine:two", around(1.0))]
    made += [kernel("mine", around(1.0), level="cp", method=method, ranks=2, grid="1x2") for method in ("ulysses", "ring")]
    folder = write("apart", [record | {"key": str(number)} for number, record in enumerate(made)])
    facts = json.loads((folder / "env.json").read_text())
    (folder / "env.json").write_text(json.dumps(facts | {"other": facts["e"] | {"device": "another"}}))
    assert len(read(folder)) == len(made)


READING = [
    ["report", "DIR", "-o", "OUT"],
    ["export", "DIR", "--csv", "OUT"],
    ["compare", "DIR", "DIR"],
    ["merge", "OUT", "DIR"],
    ["recommend", "--results", "DIR", "--mask", "causal", "--seqlen", "1K", "--pass", "fwd"],
    ["recommend", "--results", "DIR", "--export", "OUT"],
]


@pytest.mark.parametrize("command", READING)
def test_what_a_journal_lacks_is_said_once(command: list[str], write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("torn", edited())
    places = {"DIR": str(folder), "OUT": str(tmp_path / "out")}
    main([places.get(word, word) for word in command])
    assert "note: " not in capsys.readouterr().err
    (folder / "env.json").unlink()
    with (folder / "results.jsonl").open("a") as file:
        file.write('{"key": "half')
    main([places.get(word, word) for word in command])
    said = capsys.readouterr().err
    assert said.count(f"note: {folder}/env.json is missing, so the device and the settings") == 1
    assert said.count(f"note: skipped the incomplete last line of {folder}/results.jsonl (13 bytes)") == 1
