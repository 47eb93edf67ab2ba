"""From a mask's area to FLOPs, from milliseconds to TFLOP/s and tokens/s, and the peaks of devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from longca.kernels.base import BYTES, Case
from longca.masks import AnyMask
from longca.results.problem import Pass

DTYPES = tuple(BYTES)
GIB = 1 << 30

# dense bf16/fp16 matrix peak by datasheet, TFLOP/s: a kernel that claims more is invalid
PEAK_TFLOPS = {"H200": 989.0, "H100": 989.0, "H800": 989.0, "H20": 148.0, "A100": 312.0, "A800": 312.0, "B200": 2250.0, "L40S": 362.0}
# the SM clock of that peak, in MHz: an H200 has 132 SMs with 4,096 operations a cycle, an A100 has 108 with 2,048
PEAK_MHZ = {"H200": 1830.0, "H100": 1830.0, "H800": 1830.0, "A100": 1410.0, "A800": 1410.0}
# what a device holds under a long matrix product (benchmarks/settling.py): the clock that times are given for
SETTLED_MHZ = {"H200": 1410.0}
# memory bandwidth by datasheet, TB/s; of several models of a name the fastest
PEAK_TB_S = {"H200": 4.8, "H100": 3.35, "H100 NVL": 3.94, "H800": 3.35, "H20": 4.0, "A100": 2.04, "A800": 2.04, "B200": 8.0, "L40S": 0.864}


class ReferenceClock(NamedTuple):
    """The SM clock that times of a device are given for, and the clock from which on its power does not limit it."""

    at_mhz: float
    most_mhz: float


def imbalance(work: Sequence[float]) -> float:
    """The most work of a rank over the mean: 1 is even."""
    return max(work) * len(work) / sum(work) if sum(work) else 1.0


def pairs(mask: AnyMask, case: Case) -> int:
    """Visible pairs over all query heads."""
    return mask.area * case.heads_q // mask.heads


def flops(mask: AnyMask, case: Case, pass_: Pass) -> int:
    return flops_of(pairs(mask, case), case.head_dim, case.head_dim_v, pass_)


def flops_of(pairs: int, head_dim: int, head_dim_v: int, pass_: Pass) -> int:
    """Operations of 2 matrix products forward and 5 backward, each 2 * pairs * head size."""
    forward = 2 * pairs * (head_dim + head_dim_v)
    backward = 2 * pairs * (3 * head_dim + 2 * head_dim_v)
    return {Pass.FWD: forward, Pass.BWD: backward, Pass.BOTH: forward + backward}[pass_]


def traffic(case: Case, pass_: Pass) -> int:
    """The bytes that a pass moves at least: every tensor that it reads or writes once."""
    rows, keys = case.seqlen_q * case.heads_q, case.seqlen_k * case.heads_kv
    tensors = (rows + keys) * (case.head_dim + case.head_dim_v) * BYTES[case.dtype]  # q, k, v and out
    forward = tensors + rows * max(4, BYTES[case.dtype])  # and lse
    backward = forward + tensors  # and dout, dq, dk, dv
    return {Pass.FWD: forward, Pass.BWD: backward, Pass.BOTH: forward + backward}[pass_]


def tflops(work: float, ms: float) -> float:
    return work / ms / 1e9


def tokens_s(seqlen: int, ms: float) -> float:
    """Tokens per second of one layer's attention; over many ranks of all of them together, as `seqlen` is the whole sequence."""
    return seqlen / ms * 1e3


@cache
def peak(device: str, dtype: str = "bf16", mhz: float | None = None) -> float | None:
    """The device's peak in TFLOP/s, at an SM clock where both are known; None where no peak is known. fp32 may run as tf32, at half the
    speed of bf16."""
    bf16, peak_mhz = _of_device(PEAK_TFLOPS, device), _of_device(PEAK_MHZ, device)
    if bf16 is None:
        return None
    return bf16 * (1.0 if dtype in ("bf16", "fp16") else 0.5) * (mhz / peak_mhz if mhz and peak_mhz else 1.0)


def reference_clock(device: str) -> ReferenceClock | None:
    """None where it is not known; times of the device stay as measured."""
    at_mhz, most_mhz = _of_device(SETTLED_MHZ, device), _of_device(PEAK_MHZ, device)
    return ReferenceClock(at_mhz, most_mhz) if at_mhz and most_mhz else None


@cache
def bandwidth(device: str) -> float | None:
    """The bandwidth of the device's memory in TB/s; None where it is not known."""
    return _of_device(PEAK_TB_S, device)


def _of_device(values: Mapping[str, float], device: str) -> float | None:
    """The value of the longest name that the name of a device has in it."""
    return next((values[name] for name in sorted(values, key=len, reverse=True) if name in device), None)


CPU_HZ = 5e9
CPU_FLOPS = 64  # fp32 operations per cycle and core with AVX2: two units, eight lanes, multiply and add, and as much again to be generous
FASTEST_CPU = frozenset({"avx512f", "amx_tile"})


def cpu_bound(cores: int, dtype: str, flags: Collection[str] = FASTEST_CPU) -> float:
    """TFLOP/s that no CPU with so many cores reaches. Without knowing its flags the CPU counts as the fastest kind."""
    fp32 = cores * CPU_HZ * CPU_FLOPS * (2 if "avx512f" in flags else 1) / 1e12
    half = 16 if any(flag.startswith("amx") for flag in flags) else 2
    return fp32 * {"fp64": 0.5, "fp32": 1}.get(dtype, half)


@cache
def cpu_flags(file: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The flags of this machine's CPU; those of the fastest kind where the system names none, as on ARM."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), None)
    return FASTEST_CPU if flags is None else frozenset(flags)


def too_fast(speed: float, limit: float | None, device: str, dtype: str) -> str:
    """Why a speed above the limit cannot be true, as a clause; empty where it can, or where no limit is known."""
    if limit is None or speed <= limit:
        return ""
    return f"{speed:.3g} TFLOP/s is above the {limit:.3g} that {device} can do in {dtype}: the work was not done, or not timed"
