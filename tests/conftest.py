import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from journals import Write, writer
from longca.masks import own

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


@pytest.fixture(autouse=True)
def _skip_without_gpu(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("this test needs a CUDA device, and this machine has none.")


@pytest.fixture(autouse=True)
def _forget_own_masks() -> Iterator[None]:
    """What one test registers with @longca.mask, or loads from a plugin, is unknown to the next."""
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
