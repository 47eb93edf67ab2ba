"""The device's energy counter, and the energy of one call."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple, Protocol

LEAST_S = 1.0  # the energy counter moves in steps; over less than a second it says nothing
LOOK_S = 0.2  # how far the host may run ahead of the device


class Telemetry(Protocol):
    def joules(self) -> float:
        """Energy since some start."""


class NvmlTelemetry:
    """NVIDIA's management library, for the GPU that torch calls `index`."""

    def __init__(self, index: int) -> None:
        import pynvml
        import torch

        pynvml.nvmlInit()
        self._nvml: Any = pynvml
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(index).uuid}")

    def joules(self) -> float:
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3


def telemetry_for(device: str, index: int = 0) -> Telemetry | None:
    """None on a CPU, and where the library is missing or may not be asked."""
    if device != "cuda":
        return None
    try:
        telemetry = NvmlTelemetry(index)
        telemetry.joules()
    except Exception:  # the library has its own error types, which cannot be named where it is missing
        return None
    return telemetry


class CallEnergy(NamedTuple):
    """Of calls in a row: the joules of each, and the power."""

    joules: float
    watts: float


def energy_of_call(call: Callable[[], object], synchronize: Callable[[], object], telemetry: Telemetry, seconds: float) -> CallEnergy:
    """Back-to-back calls, as training would make them, for at least a second."""
    synchronize()
    start, before, calls, in_a_row = perf_counter(), telemetry.joules(), 0, 1
    while (passed_s := perf_counter() - start) < max(seconds, LEAST_S):
        if calls:
            in_a_row = max(1, min(10, int(LOOK_S * calls / passed_s)))
        for _ in range(in_a_row):
            call()
        synchronize()  # or the host would run ahead by minutes
        calls += in_a_row
    joules = telemetry.joules() - before
    return CallEnergy(joules / calls, joules / passed_s)
