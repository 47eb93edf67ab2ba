"""What stands beside the samples: readings of clock and power, the energy of a call, with a fake device."""

import sys
from collections.abc import Callable, Generator
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


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A library that knows the power now (400 W) and of the last second (500 W)."""
    library = SimpleNamespace(nvmlInit=lambda: None, NVML_CLOCK_SM=1, NVML_FI_DEV_POWER_INSTANT=186, NVML_SUCCESS=0, NVMLError=OSError)
    library.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    library.nvmlDeviceGetClockInfo = lambda handle, _: 1000 + int(handle.removeprefix("GPU-"))
    library.nvmlDeviceGetPowerUsage = lambda handle: 500_000
    library.result = library.NVML_SUCCESS
    library.nvmlDeviceGetFieldValues = lambda handle, fields: [
        SimpleNamespace(nvmlReturn=library.result, value=SimpleNamespace(uiVal=400_000 if field == 186 else 0)) for field in fields
    ]
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=str(index)))
    return library


@pytest.mark.usefixtures("nvml")
def test_telemetry_is_of_the_device_that_was_asked_for() -> None:
    found = [telemetry.telemetry_for("cuda"), telemetry.telemetry_for("cuda", 3)]
    assert [entry.read() for entry in found if entry is not None] == [(1000.0, 400.0), (1003.0, 400.0)]


def no_field(library: SimpleNamespace) -> None:
    del library.NVML_FI_DEV_POWER_INSTANT


def raises(library: SimpleNamespace) -> None:
    def refuse(handle: str, fields: list[int]) -> None:
        raise library.NVMLError

    library.nvmlDeviceGetFieldValues = refuse


@pytest.mark.parametrize("lacking", [no_field, raises])
def test_power_is_that_of_the_last_second_only_where_no_other_is_known(
    nvml: SimpleNamespace, lacking: Callable[[SimpleNamespace], None]
) -> None:
    lacking(nvml)
    found = telemetry.telemetry_for("cuda")
    assert found is not None
    assert found.read() == (1000.0, 500.0)


def test_energy_is_measured_over_a_second_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    monkeypatch.setattr(telemetry, "perf_counter", device.now)
    joules = telemetry.joules_per_call(device.tick, lambda: None, device, 0.1)
    assert device.time >= 1.0
    assert joules == pytest.approx(500 / 64)
