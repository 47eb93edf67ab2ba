"""A user's own kernel, in one file: the examples of the documentation, and files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longca.cli import main
from longca.errors import BadInput
from longca.kernels import registry

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def forget_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_plugins", {})


@pytest.mark.parametrize("name", ["my_kernel", "my_kernel_class"])
def test_the_documented_example_is_right_on_all_masks(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(
        [
            "verify",
            "--plugin",
            str(EXAMPLES / f"{name}.py"),
            "--seqlens",
            "131",
            "--heads",
            "4:2",
            "--head-dim",
            "16",
            "--json",
            "--device",
            "cpu",
        ]
    )
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert len(findings) == 12
    assert {(finding["kernel"], finding["status"]) for finding in findings} == {(name, "ok")}
    assert all({"out", "dq", "dk", "dv"} <= set(finding["errors"]) for finding in findings)


def test_a_wrong_plugin_is_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = (EXAMPLES / "my_kernel.py").read_text().replace("* scale", "* scale * 1.1")
    (tmp_path / "wrong.py").write_text(source)
    code = main(["verify", "--plugin", str(tmp_path / "wrong.py"), "--masks", "causal", "--seqlens", "64", "--device", "cpu"])
    assert code == 1
    assert "out is off by" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("raise RuntimeError('no luck')", "fails when it is imported: RuntimeError: no luck"),
        ("x = 1", "has no kernel"),
        ("import longca\n@longca.kernel(name='sdpa')\ndef f(q, k, v, mask, scale): return q", "choose another name"),
    ],
)
def test_a_bad_plugin_is_one_sentence(source: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plugin.py").write_text(source)
    assert main(["verify", "--plugin", str(tmp_path / "plugin.py")]) == 2
    complaint = capsys.readouterr().err
    assert sentence in complaint
    assert "Traceback" not in complaint


def test_a_missing_plugin_file() -> None:
    with pytest.raises(BadInput, match="there is no plugin file"):
        registry.load_plugin("/nowhere/kernel.py")


def test_the_documentation_shows_the_example() -> None:
    shown = (EXAMPLES.parent / "docs" / "kernels.md").read_text().split("```python\n")[1].split("```")[0]
    assert (EXAMPLES / "my_kernel.py").read_text().endswith(shown)
