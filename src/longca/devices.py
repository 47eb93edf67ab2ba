"""The device of this machine, read from nvidia-smi without importing torch."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from longca.errors import Unavailable, unknown

KINDS = ("cpu", "cuda")


def ask(query: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """Returns nvidia-smi's answer, one dictionary per GPU or process; empty where there is no driver or it does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-{query}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [[value.strip() for value in line.split(",")] for line in answer.stdout.splitlines()]
    return [dict(zip(fields, row, strict=True)) for row in rows if answer.returncode == 0 and len(row) == len(fields)]


@cache
def gpus() -> list[dict[str, str]]:
    """Returns name, compute capability, memory and driver of each GPU that torch will see here, in its order; empty without a GPU."""
    return visible(ask("gpu", ("name", "compute_cap", "memory.total", "driver_version", "uuid")), os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible(present: list[dict[str, str]], wanted: str | None) -> list[dict[str, str]]:
    """Returns the GPUs that CUDA_VISIBLE_DEVICES leaves, read as CUDA does: numbers or beginnings of UUIDs, up to the first that names
    no GPU.

    Numbers are taken as nvidia-smi's, by bus; CUDA_DEVICE_ORDER may change them, which matters where the GPUs of a machine differ.
    """
    if wanted is None:
        return present
    chosen: list[int] = []
    for entry in wanted.split(","):
        if entry.strip().startswith("MIG-") and not chosen:  # a part of a GPU: CUDA shows one, and nvidia-smi does not tell of which GPU
            return present[:1]
        number = _number(present, entry.strip())
        if number is None:
            break
        chosen.append(number)
    return [present[number] for number in chosen] if len(set(chosen)) == len(chosen) else []  # naming a GPU twice hides all


def _number(present: list[dict[str, str]], entry: str) -> int | None:
    """Returns the number of the GPU that an entry names; None where it names none."""
    if digits := re.match(r"\d+", entry):  # CUDA ignores what follows them
        return int(digits[0]) if int(digits[0]) < len(present) else None
    same = [number for number, gpu in enumerate(present) if entry.startswith("GPU-") and gpu["uuid"].startswith(entry)]
    return same[0] if len(same) == 1 else None


def kind() -> str:
    """Returns the device that benchmarks run on here: cuda where there is a GPU, else cpu."""
    return "cuda" if gpus() else "cpu"


def named(device: str | None) -> str:
    """Returns the device that is asked for, or the one that benchmarks run on here; raises BadInput for what is none."""
    if device and device not in KINDS:
        raise unknown("device", str(device), list(KINDS))
    return device or kind()


def require(device: str | None) -> str:
    """Returns the same; raises Unavailable for a device that this machine does not have."""
    if named(device) == "cuda" and not gpus():
        raise Unavailable("no GPU was found (nvidia-smi does not answer, or CUDA_VISIBLE_DEVICES hides it); use --device cpu.")
    return named(device)


def capability() -> tuple[int, int]:
    """Returns the compute capability of the first GPU; (0, 0) without a GPU."""
    if not gpus():
        return (0, 0)
    major, minor = gpus()[0]["compute_cap"].split(".")
    return int(major), int(minor)


def memory(device: str) -> int:
    """Returns the bytes of the first GPU; 0 on a CPU, or where the driver does not tell."""
    megabytes = gpus()[0]["memory.total"] if device == "cuda" and gpus() else ""
    return int(megabytes) << 20 if megabytes.isdecimal() else 0


def title() -> str:
    """Returns the name of the first GPU, or "CPU"."""
    return gpus()[0]["name"] if gpus() else "CPU"


@cache
def model(device: str) -> str:
    """Returns the name of the GPU or of the CPU, which two machines must share for their times to be the same measurement."""
    if device == "cuda":
        return title()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
