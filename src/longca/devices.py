"""What device this machine has, found without importing torch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache

from longca.errors import Unavailable


def ask(query: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """What nvidia-smi answers, one dictionary per GPU or process; empty where there is no driver or it does not answer."""
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
    """Name, compute capability, memory and driver of each GPU that torch will see here, in its order; empty where there is none."""
    return visible(ask("gpu", ("name", "compute_cap", "memory.total", "driver_version", "uuid")), os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible(found: list[dict[str, str]], wanted: str | None) -> list[dict[str, str]]:
    """What CUDA_VISIBLE_DEVICES leaves of GPUs, read as CUDA does: numbers or beginnings of UUIDs, up to the first that names none.

    Numbers are taken for nvidia-smi's, by bus; CUDA_DEVICE_ORDER may say otherwise, which matters where GPUs of one machine differ.
    """
    if wanted is None:
        return found
    chosen: list[int] = []
    for entry in wanted.split(","):
        if entry.strip().startswith("MIG-") and not chosen:  # a part of a GPU: CUDA shows one, and nvidia-smi does not say whose
            return found[:1]
        number = _number(found, entry.strip())
        if number is None:
            break
        chosen.append(number)
    return [found[number] for number in chosen] if len(set(chosen)) == len(chosen) else []  # to name one twice hides all


def _number(found: list[dict[str, str]], entry: str) -> int | None:
    """Which GPU an entry names, if any."""
    if digits := re.match(r"\d+", entry):  # whatever follows them
        return int(digits[0]) if int(digits[0]) < len(found) else None
    same = [number for number, gpu in enumerate(found) if entry.startswith("GPU-") and gpu["uuid"].startswith(entry)]
    return same[0] if len(same) == 1 else None


def kind() -> str:
    """The device that benchmarks run on here: cuda where there is a GPU, else cpu."""
    return "cuda" if gpus() else "cpu"


def require(device: str) -> None:
    """Refuse a device that this machine does not have."""
    if device == "cuda" and not gpus():
        raise Unavailable("no GPU was found (nvidia-smi does not answer, or CUDA_VISIBLE_DEVICES hides it); use --device cpu.")


def capability() -> tuple[int, int]:
    if not gpus():
        return (0, 0)
    major, minor = gpus()[0]["compute_cap"].split(".")
    return int(major), int(minor)


def memory(device: str) -> int:
    """Bytes of the first GPU; 0 on a CPU, or where the driver does not say."""
    megabytes = gpus()[0]["memory.total"] if device == "cuda" and gpus() else ""
    return int(megabytes) << 20 if megabytes.isdecimal() else 0


def title() -> str:
    return gpus()[0]["name"] if gpus() else "CPU"
