"""`longca.ab`: names, files, revisions and objects; verdicts; and sentences for what cannot be compared."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

import longca
from longca.bench.one_device import turns
from longca.compare import paired
from longca.results.settings import ClockSettings

SMALL: dict[str, Any] = {"seqlens": 64, "heads": "2:1", "head_dims": 16, "dtypes": "fp32", "device": "cpu", "progress": False}
KERNEL = """
import torch, longca
from textbook import attend

@longca.kernel
def mine(q, k, v, mask, scale):
    for _ in range(1):
        out = attend(q, k, v, torch.from_numpy(mask.dense()), scale)
    return out
"""
SLOW = KERNEL.replace("range(1)", "range(60)")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four short rounds, of two turns each."""
    monkeypatch.setattr(turns, "TURNS", {"cpu": 2})
    monkeypatch.setitem(turns.CLOCKS, "cpu", ClockSettings(warmup_s=0, budget_s=0.01, least=3))
    monkeypatch.setattr(paired, "LOOKS", (4,))
    monkeypatch.setattr("longca.api.ab.LOOKS", (4,))


def write(path: Path, text: str = KERNEL) -> Path:
    path.write_text(text)
    return path


@longca.kernel
def wrong(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, scale: float) -> torch.Tensor:
    return torch.zeros_like(q) + 0 * v.sum() + 0 * k.sum()


def test_a_slower_file_is_found(tmp_path: Path, in_process: None, quick: None) -> None:
    a, b = write(tmp_path / "a.py"), write(tmp_path / "b.py", SLOW)
    found = longca.ab(a, b, passes="fwd", **SMALL)
    assert not found.ok
    (row,) = found.rows
    assert (row["verdict"], row["rounds"]) == ("SLOWER", 4)
    assert row["ratio"] > 2
    assert longca.ab(b, f"{a}:mine", passes="fwd", **SMALL).rows[0]["verdict"] == "FASTER"
    assert "A: mine" in repr(found)


def test_a_revision_is_checked_out_with_what_is_beside_it(tmp_path: Path, in_process: None, quick: None, monkeypatch: Any) -> None:
    folder = tmp_path / "repository" / "kernels"
    folder.mkdir(parents=True)
    write(
        folder / "mine.py",
        KERNEL.replace("range(1)", "range(TIMES)").replace("import torch, longca", "import torch, longca\nfrom times import TIMES"),
    )
    write(folder / "times.py", "TIMES = 60\n")
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "slow"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    write(folder / "mine.py")
    monkeypatch.chdir(folder)
    found = longca.ab("HEAD", "mine.py", passes="fwd", **SMALL)
    assert found.rows[0]["verdict"] == "FASTER"
    assert found.names[0] == "mine (HEAD:mine.py)"
    for old, sentence in (("HEAD~9", "'HEAD~9' is not a revision"), ("HEAD:other.py", "there is no other.py in the revision HEAD")):
        with pytest.raises(longca.BadInput, match=sentence):
            longca.ab(old, "mine.py", **SMALL)
    write(tmp_path / "loose.py")
    with pytest.raises(longca.BadInput, match="is not in a git repository"):
        longca.ab("HEAD", str(tmp_path / "loose.py"), **SMALL)


def test_a_wrong_kernel_is_broken_and_never_timed(quick: None) -> None:
    found = longca.ab("torch:plain", wrong, passes="fwd", **SMALL)
    assert not found.ok
    (row,) = found.rows
    assert (row["verdict"], row["a_ms"], row["rounds"]) == ("BROKEN", None, 0)
    assert row["why"].startswith("B is wrong: out is off by")
    assert not longca.ab(wrong, wrong, passes="fwd", **SMALL).ok


def test_of_a_file_with_several_kernels_one_is_named(tmp_path: Path, in_process: None) -> None:
    two = write(tmp_path / "two.py", KERNEL + KERNEL.replace("def mine", "def yours"))
    with pytest.raises(longca.BadInput, match=r"two.py has the kernels mine, yours; name one of them, as in .*two.py:mine"):
        longca.ab(two, "torch", **SMALL)
    with pytest.raises(longca.BadInput, match=r"unknown kernel of .*two.py 'theirs'; known are: mine, yours"):
        longca.ab(f"{two}:theirs", "torch", **SMALL)
    masks_only = write(tmp_path / "masks.py", "import longca\n\n@longca.mask\ndef rows(seqlen):\n    return [[0, seqlen, 0, 0, 1, 1]]\n")
    for verb in (lambda: longca.ab(masks_only, "torch", **SMALL), lambda: longca.profile(masks_only, "causal", 64, device="cpu")):
        with pytest.raises(longca.BadInput, match=r"masks.py has no kernel; give a file with a function that @longca.kernel decorates"):
            verb()
