"""What a process has one of for all kernels: torch's own settings. Kernels that share a worker must not change them for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

Setting = tuple[Callable[[], Any], Callable[[Any], object]]
UNREADABLE = object()


def _settings() -> list[Setting]:
    """Ways to read and to change each."""
    import torch

    def flag(owner: Any, name: str) -> Setting:
        return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)

    def autocast(kind: str) -> Setting:
        return lambda: torch.is_autocast_enabled(kind), lambda value: torch.set_autocast_enabled(kind, value)

    def deterministic() -> tuple[bool, bool]:
        return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

    cudnn, cuda = torch.backends.cudnn, torch.backends.cuda
    return [
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.is_grad_enabled, torch.set_grad_enabled),
        (deterministic, lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1])),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        *(autocast(kind) for kind in ("cpu", "cuda")),
        *(flag(cudnn, name) for name in ("enabled", "benchmark", "deterministic")),
        (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        (cuda.math_sdp_enabled, cuda.enable_math_sdp),
        (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
        *(flag(cuda.matmul, f"allow_{kind}_reduced_precision_reduction") for kind in ("bf16", "fp16")),
        (_default_device, torch.set_default_device),
    ]


def _default_device() -> object:
    """None where nobody set one: `torch.get_default_device` names the CPU then, and setting that would slow down every call."""
    import torch

    found = torch.get_default_device()
    return None if found == torch.device("cpu") else found


class TorchState:
    """The settings as they are when this is made."""

    def __init__(self) -> None:
        self._settings = _settings()
        self._values = [_read(read) for read, _ in self._settings]

    def restore(self) -> None:
        for (read, change), value in zip(self._settings, self._values, strict=True):
            if _read(read) != value and value is not UNREADABLE:
                change(value)

    @contextmanager
    def instead(self) -> Iterator[None]:
        """These settings for a while, then again those of now."""
        now = TorchState()
        self.restore()
        try:
            yield
        finally:
            now.restore()


def _read(read: Callable[[], Any]) -> Any:
    """torch refuses to tell a precision that was set in an old way and in a new way; setting it again mends that."""
    with suppress(RuntimeError):
        return read()
    return UNREADABLE
