"""Exports and the doctor, on the journal of the first schema."""

import csv
import io
import json
from pathlib import Path

import pytest

from longca.bench import health, journal
from longca.bench.export import to_csv, to_hud, to_markdown
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


def test_parquet_without_pyarrow_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["export", str(GOLDEN), "--parquet", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err == "longca: writing Parquet needs pyarrow; pip install pyarrow, or use --csv.\n"


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
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert len(health.gpu_findings()) == 1  # process 88: what others do on a GPU that is hidden here disturbs nobody
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    text = " ".join(health.gpu_findings())
    for words in ("process 77", "its power cap", "thermal slowdown", "500 W of 700 W", "97 %", "persistence"):
        assert words in text
    assert "process 88" not in text
