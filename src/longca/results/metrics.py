"""From a mask's area to FLOPs, from milliseconds to TFLOP/s and tokens/s, and the peaks of devices."""

from __future__ import annotations

from longca.kernels.base import Case
from longca.masks import AnyMask
from longca.results.record import Pass

BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}  # of one value
DTYPES = tuple(BYTES)
GIB = 1 << 30
RELATIVE_COST = {Pass.FWD: 1.0, Pass.BWD: 2.5, Pass.BOTH: 3.5}  # of a pass in forwards, for estimates

# dense bf16/fp16 matrix peak by datasheet, TFLOP/s: a kernel that claims more is invalid
PEAK_TFLOPS = {"H200": 989.0, "H100": 989.0, "H800": 989.0, "H20": 148.0, "A100": 312.0, "A800": 312.0, "B200": 2250.0, "L40S": 362.0}


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


def tflops(work: float, ms: float) -> float:
    return work / ms / 1e9


def tokens_s(seqlen: int, ms: float) -> float:
    """Tokens per second of one layer's attention; over many ranks of all of them together, as `seqlen` is the whole sequence."""
    return seqlen / ms * 1e3


def peak(device: str, dtype: str = "bf16") -> float | None:
    """The device's peak in TFLOP/s; None where it is not known. fp32 may run as tf32, at half the speed of bf16."""
    for name in sorted(PEAK_TFLOPS, key=len, reverse=True):
        if name in device:
            return PEAK_TFLOPS[name] * (1.0 if dtype in ("bf16", "fp16") else 0.5)
    return None


def too_fast(speed: float, device: str, dtype: str) -> str:
    """Why a speed cannot be true, as a clause; empty where it can."""
    limit = peak(device, dtype)
    if limit is None or speed <= limit:
        return ""
    return f"{speed:.0f} TFLOP/s is above the {limit:.0f} that {device} can do in {dtype}: the work was not done, or not timed"
