"""A seed that no record can have is refused by every command and by the Python interface, in one sentence that names the flag."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import longca
from longca.cli import main
from longca.errors import BadInput

COMMANDS = {
    "mask": ["mask", "causal", "--seqlen", "64"],
    "gallery": ["mask", "--gallery", "gallery", "--seqlen", "64"],
    "explain": ["explain", "--mask", "causal", "--seqlen", "64", "--device", "cpu"],
    "verify": ["verify", "--masks", "causal", "--kernels", "torch:plain", "--device", "cpu"],
    "verify cp": ["verify", "--level", "cp", "--masks", "causal", "--device", "cpu"],
    "plan": ["plan", "--masks", "causal"],
    "simulate": ["simulate", "--masks", "causal"],
}
CALLS: dict[str, Callable[[int], object]] = {
    "verify": lambda seed: longca.verify("torch:plain", "causal", device="cpu", seed=seed),
    "explain": lambda seed: longca.explain("causal", seqlen=64, device="cpu", seed=seed),
    "mask": lambda seed: longca.masks.causal(64, seed=seed),
}


@pytest.mark.parametrize("seed", ["-1", str((1 << 62) + 1)])
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_refuse_it(
    name: str, seed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*COMMANDS[name], "--seed", seed]) == 2
    printed = capsys.readouterr()
    assert printed.err == f"longca: the seed (--seed) must be a whole number from 0 to {1 << 62}, not {seed}.\n"
    assert printed.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", CALLS)
def test_python_refuses_it(name: str) -> None:
    with pytest.raises(BadInput, match=rf"the seed \(--seed\) must be a whole number from 0 to {1 << 62}, not -1"):
        CALLS[name](-1)


@pytest.mark.parametrize("seeds", ["-1", "-1,", "3,-1"])
def test_run_refuses_it_in_its_list(seeds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["run", "--masks", "causal", "--kernels", "torch", "--device", "cpu", f"--seeds={seeds}", "--out", str(tmp_path / "out")]) == 2
    )
    assert f"--seeds {seeds} is not a list of seeds; write their number" in capsys.readouterr().err
    with pytest.raises(BadInput, match="--seeds -1, is not a list of seeds"):
        longca.run(kernels="torch", masks="causal", device="cpu", seeds=[-1], out=tmp_path / "out")


def test_progress_names_the_seeds_where_there_are_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of two seeds would look the same; a mask without documents is measured once."""
    command = ["run", "--masks", "causal,causal_document", "--kernels", "torch", "--seqlens", "1K", "--heads", "2:1", "--head-dim", "8"]
    command += ["--device", "cpu", "--passes", "fwd", "--clock", "budget_s=0.01"]
    assert main([*command, "--seeds", "2", "--out", str(tmp_path / "two")]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    masks = [line.partition("] ")[2].partition(" 1K fwd")[0].partition(" ")[2] for line in lines]
    assert sorted(masks) == ["causal", "causal_document seed=0", "causal_document seed=1"]
    assert main([*command, "--seeds", "3,", "--out", str(tmp_path / "one")]) == 0
    assert "seed=" not in capsys.readouterr().err
