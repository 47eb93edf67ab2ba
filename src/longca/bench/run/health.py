"""What disturbs measuring on this machine. Every finding is a sentence with advice; none of it imports torch."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

from longca import devices

FEW_CORES = 4
THROTTLING = {  # bits of clocks_event_reasons.active that say the device is slower than it could be
    0x4: "its power cap",
    0x8: "a hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "a hardware power brake",
}


def number(text: str) -> float | None:
    try:
        return float(int(text, 16)) if text.startswith("0x") else float(text)
    except ValueError:
        return None


def busy(device: str) -> list[str]:
    """Who else uses the machine, as far as that disturbs times on this device."""
    return other_processes() if device == "cuda" else _load()


def other_processes() -> list[str]:
    """Processes on the GPUs that are visible here."""
    names = {gpu["uuid"] for gpu in devices.visible(devices.ask("gpu", ("uuid",)), os.environ.get("CUDA_VISIBLE_DEVICES"))}
    return [
        f"process {process['pid']} ({process['process_name']}) uses the GPU and disturbs the times; end it."
        for process in devices.ask("compute-apps", ("pid", "process_name", "gpu_uuid"))
        if process["gpu_uuid"] in names
    ]


def _load() -> list[str]:
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    words = f"the load is {load:.1f} on {cores} cores; wait until other processes end, they disturb times."
    return [words] if load > cores / 2 else []


def gpu_findings() -> list[str]:
    """What holds back the GPUs that are visible here; others may do what they like."""
    fields = ("clocks_event_reasons.active", "power.limit", "power.default_limit", "utilization.gpu", "persistence_mode", "uuid")
    found = other_processes()
    for gpu in devices.visible(devices.ask("gpu", fields), os.environ.get("CUDA_VISIBLE_DEVICES")):
        active = int(number(gpu["clocks_event_reasons.active"]) or 0)
        found += [f"{why} slows the GPU down; let it cool, or raise the limit." for bit, why in THROTTLING.items() if active & bit]
        limit, default = number(gpu["power.limit"]), number(gpu["power.default_limit"])
        if limit is not None and default is not None and limit < default:
            found.append(f"the power cap is {limit:.0f} W of {default:.0f} W; raise it with `nvidia-smi -pl {default:.0f}`.")
        if (use := number(gpu["utilization.gpu"])) is not None and use > 5:
            found.append(f"the GPU is busy ({use:.0f} %) before anything is measured; wait until it is idle.")
        if gpu["persistence_mode"] == "Disabled":
            found.append("persistence mode is off, so the driver sleeps between processes; `nvidia-smi -pm 1` keeps it awake.")
    if find_spec("pynvml") is None:
        found.append("pynvml is missing, so clocks and power are unknown and compare cannot use them; pip install nvidia-ml-py.")
    return found


def host_findings() -> list[str]:
    found = []
    cores = len(os.sched_getaffinity(0))
    if cores < FEW_CORES:
        found.append(f"there are only {cores} cores; times of CPU kernels are noisy, and compiling is slow.")
    found += _load()
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor.exists() and (name := governor.read_text().strip()) != "performance":
        found.append(f"the CPU frequency governor is {name!r}; `cpupower frequency-set -g performance` makes times steadier.")
    free = shutil.disk_usage(".").free
    if free < 1 << 30:
        found.append(f"only {free >> 20} MiB of disk are free here; journals and references need about 1 GiB.")
    return found


def findings() -> list[str]:
    return (gpu_findings() if devices.gpus() else []) + host_findings()
