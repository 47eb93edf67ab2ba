"""Telemetry beside the samples: the device's SM clock, its power, and the energy of one call."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any, Protocol

LEAST_S = 1.0  # the energy counter moves in steps; over less than a second it says nothing
APART_S = 0.02  # between two readings
LOOK_S = 0.2  # how far the host may run ahead of the device


class Telemetry(Protocol):
    def read(self) -> tuple[float, float]:
        """(SM clock in MHz, power in W) now."""

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

    def read(self) -> tuple[float, float]:
        clock = self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM)
        return float(clock), self._milliwatts() / 1e3

    def _milliwatts(self) -> float:
        """The power now. The plain call returns the average of the last second on most GPUs: that of the kernel before. It is asked only
        where the library or the driver has nothing else."""
        with suppress(AttributeError, self._nvml.NVMLError):  # an older library lacks the name or the function
            (power,) = self._nvml.nvmlDeviceGetFieldValues(self._handle, [self._nvml.NVML_FI_DEV_POWER_INSTANT])
            if power.nvmlReturn == self._nvml.NVML_SUCCESS:
                return float(power.value.uiVal)
        return float(self._nvml.nvmlDeviceGetPowerUsage(self._handle))

    def joules(self) -> float:
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3


def telemetry_for(device: str, index: int = 0) -> Telemetry | None:
    """None on a CPU, and where the library is missing or may not be asked."""
    if device != "cuda":
        return None
    try:
        telemetry = NvmlTelemetry(index)
        telemetry.read()
    except Exception:  # the library has its own error types, which cannot be named where it is missing
        return None
    return telemetry


class Readings:
    """Collects readings beside samples, not more often than is useful."""

    def __init__(self, telemetry: Telemetry | None, now: Callable[[], float] = perf_counter) -> None:
        self._telemetry, self._now, self._last = telemetry, now, float("-inf")
        self._taken: list[tuple[float, float]] = []

    def take(self) -> None:
        if self._telemetry is not None and self._now() - self._last >= APART_S:
            self._taken.append(self._telemetry.read())
            self._last = self._now()

    @property
    def clock_mhz(self) -> float | None:
        return statistics.median(clock for clock, _ in self._taken) if self._taken else None

    @property
    def watts(self) -> float | None:
        return statistics.median(power for _, power in self._taken) if self._taken else None


def joules_per_call(call: Callable[[], object], synchronize: Callable[[], object], telemetry: Telemetry, seconds: float) -> float:
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
    return (telemetry.joules() - before) / calls
