"""Journals that are offered for publication: what is refused, what is removed, and that the copy says the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from longca.cli import main
from longca.results import submission
from longca.results.files import read_environments
from longca.results.reading import read
from report.made import make_record

ENVIRONMENT = {
    "device": "NVIDIA H100 80GB HBM3", "device_kind": "cuda", "cpu": "a CPU",
    "cores": 8, "system": "Linux", "python": "3.12", "longca": "0.1",
    "packages": {"torch": "2.11"}, "clock": {"warmup_s": 0.1}, "date": "2026-11-01", "driver": "580", "gpu_memory_mib": "81559",
    "power_limit_w": 700.0,
}  # fmt: skip


def journal(folder: Path, *records: dict[str, Any], environment: dict[str, Any] | None = None) -> Path:
    folder.mkdir()
    lines = [json.dumps(record | {"schema": 2, "given": {}}) for record in records]
    (folder / "results.jsonl").write_text("".join(line + "\n" for line in lines))
    (folder / "env.json").write_text(json.dumps({"e": ENVIRONMENT | (environment or {})}))
    return folder


def failed(reason: str) -> dict[str, Any]:
    return make_record(None, status="error", reason=reason, kernel="flex", asked="flex", variant=None) | {"key": "failed"}


def test_a_whole_journal_is_packed_and_its_copy_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = journal(tmp_path / "mine", make_record([1.0] * 5), failed("it broke"))
    assert main(["submit", str(source), "--out", str(tmp_path / "out")]) == 0
    copy = tmp_path / "out" / "h100-80gb-hbm3" / "mine"
    assert sorted(path.name for path in copy.iterdir()) == ["env.json", "masks.jsonl.xz", "results.jsonl.xz"]
    assert read(copy).records == read(source).records
    assert read_environments(copy) == read_environments(source)
    assert f"{copy}: 1 cell with a time\nalso 1 cell without a time, wrong or failed (1 error): " in capsys.readouterr().out


def test_cells_that_are_wrong_or_failed_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statuses = ("wrong", "wrong", "timeout", "oom", "unsupported", "skipped", "unavailable")
    others = [failed("why") | {"status": status, "key": f"{number}", "seed": number} for number, status in enumerate(statuses)]
    source = journal(tmp_path / "mine", make_record([1.0] * 5), *others)
    assert main(["submit", str(source), "--out", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("also")] == [
        "also 4 cells without a time, wrong or failed (2 wrong, 1 timeout, 1 oom): they are published too; "
        "`longca run` with --retry failed measures them again."
    ]
    source = journal(tmp_path / "right", make_record([1.0] * 5), others[4], others[5])
    assert main(["submit", str(source), "--out", str(tmp_path / "out")]) == 0
    assert "without a time" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("cannot open /home/ada/work/kernel.py: denied", "cannot open kernel.py: denied"),
        ("File '/opt/venv/lib/python3.12/site-packages/x.py', line 3", "File 'x.py', line 3"),
        (r"cannot open C:\Users\ada\kernel.py", "cannot open kernel.py"),
        ("see https://example.org/a/b/c", "see https://example.org/a/b/c"),
        ("12 TFLOP/s on tf32/bf16, out/run is relative", "12 TFLOP/s on tf32/bf16, out/run is relative"),
        ("rank 3 on node17 of ada", "rank 3 on … of …"),
        ("adaptive", "adaptive"),
    ],
)
def test_paths_and_private_words_are_removed(text: str, clean: str, tmp_path: Path) -> None:
    source = journal(tmp_path / "mine", make_record([1.0] * 5), failed(text), environment={"plugins": {"mine": ["/home/ada/mine.py"]}})
    done = submission.prepare(source, tmp_path / "out", ["node17", "ada"])
    assert [record.reason for record in read(done.folder).records if not record.ok] == [clean]
    assert read_environments(done.folder)["e"].plugins == {"mine": ["mine.py"]}
    assert done.cleaned == 1 + (text != clean)


@pytest.mark.parametrize(
    ("records", "environment", "says"),
    [
        ([failed("it broke")], {}, "no cell has a time"),
        ([make_record([1.0] * 5, check=None)], {}, "causal, 8192 tokens, fwd cannot be believed: it has a time but no check"),
        ([make_record([1.0] * 5)], {"driver": None, "packages": {}}, "does not say packages, driver"),
        ([make_record([1.0] * 5, env="other")], {}, "does not hold the environment other of 1 record"),
        ([make_record([1.0] * 5, simulated="h100-ib")], {}, "simulated; offer what was measured"),
    ],
)
def test_what_cannot_be_published_is_refused(
    records: list[dict[str, Any]], environment: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = journal(tmp_path / "mine", *records, environment=environment)
    assert main(["submit", str(source), "--out", str(tmp_path / "out")]) == 1
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_copy_of_an_earlier_time_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = journal(tmp_path / "mine", make_record([1.0] * 5))
    command = ["submit", str(source), "--out", str(tmp_path / "out")]
    assert [main(command), main(command)] == [0, 2]
    assert "exists; remove it, or give another --out." in capsys.readouterr().err


def test_folders_of_devices() -> None:
    names = ["NVIDIA H200", "NVIDIA A100-SXM4-80GB", "AMD EPYC 9654 96-Core Processor", "Intel(R) Xeon(R) Processor", "–"]
    assert [submission.home(name) for name in names] == ["h200", "a100-sxm4-80gb", "epyc-9654-96-core", "xeon", "other"]
