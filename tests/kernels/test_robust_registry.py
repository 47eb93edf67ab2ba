"""Other people's files: broken packages, plugins of one name, a program that exits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from longca.cli import main
from longca.errors import BadInput
from longca.kernels import discovery, registry
from longca.kernels.overview import overview
from longca.parallel import registry as methods

SMALL = ["--masks", "causal", "--seqlens", "64", "--heads", "2:1", "--head-dim", "16", "--device", "cpu"]
KERNEL = "import longca\n@longca.kernel(name='{name}')\ndef f(q, k, v, mask, scale):\n    {body}\n"


def write(folder: Path, name: str, body: str = "return q", file: str = "plugin.py") -> str:
    folder.mkdir(exist_ok=True)
    (folder / file).write_text(KERNEL.format(name=name, body=body))
    return str(folder / file)


def test_two_plugin_flags_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file is loaded in a process of its own, where the other is not known."""
    first, second = write(tmp_path / "a", "same"), write(tmp_path / "b", "same")
    assert main(["run", "--plugin", first, "--plugin", second, *SMALL, "--dry-run"]) == 2
    sentence = f"the plugins {first} and {second} both have a kernel of the name 'same'; choose another name for one."
    assert capsys.readouterr().err == f"longca: {sentence}\n"
    again = str(tmp_path / "b" / ".." / "a" / "plugin.py")
    main(["run", "--plugin", first, "--plugin", again, *SMALL, "--dry-run"])
    assert "both have a kernel" not in capsys.readouterr().err


METHOD = "from longca.parallel.methods.ulysses import Ulysses\nclass Mine(Ulysses):\n    name = 'mine'\n"


def test_two_methods_of_one_name_are_refused_and_one_twice_is_not(tmp_path: Path) -> None:
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    for file in (first, second):
        file.write_text(METHOD)
    assert methods.load_plugin(first) == methods.load_plugin(first) == ["mine"]
    with pytest.raises(BadInput) as refused:
        methods.load_plugin(second)
    assert str(refused.value) == f"the plugins {first} and {second} both have a method of the name 'mine'; choose another name for one."


@pytest.mark.slow
def test_a_kernel_that_exits_does_not_end_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = write(tmp_path, "exits", "raise SystemExit(0)")
    assert main(["verify", "--plugin", plugin, "--kernels", "exits,torch:plain", *SMALL]) == 1
    said = capsys.readouterr().out
    assert "error: exits on causal: its process ended with exit code 0" in said
    assert "torch:plain  causal" in said


def test_nothing_checked_is_not_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--kernels", "fa3", "--masks", "causal", "--seqlens", "64", "--device", "cpu"]) == 2
    assert "nothing was checked" in capsys.readouterr().err


def test_a_broken_package_takes_nobody_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode() -> None:
        raise RuntimeError("no luck")

    entry = SimpleNamespace(name="theirs", value="theirs:Kernel", load=explode)
    monkeypatch.setattr(discovery, "entry_points", lambda group: [entry])
    monkeypatch.setattr(discovery, "broken", {})
    discovery._installed.cache_clear()
    try:
        assert "torch" in registry.names()
        theirs = next(found for found in overview() if found["kernel"] == "theirs")
        assert "RuntimeError: no luck" in theirs["here"]
    finally:
        discovery._installed.cache_clear()
