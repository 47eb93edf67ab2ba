"""Journals that no run of ours wrote, or that were damaged: whoever reads one names the file, the line and the field in one sentence."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from longca.cli import main
from longca.results.files import ENVIRONMENTS, MASKS, RESULTS

GOLDEN = Path(__file__).parents[1] / "results" / "golden" / "schema2"
MEASURED = 2  # the first line of the golden journals that has a time


def changed(folder: Path, **fields: Any) -> str:
    """A golden journal whose first measured record has other fields; `ms.spread` is a field of `ms`."""
    shutil.copytree(GOLDEN, folder)
    lines = (folder / RESULTS).read_text().splitlines()
    record = json.loads(lines[MEASURED])
    for name, value in fields.items():
        outer, _, inner = name.partition(".")
        record[outer] = record[outer] | {inner: value} if inner else value
    lines[MEASURED] = json.dumps(record)
    (folder / RESULTS).write_text("\n".join(lines) + "\n")
    return str(folder)


DAMAGE: dict[str, Any] = {
    "ms": "fast",
    "seqlen": "8K",
    "check": {"out": 3},
    "tflops": "many",
    "given": "text",
    "ms.spread": "wide",
    "peak_gib": "much",
    "plan_ms": "long",
    "ranks": "two",
    "ms.median": 1e-320,
    "heads_kv": 0,
    "status": "fine",
    "pass": "sideways",
    "params": [],
    "seed": -1,
    "key": None,
    "bytes_sent": [1, "x"],
    "flops": 0,
    "head_dim": 1 << 50,
}


@pytest.mark.parametrize("field", DAMAGE)
def test_a_field_that_the_schema_forbids_is_named_with_its_line(field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = changed(tmp_path / "theirs", **{field: DAMAGE[field]}), tmp_path / "out"
    for arguments in (["merge", str(out), folder], ["export", folder, "--csv", str(out)], ["report", folder, "-o", str(out)]):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert f"{RESULTS} line {MEASURED + 1} is damaged: " in error
        assert field.split(".")[0] in error
        assert error.count("\n") == 1
        assert not out.exists()


NESTED = "[" * 100_000
FILES = {
    "a number for packages": (ENVIRONMENTS, lambda text: json.dumps({name: {"packages": 3} for name in json.loads(text)})),
    "environments in a list": (ENVIRONMENTS, lambda text: "[1]"),
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


def test_bands_that_are_no_mask_are_refused_with_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "theirs"
    shutil.copytree(GOLDEN, folder)
    lines = (folder / MASKS).read_text().splitlines()
    (folder / MASKS).write_text("".join(json.dumps(json.loads(line) | {"bands": [[9, 3, 1 << 40, 7, -1, 5]]}) + "\n" for line in lines))
    assert main(["report", str(folder), "-o", str(tmp_path / "page.html")]) == 2
    said = capsys.readouterr().err
    assert f"{folder / MASKS}" in said
    assert "line 1" in said or f"{MASKS}:1" in said
    assert not (tmp_path / "page.html").exists()


def test_two_formats_are_not_printed_into_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(GOLDEN), "--csv", "--md"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "--csv and --md cannot all be printed" in err


def test_the_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Every field that a golden record has is in it."""
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert {RESULTS, MASKS, ENVIRONMENTS} <= set(schema)
    fields = schema["$defs"]["Record"]["properties"]
    for line in (GOLDEN / RESULTS).read_text().splitlines():
        assert set(json.loads(line)) <= set(fields)
