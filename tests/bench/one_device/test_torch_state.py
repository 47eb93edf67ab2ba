"""Kernels that share a worker do not change torch for one another."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from longca import masks
from longca.bench.check.reference_store import ReferenceStore
from longca.bench.one_device.session import Session
from longca.bench.one_device.torch_state import TorchState
from longca.kernels.base import Case


@pytest.fixture
def usual() -> Iterator[TorchState]:
    state = TorchState()
    yield state
    state.restore()


CHANGES = {
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "grad": lambda: torch.set_grad_enabled(False),
    "deterministic": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "precision": lambda: torch.set_float32_matmul_precision("medium"),
    "device": lambda: torch.set_default_device("meta"),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "cudnn": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "sdpa": lambda: torch.backends.cuda.enable_flash_sdp(False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_setting_is_put_back_and_a_while_of_others_leaves_it(change: str, usual: TorchState) -> None:
    CHANGES[change]()
    changed = TorchState()._values
    assert changed != usual._values
    with usual.instead():
        assert TorchState()._values == usual._values
    assert TorchState()._values == changed
    usual.restore()
    assert TorchState()._values == usual._values


def test_a_precision_that_torch_does_not_tell_is_mended(usual: TorchState) -> None:
    """Set in the old way and in the new way, it cannot be read any more."""
    matmul: Any = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    usual.restore()
    assert (torch.get_float32_matmul_precision(), matmul.fp32_precision) == ("highest", "ieee")
    matmul.fp32_precision = before


@pytest.mark.usefixtures("usual")
def test_a_reference_that_others_read_too_is_made_with_the_usual_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(lambda phase: None, "a CPU")
    session.start_device("cpu")
    torch.set_default_dtype(torch.float16)
    seen = []
    monkeypatch.setattr(ReferenceStore, "get", lambda *given, **more: seen.append(torch.get_default_dtype()))
    session.reference(masks.causal(8), Case(8, 8, 2, 1, 8, 8), 0)
    assert (seen, torch.get_default_dtype()) == ([torch.float32], torch.float16)
    session.end_job()
    assert torch.get_default_dtype() == torch.float32
