"""Exports of a journal to CSV, Markdown and Parquet."""

import csv
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from longca.cli import main
from longca.report.terminal import failure_table
from longca.results import naming
from longca.results.export import to_csv, to_markdown
from longca.results.reading import read
from report.made import kernel, make_record, results_of

GOLDEN = Path(__file__).parent / "golden" / "schema2"


def test_csv_has_a_row_per_cell_with_its_device() -> None:
    results = read(GOLDEN)
    rows = list(csv.DictReader(io.StringIO(to_csv(results))))
    assert [row["key"] for row in rows] == [record.key for record in results.records]
    for row, record in zip(rows, results.records, strict=True):
        assert row["device"] == results.environments[record.env].device
        assert row["ms_median"] == ("" if record.timed is None else str(record.timed.median))
        assert json.loads(row["params"]) == record.built.params
        speed = None if record.timed is None else float(row["tokens_s"]) * record.timed.median / 1e3
        assert (speed or 0) == pytest.approx(record.problem.seqlen if record.timed else 0)


def test_no_cell_is_a_formula_to_a_spreadsheet() -> None:
    names = ["=cmd()", "+1", "-1", "@x", "plain"]
    made = [make_record(kernel=name, asked=name, variant=None, peak_gib=-0.5) for name in names]
    rows = list(csv.DictReader(io.StringIO(to_csv(results_of(made)))))
    assert [row["kernel"] for row in rows] == ["'=cmd()", "'+1", "'-1", "'@x", "plain"]
    assert {row["peak_gib"] for row in rows} == {"-0.5"}, "a number stays a number"


def test_markdown_leaves_out_what_is_unsupported_throughout() -> None:
    statuses = {"ax": "ok", "ay": "unsupported", "bx": "unsupported", "by": "unsupported", "cx": "oom", "cy": "unsupported"}
    made = [
        kernel(name, (1.0,) if status == "ok" else None, "fwd", mask=mask, mask_digest=mask, status=status)
        for (name, mask), status in statuses.items()
    ]
    text = to_markdown(results_of(made))
    assert "| mask | tokens | a | c |" in text
    assert "| x | 8K | 11 | oom |" in text
    assert "| y |" not in text
    assert text.endswith("Not shown, because nothing here is supported: b.\n")


FIRST = "give the folder of the journal first"


@pytest.mark.usefixtures("arrow")
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (f"{GOLDEN}", "give a format"),
        ("nothing --csv", "there is no journal"),
        *((f"empty --{way}", "there is no record in empty; give a folder in which") for way in ("csv", "md")),
        (f"{GOLDEN} --csv no/x", "cannot write no/x: No such file or directory; give another file."),
        (f"{GOLDEN} --parquet no/x", "cannot write no/x: No such file or directory; give another file."),
        *((words, FIRST) for words in ("--csv", "--md", "--csv x", "--parquet x")),
    ],
)
def test_what_cannot_be_written_is_a_sentence(
    words: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "results.jsonl").write_text("")
    (tmp_path / "empty" / "env.json").write_text("{}")
    assert main(["export", *words.split()]) == 2
    assert capsys.readouterr().err.startswith(f"longca: {error}")


@pytest.mark.parametrize("way", ["csv", "md"])
def test_the_folder_may_stand_before_or_behind_a_flag(way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "x")
    assert main(["export", str(GOLDEN), f"--{way}"]) == 0
    said = capsys.readouterr().out
    for words in ([f"--{way}", str(GOLDEN)], [f"--{way}=-", str(GOLDEN)]):
        assert main(["export", *words]) == 0
        assert capsys.readouterr().out == said
    assert main(["export", f"--{way}", file, str(GOLDEN)]) == 0
    assert Path(file).read_text() == said


def test_parquet_without_pyarrow_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["export", str(GOLDEN), "--parquet", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err == "longca: writing Parquet needs pyarrow; pip install pyarrow, or use --csv.\n"


class ColumnTable:
    """As pyarrow's: made from columns, all of one length."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        assert len({len(values) for values in columns.values()}) == 1
        self.rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    @classmethod
    def from_pydict(cls, columns: dict[str, list[Any]]) -> "ColumnTable":
        return cls(columns)


def write_table(table: ColumnTable, file: IO[bytes]) -> None:
    file.write(json.dumps(table.rows).encode())


@pytest.fixture
def arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for pyarrow, which writes JSON."""
    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(Table=ColumnTable))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", SimpleNamespace(write_table=write_table))


def mixed(folder: Path) -> Path:
    """A journal whose first record is of the level kernel, and a later one of cp; with a reason that older versions let through."""
    first, _, second, *_ = map(json.loads, (GOLDEN / "results.jsonl").read_text().splitlines())
    cp = {"level": "cp", "key": "cp", "method": "ulysses", "ranks": 2, "grid": "2x1", "bytes_sent": [1, 2]}
    bad = {"status": "error", "reason": "half \0 and \x1b[2J", "ms": None}
    folder.mkdir()
    (folder / "results.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in (first | bad, second | cp)))
    return folder


@pytest.mark.usefixtures("arrow")
def test_parquet_has_the_columns_of_all_levels(tmp_path: Path) -> None:
    assert main(["export", str(mixed(tmp_path / "mixed")), "--parquet", str(tmp_path / "x")]) == 0
    kernel, cp = json.loads((tmp_path / "x").read_text())
    assert (kernel["method"], cp["method"], cp["bytes_sent"]) == (None, "ulysses", [1, 2])
    assert kernel["samples"] is None
    assert len(cp["samples"]) == cp["ms_n"]


@pytest.mark.usefixtures("arrow")
def test_no_reason_of_an_old_record_breaks_an_export_or_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = mixed(tmp_path / "mixed")
    files = [f"--{name}={tmp_path / name}" for name in ("csv", "md", "parquet")]
    assert main(["export", str(folder), *files]) == 0
    (row, _) = csv.DictReader(io.StringIO((tmp_path / "csv").read_text(encoding="utf-8")))
    assert row["reason"] == json.loads((tmp_path / "parquet").read_text())[0]["reason"] == "half � and �[2J"
    capsys.readouterr()
    assert main(["export", str(folder), "--csv"]) == 0
    assert "half � and �[2J" in capsys.readouterr().out
    assert failure_table(naming.rows(read(folder))).rows[0][-1] == "half � and �[2J"
