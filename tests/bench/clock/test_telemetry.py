"""The energy of a call, with a fake device."""

import sys
from types import SimpleNamespace

import pytest
import torch

from longca.bench.clock import telemetry


class FakeDevice:
    """500 W; every call takes a 64th of a second."""

    def __init__(self) -> None:
        self.time = 0.0

    def tick(self) -> None:
        self.time += 1 / 64  # exact in binary

    def now(self) -> float:
        return self.time

    def joules(self) -> float:
        return 500.0 * self.time


def test_energy_is_that_of_the_device_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=lambda uuid: int(uuid.removeprefix("GPU-")))
    library.nvmlDeviceGetTotalEnergyConsumption = lambda handle: 1000 * handle
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=str(10 + index)))
    found = [telemetry.telemetry_for("cuda"), telemetry.telemetry_for("cuda", 3)]
    assert [entry.joules() for entry in found if entry is not None] == [10.0, 13.0]


def test_without_the_library_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert telemetry.telemetry_for("cpu") is None
    assert telemetry.telemetry_for("cuda") is None


def test_energy_is_measured_over_a_second_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    monkeypatch.setattr(telemetry, "perf_counter", device.now)
    energy = telemetry.energy_of_call(device.tick, lambda: None, device, 0.1)
    assert device.time >= 1.0
    assert energy == pytest.approx((500 / 64, 500))
