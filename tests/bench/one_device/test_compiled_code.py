"""Compiled code: libraries keep it on disk unless somebody has decided otherwise, and a process drops it before it has too much."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from longca.bench.one_device.compiled_code import CompiledGraphs, keep_on_disk
from longca.kernels import registry
from longca.kernels.backends.flex._attention import MOST_COMPILATIONS


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for cache in registry.compile_caches().values():
        for variable in cache:  # set first, so that what is made of them is undone
            monkeypatch.setenv(variable, "")
            monkeypatch.delenv(variable)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_both_libraries_get_a_folder_of_their_own_unless_somebody_has_set_another(unset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_on_disk()
    assert os.environ["FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED"] == os.environ["FLEX_ATTENTION_CUTE_DSL_CACHE_ENABLED"] == "1"
    folders = {Path(os.environ[f"{library}_ATTENTION_CUTE_DSL_CACHE_DIR"]) for library in ("FLASH", "FLEX")}
    assert folders == {unset / "longca" / "fa4", unset / "longca" / "cudnn_flex"}
    assert all(folder.is_dir() for folder in folders)
    monkeypatch.setenv("FLASH_ATTENTION_CUTE_DSL_CACHE_DIR", "/elsewhere")
    keep_on_disk()
    assert os.environ["FLASH_ATTENTION_CUTE_DSL_CACHE_DIR"] == "/elsewhere"


@pytest.mark.slow
def test_compilers_forget_before_they_have_made_too_many_graphs() -> None:
    """Whatever they are made for: shapes, kinds of masks, shapes of patterns."""
    import torch
    import torch._dynamo

    graphs = CompiledGraphs()
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=MOST_COMPILATIONS, fail_on_recompile_limit_hit=True):
        for job in range(MOST_COMPILATIONS // 3 + 2):
            graphs.limit()
            for size in range(3):
                compiled(torch.ones(3 * job + size + 2))
    torch._dynamo.reset()


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "folder"), [("fa4:native", "fa4"), ("cudnn_flex:rows", "cudnn_flex")])
def test_the_libraries_keep_what_they_compiled_and_find_it_again(unset: Path, kernel: str, folder: str) -> None:
    if not registry.available(registry.get(kernel), "cuda"):
        pytest.skip(f"{kernel} is not installed here")
    shape = ["--masks", "causal", "--seqlens", "1K", "--heads", "8:1", "--head-dim", "128", "--dtype", "bf16"]
    kept = list[set[Path]]()
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, "-m", "longca", "verify", "--kernels", kernel, *shape], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        kept.append({path for path in (unset / "longca" / folder).rglob("*.o") if path.stat().st_size})
    assert kept[0]
    assert kept[0] == kept[1]  # what was found was not compiled again
