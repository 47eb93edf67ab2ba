"""Which code a measurement is of: versions of packages and of code, as far as they are part of a cell's key."""

from importlib import metadata
from importlib.metadata import version
from pathlib import Path

import pytest

from longca.bench.plan.versions import kernel_versions
from longca.kernels import base, registry


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
    assert not any(name.startswith("flash_attn") for name in kernel_versions("fa3"))
    (tmp_path / "flash_attn_interface.py").write_text("")
    (tmp_path / "flash_attn_3").mkdir()
    (tmp_path / "flash_attn_3" / "_C.abi3.so").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(metadata, "version", lambda name: "0.0.34")  # of xformers, which is there too
    assert {"flash_attn_interface", "flash_attn_3", "xformers"} <= kernel_versions("fa3").keys()


def test_a_kernel_whose_package_is_missing_still_has_the_version_of_its_code() -> None:
    class Asking(Copied):
        def versions(self) -> dict[str, str]:
            return {"copied-package": version("copied-package")}

    assert set(registry.versions(Asking())) == {"code"}
