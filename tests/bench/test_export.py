"""Exports and the doctor, on the journal of the first schema."""

import csv
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from longca.bench import health, journal
from longca.bench.export import to_csv, to_hud, to_markdown
from longca.bench.summary import failures
from longca.cli import main

GOLDEN = Path(__file__).parent / "golden" / "schema1"


def test_csv_has_a_row_per_cell_with_its_device() -> None:
    records, environments = journal.load(GOLDEN), journal.load_environments(GOLDEN)
    rows = list(csv.DictReader(io.StringIO(to_csv(records, environments))))
    assert [row["key"] for row in rows] == [record["key"] for record in records]
    for row, record in zip(rows, records, strict=True):
        assert row["device"] == environments[record["env"]]["device"]
        assert row["ms_median"] == ("" if record["ms"] is None else str(record["ms"]["median"]))
        assert json.loads(row["params"]) == record["params"]
        speed = None if record["ms"] is None else float(row["tokens_s"]) * record["ms"]["median"] / 1e3
        assert (speed or 0) == pytest.approx(record["seqlen"] if record["ms"] else 0)


def test_markdown_says_a_speed_or_a_status() -> None:
    text = to_markdown(journal.load(GOLDEN), journal.load_environments(GOLDEN))
    assert "| causal | 256 | unavailable | wrong | " in text
    assert "### bwd, 2:1 heads" in text


def test_hud_has_the_fields_of_version_3() -> None:
    entries = json.loads(to_hud(journal.load(GOLDEN), journal.load_environments(GOLDEN)))
    for entry in entries:
        assert entry["schema_version"] == "v3"
        assert {"name", "mode", "dtype", "extra_info"} <= set(entry["benchmark"])
        assert {"name", "type", "backend", "origins"} <= set(entry["model"])
        assert entry["metric"]["name"] in ("tflops", "latency")
        assert all(value > 0 for value in entry["metric"]["benchmark_values"])


PAPER = [Path(__file__).parents[2] / "results" / "h200" / name for name in ("paper-kernel", "paper-sparse")]


def cp_cells() -> list[dict[str, Any]]:
    """Of one kernel and mask: what differs is what only this level has."""
    record = next(record for record in journal.load(GOLDEN) if record["status"] == "ok")
    ways = [("usp", 4, "2x2"), ("usp", 4, "4x1"), ("ring_p2p", 4, "1x4"), ("ring_p2p", 8, "1x8")]
    return [record | {"level": "cp", "method": method, "ranks": ranks, "grid": grid} for method, ranks, grid in ways]


@pytest.mark.parametrize("source", [*PAPER, None], ids=lambda source: source.name if source else "cp")
def test_hud_tells_all_cells_apart(source: Path | None) -> None:
    records = journal.load(source) if source else cp_cells()
    measured = [record for record in records if record["status"] == "ok"]
    entries = json.loads(to_hud(records, journal.load_environments(source) if source else {}))
    assert len(entries) == 2 * len(measured) > 0
    told = [json.dumps([entry["model"]["name"], entry["benchmark"]["extra_info"], entry["metric"]["name"]]) for entry in entries]
    assert len(set(told)) == len(told)


def test_hud_names_block_patterns_by_their_parameters() -> None:
    (first, second) = [record for record in journal.load(PAPER[1]) if record["mask"] == "variable_block" and record["status"] == "ok"][:2]
    names = [entry["model"]["name"] for entry in json.loads(to_hud([first, second], {}))]
    avg, ratio = (first["params"][name] for name in ("avg", "ratio"))
    assert names[0].startswith(f"variable_block-avg={avg}-ratio={ratio}-")
    told = json.loads(to_hud([first], {}))[0]["benchmark"]["extra_info"]
    assert (json.loads(told["params"]), told["source"]) == (first["params"], first.get("source"))


def test_the_verb_writes_files_and_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(GOLDEN), "--csv", str(tmp_path / "x.csv"), "--md", str(tmp_path / "x.md")]) == 0
    assert (tmp_path / "x.csv").stat().st_size > 0
    assert (tmp_path / "x.md").stat().st_size > 0
    assert main(["export", str(GOLDEN)]) == 2
    assert main(["export", str(tmp_path), "--csv"]) == 2
    assert main(["export", str(GOLDEN), "--csv", str(tmp_path / "no" / "x.csv")]) == 2
    errors = capsys.readouterr().err
    assert "say what to write" in errors
    assert "there is no journal" in errors
    assert "cannot write" in errors


@pytest.mark.parametrize("way", ["csv", "md", "hud"])
def test_the_folder_may_stand_before_or_behind_a_flag(way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "x")
    assert main(["export", str(GOLDEN), f"--{way}"]) == 0
    said = capsys.readouterr().out
    for words in ([f"--{way}", str(GOLDEN)], [f"--{way}=-", str(GOLDEN)]):
        assert main(["export", *words]) == 0
        assert capsys.readouterr().out == said
    assert main(["export", f"--{way}", file, str(GOLDEN)]) == 0
    assert Path(file).read_text() == said
    capsys.readouterr()
    for words in ([f"--{way}"], [f"--{way}", file], ["--parquet", file]):
        assert main(["export", *words]) == 2
        assert capsys.readouterr().err.startswith("longca: name the folder of the journal first")


def test_parquet_without_pyarrow_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["export", str(GOLDEN), "--parquet", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err == "longca: writing Parquet needs pyarrow; pip install pyarrow, or use --csv.\n"


class FirstRowTable:
    """As pyarrow's: the first row says which columns there are."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = [{name: row.get(name) for name in rows[0]} for row in rows]

    @classmethod
    def from_pylist(cls, rows: list[dict[str, Any]]) -> "FirstRowTable":
        return cls(rows)


def write_table(table: FirstRowTable, file: IO[bytes]) -> None:
    file.write(json.dumps(table.rows).encode())


@pytest.fixture
def arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for pyarrow, which writes JSON."""
    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(Table=FirstRowTable))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", SimpleNamespace(write_table=write_table))


def mixed(folder: Path) -> Path:
    """A journal whose first record is of the level kernel, and a later one of cp; with a reason that older versions let through."""
    first, second, *_ = journal.load(GOLDEN)
    cp = {"level": "cp", "key": "cp", "method": "ulysses", "ranks": 2, "grid": "2x1", "bytes_sent": [1, 2]}
    bad = {"status": "error", "reason": "half \ud800 and \0 and \x1b[2J", "ms": None}
    folder.mkdir()
    (folder / "results.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in (first | bad, second | cp)))
    return folder


@pytest.mark.usefixtures("arrow")
def test_parquet_has_the_columns_of_all_levels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(mixed(tmp_path / "mixed")), "--parquet", str(tmp_path / "x")]) == 0
    kernel, cp = json.loads((tmp_path / "x").read_text())
    assert (kernel["method"], cp["method"], cp["bytes_sent"]) == (None, "ulysses", [1, 2])
    capsys.readouterr()
    assert main(["export", str(GOLDEN), "--parquet", str(tmp_path / "no" / "x")]) == 2
    assert capsys.readouterr().err == f"longca: cannot write {tmp_path}/no/x: No such file or directory; give another file.\n"


def test_real_parquet_has_them_too(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    assert main(["export", str(mixed(tmp_path / "mixed")), "--parquet", str(tmp_path / "x")]) == 0
    kernel, cp = parquet.read_table(str(tmp_path / "x")).to_pylist()
    assert (kernel["method"], cp["method"], cp["bytes_sent"]) == (None, "ulysses", [1, 2])
    assert main(["export", str(GOLDEN), "--parquet", str(tmp_path / "no" / "x")]) == 2


@pytest.mark.usefixtures("arrow")
def test_no_reason_of_an_old_record_breaks_an_export_or_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = mixed(tmp_path / "mixed")
    files = [f"--{name}={tmp_path / name}" for name in ("csv", "md", "hud", "parquet")]
    assert main(["export", str(folder), *files]) == 0
    (row, _) = csv.DictReader(io.StringIO((tmp_path / "csv").read_text(encoding="utf-8")))
    assert row["reason"] == json.loads((tmp_path / "parquet").read_text())[0]["reason"] == "half � and � and �[2J"
    capsys.readouterr()
    assert main(["export", str(folder), "--csv"]) == 0
    assert "half � and � and �[2J" in capsys.readouterr().out
    assert failures(journal.load(folder)).rows[0][-1] == "half � and � and �[2J"


def test_doctor_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--device", "cpu", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["kernels"]["torch:plain"] == ""
    assert "runs on cuda only" in facts["kernels"]["fa3"]
    assert main(["doctor", "--device", "cpu"]) == 0
    assert "kernels " in capsys.readouterr().out


def test_doctor_finds_what_disturbs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(query: str, fields: tuple[str, ...]) -> list[dict[str, str]]:
        if query == "compute-apps":
            return [dict(zip(fields, (pid, "python", name), strict=True)) for pid, name in (("77", "GPU-a"), ("88", "GPU-b"))]
        quiet = ("0x0", "700.00", "700.00", "0", "Enabled", "GPU-b")
        return [dict(zip(fields, row, strict=True)) for row in (("0x24", "500.00", "700.00", "97", "Disabled", "GPU-a"), quiet)]

    monkeypatch.setattr(health.devices, "ask", answer)
    monkeypatch.setattr(health, "find_spec", lambda name: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert [sentence for sentence in health.gpu_findings() if "nvidia-ml-py" in sentence]
    monkeypatch.setattr(health, "find_spec", lambda name: name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert len(health.gpu_findings()) == 1  # process 88: what others do on a GPU that is hidden here disturbs nobody
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    text = " ".join(health.gpu_findings())
    for words in ("process 77", "its power cap", "thermal slowdown", "500 W of 700 W", "97 %", "persistence"):
        assert words in text
    assert "process 88" not in text
