import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from journals import Write, writer
from longca.kernels import discovery
from longca.masks import own
from longca.parallel import registry as methods
from longca.processes.child import search_path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in `make test`: threads that share few cores wait for each other most of the time

# the same examples in every run, so that a change is judged by itself; HYPOTHESIS_PROFILE=search looks for new ones
settings.register_profile("steady", deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", deadline=None, max_examples=3000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a journal and returns its folder."""
    return writer(tmp_path)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Choices of the kernel `best` are kept for the session alone, not in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LONGCA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="module")
def _freeze_modules() -> None:
    """Collections skip what was imported before: looking through torch takes longer than most tests, and many of them end with one."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs say nothing of what else the machine does."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a CUDA device its tests, most of all cases, are deselected: to skip them one by one takes longer than many tests."""
    of_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not of_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        config.hook.pytest_deselected(items=of_gpu)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]


@pytest.fixture(autouse=True, scope="session")
def _this_source() -> Iterator[None]:
    """Programs that tests start find this very package, installed or not, and the modules of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(search_path()))
        yield


@pytest.fixture(autouse=True)
def _forget_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What one test registers with @longca.mask, or loads from a plugin, is unknown to the next."""
    for module in (discovery, methods):
        monkeypatch.setattr(module, "_plugins", dict(module._plugins))
    before, files = dict(own.OWN), dict(own._files)
    yield
    registries: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = ((before, own.OWN), (files, own._files))
    for kept, now in registries:
        now.clear()
        now.update(kept)


@pytest.fixture
def in_process() -> Iterator[None]:
    """Workers are in this process: for tests of what they find, not of how they end."""
    from in_process import workers_in_process

    with workers_in_process():
        yield
