"""`longca run`: dry runs, folders, and what its flags reach."""

import re
from pathlib import Path

import pytest

from longca import devices
from longca.bench.one_device import compiled_code
from longca.cli import main

SMALL = ["--kernels", "torch", "--device", "cpu", "--dry-run"]
CAUSAL = [*SMALL, "--masks", "causal", "--seqlens", "64", "--heads", "2:1"]


def test_a_dry_run_shows_the_whole_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *CAUSAL, "--head-dim", "32/16", "--softcap", "50", "--sinks"]) == 0
    assert "32/16, softcap 50, sinks" in capsys.readouterr().out


def test_the_documented_workload_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text()
    steps = [line for line in text.splitlines() if line.startswith('{"mask"')]
    (tmp_path / "steps.jsonl").write_text("\n".join(steps))
    assert main(["run", *SMALL, "--workload", str(tmp_path / "steps.jsonl"), "--passes", "fwd"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1:-1]] == ["causal_document", "sliding_window_causal", "causal_document"]


@pytest.mark.usefixtures("in_process")
def test_a_dry_run_counts_what_the_journal_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags, out = [flag for flag in CAUSAL if flag != "--dry-run"], tmp_path / "out"
    asked = ["run", *flags, "--passes", "fwd", "--out", str(out)]
    assert main([*asked, "--dry-run"]) == 0
    assert re.fullmatch(r"1 cell, about \d+ s", capsys.readouterr().out.splitlines()[-1])
    assert not out.exists()
    assert main(asked) == 0
    capsys.readouterr()
    assert main([*asked, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"1 cell, done in {out}"
    assert main([*asked, "--dry-run", "--full", "--seqlens", "64,1M", "--heads", "64:8"]) == 0
    assert re.fullmatch(r"2 cells, about \d+ days", capsys.readouterr().out.splitlines()[-1]), "of other heads"
    assert main([*asked, "--dry-run", "--full", "--masks", "full,causal", "--seqlens", "64,1M"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(rf"4 cells, 1 of them done in {out}; about \d+ (h|days) for the 3 left", last), last


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_levels_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--kernels", "torch", "--device", "cpu", "--masks", "causal", "--seqlens", "64", "--heads", "2:1", "--head-dim", "8"]
    small += ["--dtype", "fp32", "--passes", "fwd", "--budget", "0.01"]
    assert main(["run", *small]) == 0
    shown = capsys.readouterr().out
    assert "1 cell: 1 ok; written to out/run/results.jsonl" in shown
    assert "it took " in shown
    assert main(["run", *small, "--methods", "ulysses", "--nproc", "1"]) == 0
    assert "1 cell: 1 ok; written to out/run-cp/results.jsonl" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_compiled_for_a_gpu_is_kept_on_disk(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = list[str]()
    monkeypatch.setattr(devices, "require", lambda device: device)
    monkeypatch.setattr(compiled_code, "keep_on_disk", lambda: kept.append(device))
    assert main(["run", *CAUSAL, "--device", device]) == 0
    assert kept == [device] * (device == "cuda")


@pytest.mark.usefixtures("in_process")
def test_a_kernel_of_a_plugin_that_is_not_measured_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    plugin = ["--plugin", str(Path(__file__).parents[2] / "examples" / "my_kernel.py")]
    note = "not measured: my_kernel (--kernels does not name it)"
    assert main(["run", *CAUSAL, *plugin]) == 0
    assert note in capsys.readouterr().err
    assert main(["run", *CAUSAL, *plugin, "--kernels", "torch,my_kernel"]) == 0
    assert note not in capsys.readouterr().err
