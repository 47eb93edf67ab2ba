"""What device this machine has, found without importing torch."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache


@cache
def gpus() -> list[dict[str, str]]:
    """Name, compute capability, memory and driver of each GPU; empty where there is none."""
    fields = ("name", "compute_cap", "memory.total", "driver_version")
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if answer.returncode:
        return []
    return [
        dict(zip(fields, (value.strip() for value in line.split(",")), strict=True))
        for line in answer.stdout.splitlines()
        if line.count(",") == 3
    ]


def kind() -> str:
    """The device that benchmarks run on here: cuda where there is a GPU, else cpu."""
    return "cuda" if gpus() else "cpu"


def capability() -> tuple[int, int]:
    if not gpus():
        return (0, 0)
    major, minor = gpus()[0]["compute_cap"].split(".")
    return int(major), int(minor)


def title() -> str:
    return gpus()[0]["name"] if gpus() else "CPU"
