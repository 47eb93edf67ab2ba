"""The code version of a user's kernel: it covers all files of the kernel, and an edit of any of them is another version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from longca import code_version
from longca.cli import main
from longca.errors import BadInput
from longca.kernels import registry

SMALL = ["--masks", "causal", "--seqlens", "64", "--heads", "2:1", "--head-dim", "16", "--device", "cpu"]
HELPER = """
import torch
def attend(q, k, v, mask, scale):
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1) for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    scores = (q @ k.mT * scale).masked_fill(~torch.from_numpy(mask.dense()), float("-inf"))
    return (scores.softmax(-1).nan_to_num() @ v).transpose(0, 1)
"""
EAGER = """
import longca
from helper import attend
@longca.kernel
def mine(q, k, v, mask, scale): return attend(q, k, v, mask, scale)
"""
LATE = """
import longca
@longca.kernel
def mine(q, k, v, mask, scale):
    from helper import attend
    return attend(q, k, v, mask, scale)
"""
CLASS = """
import importlib, longca
class Mine(longca.Kernel):
    name, devices, backward, gives_lse = "mine", ("cpu",), "none", False
    EXTRA
    def supports(self, mask, case): return longca.Yes()
    def prepare(self, mask, case): return Ready(importlib.import_module("helper").attend, mask, case.softmax_scale)
class Ready(longca.Attention):
    def __init__(self, function, mask, scale): self.function, self.mask, self.scale = function, mask, scale
    def forward(self, q, k, v): return self.function(q, k, v, self.mask, self.scale), None
"""
DECLARED = CLASS.replace("EXTRA", "modules = ('helper',)")


@pytest.fixture(autouse=True)
def leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each plugin gets its own helper."""
    monkeypatch.setattr(code_version, "_imported", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("helper", "other"):
            del sys.modules[name]


def write(folder: Path, source: str, helper: str = HELPER) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "helper.py").write_text(helper)
    (folder / "plug.py").write_text(source)
    return str(folder / "plug.py")


def in_a_process(command: str, *arguments: str, path: str = "") -> dict[str, str]:
    """What a new one says: modules are imported once in each."""
    environment = {**os.environ, "PYTHONPATH": f"{path}:{Path(code_version.__file__).parents[1]}"}
    program = [sys.executable, "-P", "-c", f"import sys, json; {command}", *arguments]
    return dict(json.loads(subprocess.run(program, capture_output=True, text=True, env=environment, check=True).stdout))


def version(path: str) -> dict[str, str]:
    """As a worker finds it."""
    find = "from longca.kernels import registry as r; (name,) = r.load_plugin(sys.argv[1]); print(json.dumps(r.versions(r.get(name))))"
    return in_a_process(find, path)


def test_an_edit_of_a_declared_module_is_another_version(tmp_path: Path) -> None:
    assert version(write(tmp_path, DECLARED, "attend = 1\n")) != version(write(tmp_path, DECLARED, "attend = 22\n"))


@pytest.mark.parametrize("source", [LATE, DECLARED], ids=["late", "declared"])
@pytest.mark.usefixtures("in_process")
def test_a_module_beside_the_plugin_is_found_when_it_is_prepared(source: str, tmp_path: Path) -> None:
    assert main(["verify", "--plugin", write(tmp_path, source), *SMALL]) == 0


@pytest.mark.slow
def test_an_edit_of_a_module_beside_the_plugin_is_measured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plugin = write(tmp_path, EAGER)
    flags = ["--kernels", "mine", "--passes", "fwd", "--dtype", "fp32", "--budget", "0.02", "--out", str(tmp_path / "out")]
    command = ["run", "--plugin", plugin, *SMALL, *flags]
    assert main(command) == 0
    assert "1 ok" in capfd.readouterr().out
    write(tmp_path, EAGER, HELPER.replace("* scale", "* scale * 1.1"))
    assert main(command) == 0
    said = capfd.readouterr()
    assert "1 wrong" in said.out
    assert "resuming" not in said.err


def test_every_part_of_a_kernel_is_part_of_its_version(tmp_path: Path) -> None:
    """A module of a package, the package, what a helper imports, a file that is named, and the plugin; no file beside them."""
    plugin = write(tmp_path, CLASS.replace("EXTRA", "own_files = ('kernel.cu',)").replace("import importlib", "import helper, importlib"))
    (tmp_path / "other").mkdir()
    for name in ("second.py", "kernel.cu", "unrelated.py", "other/__init__.py", "other/deep.py"):
        (tmp_path / name).touch()
    late, by_name = "def attend():\n    from second import z\n", "import importlib\nimportlib.import_module('other.deep')\n"
    (tmp_path / "helper.py").write_text(late + by_name)
    before = version(plugin)
    assert set(before) == {"code"}
    (tmp_path / "unrelated.py").write_text("w = 44\n")
    assert version(plugin) == before
    for file in ("helper.py", "other/deep.py", "other/__init__.py", "second.py", "kernel.cu", "plug.py"):
        with (tmp_path / file).open("a") as opened:
            opened.write("more = 1\n")
        after = version(plugin)
        assert after != before, file
        before = after


def test_the_version_does_not_depend_on_the_folder_and_is_that_of_one_file_where_there_is_one(tmp_path: Path) -> None:
    first = version(write(tmp_path / "a", EAGER, "attend = 1\n"))
    assert first == version(write(tmp_path / "z", EAGER, "attend = 1\n")) != version(write(tmp_path / "b", LATE, "attend = 1\n"))
    alone = tmp_path / "alone.py"
    alone.write_text("import longca\n@longca.kernel\ndef mine(q, k, v, mask, scale):\n    import torch, numpy\n    return q\n")
    assert version(str(alone))["code"] == code_version.of_code(alone)


@pytest.mark.parametrize("made", ["longca.kernel(helper.attend)", "helper.Mine"])
def test_a_kernel_that_is_only_imported_is_said_to_be_another_modules(made: str, tmp_path: Path) -> None:
    helper = f"{CLASS.replace('EXTRA', '')}\ndef attend(q, k, v, mask, scale): pass\n"
    plugin = write(tmp_path, f"import longca, helper\nmine = {made}\n", helper)
    with pytest.raises(BadInput, match=r"^the kernel mine of the plugin .* is from the module helper; write a class that derives"):
        registry.load_plugin(plugin)


def test_two_helpers_of_one_name_in_one_process_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path / "a", EAGER)
    second = write(tmp_path / "b", EAGER.replace("mine", "yours"))
    registry.load_plugin(first)
    registry.load_plugin(first)
    with pytest.raises(BadInput, match=r"imports its own helper\.py, but .*/a/helper\.py is imported by that name already; rename one"):
        registry.load_plugin(second)


def test_an_edit_of_a_package_that_is_installed_from_its_folder_is_another_version(tmp_path: Path) -> None:
    """As with `pip install -e`: its code lies in the author's folder, and its number stays the same."""
    about, package = tmp_path / "theirs-0.1.dist-info", tmp_path / "theirs"
    about.mkdir()
    package.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text("[longca.kernels]\nmine = theirs.kernels\n")
    (package / "__init__.py").touch()
    (package / "kernels.py").write_text(EAGER.replace("helper", ".helper"))

    def version_with(helper: str) -> dict[str, str]:
        (package / "helper.py").write_text(helper)
        find = "from longca.bench.plan.versions import kernel_versions as f; print(json.dumps(f('mine')))"
        return in_a_process(find, path=str(tmp_path))

    before = version_with("attend = 1\n")
    assert before["theirs"] == "0.1"
    assert version_with("attend = 22\n") != before


def test_a_package_is_taken_before_a_file_of_its_name_and_odd_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "foo").mkdir()
    (tmp_path / "foo" / "__init__.py").write_text("x = 1\n")
    (tmp_path / "foo.py").write_text("from foo import x\n")
    assert tmp_path / "foo.py" not in code_version.imports_of(tmp_path / "foo.py")
    (tmp_path / "deep.py").write_text("x = " + "+".join(["1"] * 20_000) + "\n")
    (tmp_path / "high.py").write_text(f"from {'.' * 60} import x\n")
    assert code_version.imports_of(tmp_path / "deep.py") == code_version.imports_of(tmp_path / "high.py") == []
