"""What stands beside the samples: readings of clock and power, the energy of a call, with a fake device."""

import sys
from collections.abc import Generator
from types import SimpleNamespace

import pytest
import torch

from longca.bench.clock import telemetry
from longca.bench.clock.clock import Call, Sample, measure, nothing
from longca.results.settings import ClockSettings


class FakeDevice:
    """A timer and telemetry in one: every sample takes a 64th of a second, the clock falls with every reading, 500 W."""

    def __init__(self) -> None:
        self.time, self.reads = 0.0, 0

    def samples(self, call: Call, before: Call = nothing, load: Call | None = None) -> Generator[Sample, None, None]:
        while True:
            before()
            call()
            self.tick()
            yield Sample(15.625, False, 1.0)

    def tick(self) -> None:
        self.time += 1 / 64  # exact in binary

    def now(self) -> float:
        return self.time

    def read(self) -> tuple[float, float]:
        self.reads += 1
        return 1980.0 - 10 * self.reads, 500.0

    def joules(self) -> float:
        return 500.0 * self.time


def test_readings_are_taken_beside_samples_and_not_too_often() -> None:
    device = FakeDevice()
    timing = measure(lambda: None, device, ClockSettings(least=9, warmup_s=0.0), device)
    assert len(timing.samples) == 9
    assert device.reads == 5  # every 20 ms, a sample takes 16
    assert timing.clock_mhz == 1980 - 30
    assert timing.watts == 500


def test_without_telemetry_nothing_is_claimed() -> None:
    timing = measure(lambda: None, FakeDevice(), ClockSettings())
    assert (timing.clock_mhz, timing.watts) == (None, None)
    assert telemetry.telemetry_for("cpu") is None


def test_telemetry_is_of_the_device_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = SimpleNamespace(nvmlInit=lambda: None, NVML_CLOCK_SM=1, nvmlDeviceGetHandleByUUID=lambda uuid: uuid)
    nvml.nvmlDeviceGetClockInfo = lambda handle, _: 1000 + int(handle.removeprefix("GPU-"))
    nvml.nvmlDeviceGetPowerUsage = lambda handle: 5e5
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=str(index)))
    found = [telemetry.telemetry_for("cuda"), telemetry.telemetry_for("cuda", 3)]
    assert [entry.read() for entry in found if entry is not None] == [(1000.0, 500.0), (1003.0, 500.0)]


def test_energy_is_measured_over_a_second_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    monkeypatch.setattr(telemetry.time, "perf_counter", device.now)
    joules = telemetry.joules_per_call(device.tick, lambda: None, device, 0.1)
    assert device.time >= 1.0
    assert joules == pytest.approx(500 / 64)
