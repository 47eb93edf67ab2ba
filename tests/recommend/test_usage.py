"""The lines of Python that `longca recommend --code` prints."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import longca
from journals import Write
from longca.cli import main
from report.made import around, kernel

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("source", ["random", "moba"])
def test_the_code_for_block_patterns_runs(write: Write, capsys: pytest.CaptureFixture[str], source: str) -> None:
    shape = {"heads_q": 4, "heads_kv": 2, "head_dim": 16, "head_dim_v": 16, "dtype": "fp32", "seqlen": 256, "source": source}
    made = kernel("torch:plain", around(1.0), level="sparse", mask="uniform_block", params={"b": 64, "ratio": 0.5, "heads": 2}, **shape)
    folder = write("made", [made], {"device_kind": "cpu"})
    words = ["--mask", "uniform_block", "--seqlen", "256", "--heads", "4:2", "--head-dim", "16", "--dtype", "fp32", "--source", source]
    assert main(["recommend", *words, "--results", str(folder), "--code"]) == 0
    code = capsys.readouterr().out
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert scope["q"].grad.isfinite().all()
    assert getattr(scope["mask"], "source", "random") in (source, "")


def test_the_window_of_a_model_is_asked_for(write: Write) -> None:
    shape = {"heads_q": 64, "heads_kv": 8, "head_dim": 64, "head_dim_v": 64, "sinks": True, "seqlen": 8192}
    windowed = ("sliding_window_causal_document", "causal_document & sliding_window")
    made = [kernel(f"{w}", around(1.0), mask=mask, params={"w": w}, **shape) for mask in windowed for w in (127, 1024)]
    folder = write("made", made, {})
    for mask in windowed:
        assert longca.best(mask, "8K", model="gpt-oss-120b", results=folder).kernel == "127"
        assert longca.best(mask, "8K", model="gpt-oss-120b", params={"w": 1024}, results=folder).kernel == "1024"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("methods", "mask"),
    [
        ("magi", ["--mask", "causal_document", "--seqlen", "300"]),
        ("ring_allgather", ["--mask", "uniform_block", "--seqlen", "256", "--source", "nsa"]),
    ],
)
def test_the_code_for_many_ranks_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], methods: str, mask: list[str]
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    shape = ["--heads", "4:2", "--head-dim", "16", "--dtype", "fp32"]
    split = ["--level", "cp", "--methods", methods, "--nproc", "2"]
    measured = [{"--mask": "--masks", "--seqlen": "--seqlens"}.get(word, word) for word in mask]
    words = ["run", *split, *measured, *shape, "--passes", "fwd,bwd", "--budget", "0.02"]
    assert main([*words, "--device", "cpu", "--out", str(tmp_path)]) == 0
    question = [*mask, *shape, "--gpus", "2", "--results", str(tmp_path)]
    capsys.readouterr()
    assert main(["recommend", *question, "--code"]) == 0
    file, digest = tmp_path / "attend.py", json.loads((tmp_path / "masks.jsonl").read_text().splitlines()[0])["digest"]
    checks = f"assert q.grad.isfinite().all()\nassert mask.digest == {digest!r}\n"
    file.write_text(capsys.readouterr().out.replace("dist.destroy", f"{checks}dist.destroy"))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(file)]
    done = subprocess.run(launch, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_an_answer_no_prose_gets_into_a_file_of_code(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("made", [kernel("fa4", around(1.0), peak_gib=500.0)])
    for more in (["--memory", "1G"], ["--dtype", "fp16"]):  # with a table of excluded kernels, and without
        assert main(["recommend", "--mask", "causal", "--seqlen", "8K", *more, "--results", str(folder), "--code"]) == 4
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith("no ")


PLUGIN = """import longca


@longca.kernel()
def good_fn(q, k, v, mask, scale):
    return longca.attention(q, k, v, mask, kernel="torch:plain")
"""


@pytest.mark.usefixtures("in_process")
def test_a_kernel_of_a_file_is_used_and_measured_again_from_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is not called as its kernel is; what is said of it runs where the user ran."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text(PLUGIN)
    shape = ["--heads", "2:1", "--head-dim", "16", "--dtype", "fp32"]
    run = ["run", "--plugin", "good.py", "--kernels", "good_fn", "--masks", "causal", "--seqlens", "128", *shape, "--passes", "fwd"]
    assert main([*run, "--budget", "0.02", "--device", "cpu", "--out", "a"]) == 0
    question = ["--mask", "causal", "--seqlen", "128", *shape, "--pass", "fwd", "--results", "a"]
    capsys.readouterr()
    assert main(["recommend", *question]) == 0
    (again,) = [line for line in capsys.readouterr().out.splitlines() if "longca run" in line]
    words = shlex.split(again)
    words = words[words.index("longca") + 1 :]
    assert words[words.index("--plugin") + 1] == "good.py"
    assert main([*words, "--out", "b"]) == 0
    capsys.readouterr()
    assert main(["recommend", *question, "--code"]) == 0
    scope: dict[str, Any] = {}
    exec(capsys.readouterr().out, scope)
    assert scope["out"].isfinite().all()
