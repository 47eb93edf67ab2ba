"""Journals that no run of ours wrote: whoever reads one names the file and the line."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from longca.bench import journal
from longca.cli import main

GOLDEN = Path(__file__).parents[1] / "bench" / "golden" / "schema1"


def foreign(folder: Path, **fields: Any) -> str:
    """The first record with other fields."""
    shutil.copytree(GOLDEN, folder)
    lines = (folder / journal.RESULTS).read_text().splitlines()
    lines[0] = json.dumps(json.loads(lines[0]) | fields)
    (folder / journal.RESULTS).write_text("\n".join(lines) + "\n")
    return str(folder)


@pytest.mark.parametrize("fields", [{"ms": "fast"}, {"seqlen": "8K"}, {"check": {"out": 3}}, {"tflops": "many"}], ids=str)
@pytest.mark.parametrize("verb", ["csv", "md", "hud", "merge"])
def test_a_field_of_another_type_is_refused_with_its_line(
    verb: str, fields: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = foreign(tmp_path / "theirs", **fields)
    out = tmp_path / "out"
    arguments = ["merge", str(out), folder] if verb == "merge" else ["export", folder, f"--{verb}", str(out)]
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert f"{journal.RESULTS} line 1: " in said
    assert said.count("\n") == 1
    assert not out.exists()


def test_two_formats_are_not_printed_into_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(GOLDEN), "--csv", "--md"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "--csv and --md would be printed into one another" in err
