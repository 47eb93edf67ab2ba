"""Which GPUs count: those that torch will see, in its order."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from longca import devices
from longca.bench.many_devices.grids import ranks_of
from longca.bench.plan.suite import Suite
from longca.bench.run import environment

SMI = """#!/bin/sh
echo "NVIDIA H100, 9.0, 81559, 580.1, GPU-11aa"
echo "NVIDIA A100, 8.0, 40960, 580.1, GPU-11bb"
echo "NVIDIA B200, 10.0, 183359, 580.1, GPU-22cc"
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Three GPUs of three kinds."""
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for cached in (devices.gpus, devices.model):
        cached.cache_clear()
    yield monkeypatch
    for cached in (devices.gpus, devices.model):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        (None, ["H100", "A100", "B200"]),
        ("", []),
        ("-1", []),
        ("1", ["A100"]),
        ("2,0", ["B200", "H100"]),
        (" 2 , 1", ["B200", "A100"]),
        ("0,7,1", ["H100"]),  # what stands behind a wrong one does not count
        ("0,-1,1", ["H100"]),
        ("1,1", []),
        ("2gpu", ["B200"]),
        ("GPU-22", ["B200"]),
        ("GPU-11bb,GPU-22cc", ["A100", "B200"]),
        ("GPU-11", []),  # the beginning of two
        ("22cc", []),  # a number, and there is none such
        ("nonsense", []),
        ("MIG-5f3e", ["H100"]),
    ],
)
def test_only_visible_gpus_count(machine: pytest.MonkeyPatch, setting: str | None, seen: list[str]) -> None:
    if setting is not None:
        machine.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert [gpu["name"].removeprefix("NVIDIA ") for gpu in devices.gpus()] == seen


def test_everything_that_is_said_of_the_device_is_of_the_first_visible_one(machine: pytest.MonkeyPatch) -> None:
    machine.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    assert (devices.title(), devices.capability(), devices.kind()) == ("NVIDIA A100", (8, 0), "cuda")
    assert devices.model("cuda") == "NVIDIA A100"
    machine_description = environment.describe("cuda", Suite())
    assert (machine_description.device, machine_description.gpus, machine_description.gpu_memory_mib) == ("NVIDIA A100", 2, "40960")
    assert ranks_of(Suite(), "cuda") == 2
