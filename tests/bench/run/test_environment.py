"""Which code a measurement is of: its commit, and what of it is part of a key."""

import ast
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from importlib.metadata import version
from pathlib import Path

import pytest

from longca import devices, kernels
from longca.bench.environment import clocks_policy, describe, git_state, kernel_versions, methods_version
from longca.bench.suite import Suite
from longca.kernels import base, registry

OWN = {"block_triton": "block_triton.py", "fa4:bands": "_fa4_bands.py", "fa4:blocks": "_fa4_blocks.py", "torch": "torch_attention.py"}
FOLDER = Path(kernels.__path__[0])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "longca"
    package.mkdir(parents=True)
    for file in (tmp_path / "pyproject.toml", package / "code.py"):
        file.write_text("")
    identity = ("-c", "user.name=n", "-c", "user.email=e")
    for command in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "all")):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    return tmp_path


def test_a_checkout_has_a_commit_and_says_whether_it_was_changed(repository: Path) -> None:
    commit, changed = git_state(repository / "src" / "longca")
    assert (len(commit or ""), changed) == (40, False)
    (repository / "src" / "longca" / "code.py").write_text("more")
    assert git_state(repository / "src" / "longca") == (commit, True)


def test_another_projects_commit_is_not_ours(repository: Path) -> None:
    installed = repository / ".venv" / "lib" / "longca"
    installed.mkdir(parents=True)
    assert git_state(installed) == (None, None)
    (installed.parents[1] / "pyproject.toml").write_text("")
    assert git_state(installed) == (None, None)


def imported(name: str) -> set[str]:
    """The file and every private file of the kernels that it imports, at whatever place, and those that they import."""
    found, waiting = set[str](), [name]
    while waiting:
        found.add(name := waiting.pop())
        for node in ast.walk(ast.parse((FOLDER / name).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("longca.kernels"):
                modules = [node.module.rpartition(".")[2], *(alias.name for alias in node.names)]
                waiting += [file for file in (f"{module}.py" for module in modules if module.startswith("_")) if file not in found]
    return {file for file in found if (FOLDER / file).exists()}


@pytest.mark.parametrize("label", OWN)
def test_every_file_of_our_own_kernels_is_in_their_version(label: str) -> None:
    assert set(registry.get(label).own_files) == imported(OWN[label])
    assert f"longca.kernels.{label}" in kernel_versions(label)


def test_a_kernel_whose_variant_is_not_said_has_the_version_of_all_of_them() -> None:
    files = {file for label in registry.labels("fa4") for file in registry.get(label).own_files}
    assert set(registry.get("fa4").own_files) == files
    assert "longca.kernels.fa4" in kernel_versions("fa4")
    assert not any(name.startswith("longca") for name in kernel_versions("fa4:native"))  # an adapter: the library's version says it


def test_a_kernel_of_ours_that_changes_has_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same = registry.get("block_triton").versions()
    for name in registry.get("block_triton").own_files:
        shutil.copy(FOLDER / name, tmp_path)

    monkeypatch.setattr(base, "OURS", tmp_path)
    assert registry.get("block_triton").versions() == same
    with (tmp_path / "_block_triton_kernels.py").open("a") as file:
        file.write("# another way to multiply\n")
    assert {name for name, text in registry.get("block_triton").versions().items() if text != same[name]} == {"longca.kernels.block_triton"}


def test_methods_have_a_version_and_none_of_it_needs_torch() -> None:
    code = "from longca.bench.environment import *; methods_version(); kernel_versions('fa4'); kernel_versions('block_triton')"
    text = f"import sys; {code}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "False\n"
    assert len(methods_version()["longca.parallel"]) == 16


def test_a_kernel_derived_from_one_of_ours_has_its_files_version() -> None:
    parent = registry.classes()["block_triton"]
    child = type("Mine", (parent,), {"name": "mine", "__module__": "elsewhere"})
    assert child().versions()["longca.kernels.mine"] == parent().versions()["longca.kernels.block_triton"]


def test_what_holds_the_clocks_is_part_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the GPUs that are visible the one that is held back most; a field that the driver does not know hides no other."""
    told = {"power.limit": ("700.00", "500.00", "300.00"), "uuid": ("GPU-a", "GPU-b", "GPU-c")}

    def ask(query: str, fields: Sequence[str]) -> list[dict[str, str]]:
        assert query == "gpu"
        return [{name: told[name][gpu] for name in fields} for gpu in range(3)] if told.keys() >= set(fields) else []

    monkeypatch.setattr(devices, "ask", ask)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    unknown: dict[str, float | None] = dict.fromkeys(("power_limit_w", "application_sm_mhz", "application_memory_mhz"))
    assert clocks_policy("cuda") == unknown | {"power_limit_w": 500.0}
    told |= {"clocks.applications.graphics": ("1980", "1410", "1"), "clocks.applications.memory": ("3201", "[N/A]", "1")}
    assert clocks_policy("cuda") == unknown | {"power_limit_w": 500.0, "application_sm_mhz": 1410.0}
    assert clocks_policy("cpu") == unknown
    assert describe("cpu", Suite()).items() >= unknown.items()


class Copied(base.Kernel):
    """Of a package that lies in a folder of sys.path and was never installed."""

    name, needs, modules = "copied", "numpy copied-package", ("copied_package.inner",)

    def supports(self, mask: object, case: base.Case) -> base.Answer:
        return base.Yes()

    def prepare(self, mask: object, case: base.Case) -> base.Attention:
        raise NotImplementedError


def test_a_package_without_a_number_has_the_version_of_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Copied().versions() == {"numpy": version("numpy")}  # it is not there
    inner = tmp_path / "copied_package" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "copied_package" / "__init__.py").write_text("raise ImportError('nobody imports this for its version')")
    for name in ("__init__.py", "kernel.py", "library.so.1", "README"):
        (inner / name).write_text("one")
    monkeypatch.syspath_prepend(tmp_path)
    found = [Copied().versions()]
    assert found[0] == {"numpy": version("numpy"), "copied_package.inner": found[0]["copied_package.inner"]}
    for name in ("kernel.py", "library.so.1"):
        (inner / name).write_text("two")
        found.append(Copied().versions())
    assert len({versions["copied_package.inner"] for versions in found}) == 3
    (inner / "README").write_text("two")
    assert Copied().versions() == found[-1]


def test_a_large_binary_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FlashAttention-3's is; wherever a build differs, it does so in many places."""
    binary = tmp_path / "fa3_C.so"
    with binary.open("wb") as file:
        file.truncate(1 << 40)  # of holes: to read it would take minutes
    monkeypatch.syspath_prepend(tmp_path)
    holes = kernel_versions("fa3")["flash_attn_3._C"]
    assert kernel_versions("fa3")["flash_attn_3._C"] == holes
    with binary.open("r+b") as file:
        file.seek(1 << 39)
        file.write(b"another build" * 1000)
    assert kernel_versions("fa3")["flash_attn_3._C"] != holes


def test_an_own_build_of_flash_attention_3_is_told_from_that_of_xformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "0.0.34")
    assert not any(name.startswith("flash_attn") for name in kernel_versions("fa3"))
    (tmp_path / "flash_attn_interface.py").write_text("")
    (tmp_path / "flash_attn_3").mkdir()
    (tmp_path / "flash_attn_3" / "_C.abi3.so").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert {"flash_attn_interface", "flash_attn_3", "xformers"} <= kernel_versions("fa3").keys()


def test_a_binary_of_flash_attention_2_without_a_number_has_a_version_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel_versions("fa2:package").keys() == {"torch"}
    (tmp_path / "flash_attn_2_cuda.abi3.so").write_text("a build")
    monkeypatch.syspath_prepend(tmp_path)
    assert kernel_versions("fa2:package").keys() == {"torch", "flash_attn_2_cuda"}
    assert kernel_versions("fa2:torch").keys() == {"torch"}
