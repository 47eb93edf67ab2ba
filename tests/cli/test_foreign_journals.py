"""Journals that no run of ours wrote, or that were damaged: whoever reads one names the file, the line and the field in one sentence."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from longca.cli import main
from longca.results.files import ENVIRONMENTS, MASKS, RESULTS

OLDER, GOLDEN = (Path(__file__).parents[1] / "results" / "golden" / name for name in ("schema2", "schema3"))
MEASURED = 2  # the first line of the golden journals that has a time


def changed(golden: Path, folder: Path, field: str, value: Any) -> str:
    """A golden journal whose first measured record has another field; `timed.spread` is a field of `timed`."""
    shutil.copytree(golden, folder)
    lines = (folder / RESULTS).read_text().splitlines()
    record = json.loads(lines[MEASURED])
    outer, _, inner = field.partition(".")
    record[outer] = record.get(outer, {}) | {inner: value} if inner else value
    lines[MEASURED] = json.dumps(record)
    (folder / RESULTS).write_text("\n".join(lines) + "\n")
    return str(folder)


DAMAGE: dict[str, Any] = {
    "timed": "fast",
    "problem": None,
    "problem.seqlen": "8K",
    "problem.ranks": 1 << 40,
    "timed.median": 1e-320,
    "status": "fine",
    "problem.pass": "sideways",
    "key": None,
    "over_ranks.bytes_sent": [1, "x"],
    "split": {"method": "usp", "grid": "8x8", "options": "stages=x"},
}
OLDER_DAMAGE: dict[str, Any] = {"ms": "fast", "flops": 0, "bytes_sent": [1, "x"]}


@pytest.mark.parametrize(
    ("golden", "field", "value"),
    [(golden, *damage) for golden, all_damage in ((GOLDEN, DAMAGE), (OLDER, OLDER_DAMAGE)) for damage in all_damage.items()],
)
def test_a_field_that_the_schema_forbids_is_named_with_its_line(
    golden: Path, field: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = changed(golden, tmp_path / "theirs", field, value), tmp_path / "out"
    assert main(["merge", str(out), folder]) == 2
    error = capsys.readouterr().err
    assert f"{RESULTS} line {MEASURED + 1} is damaged: " in error
    assert field in error
    assert error.count("\n") == 1
    assert not out.exists()


NESTED = "[" * 100_000
FILES = {
    "a number for packages": (ENVIRONMENTS, lambda text: json.dumps({name: {"packages": 3} for name in json.loads(text)})),
    "nested environments": (ENVIRONMENTS, lambda text: NESTED),
    "bands of two numbers": (MASKS, lambda text: json.dumps(json.loads(text.splitlines()[0]) | {"bands": [[1, 2]]}) + "\n"),
    "nested masks": (MASKS, lambda text: NESTED + "\n"),
    "nested records": (RESULTS, lambda text: NESTED + "\n" + text),
    "a record in a record": (RESULTS, lambda text: '{"a":' * 100_000 + "\n" + text),
}


@pytest.mark.parametrize("damage", FILES)
def test_a_damaged_file_is_one_sentence(damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "theirs"
    shutil.copytree(GOLDEN, folder)
    file, change = FILES[damage]
    (folder / file).write_text(change((folder / file).read_text()))
    for arguments in (["export", str(folder), "--csv"], ["report", str(folder), "-o", str(tmp_path / "out")]):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert file in error
        assert "damaged" in error
        assert error.count("\n") == 1
        assert len(error) < 1000
