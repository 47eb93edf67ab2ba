"""What the events of a program cost on a device, in seconds."""

from __future__ import annotations

from longca.kernels.base import BYTES
from longca.parallel.comm.base import AttentionCall
from longca.parallel.cuts import TILE
from longca.results.metrics import flops_of
from longca.results.problem import Pass
from longca.simulate.cluster import Compute

FP32 = 4  # bytes of a value in a sum


def attention_s(call: AttentionCall, compute: Compute) -> float:
    """Returns the seconds of a call: of whole tiles, and in a backward also of the bytes that it moves for each query row and head."""
    pairs = (call.tiles * TILE * TILE if compute.skips_tiles else call.rows * call.keys) * call.heads_q
    pass_ = Pass.BWD if call.backward else Pass.FWD
    speed = compute.backward_tflops if call.backward else compute.forward_tflops
    seconds = flops_of(pairs, call.head_dim, call.head_dim_v, pass_) / (speed * 1e12)
    if compute.half_rows:
        seconds *= 1 + compute.half_rows / max(1, call.rows)
    if call.backward:
        seconds += backward_bytes(call.rows, call.heads_q, call.head_dim, call.dtype) / (compute.memory_gb_s * 1e9)
    return seconds + compute.launch_us * 1e-6


def backward_bytes(rows: int, heads_q: int, head_dim: int, dtype: str) -> int:
    """Returns the bytes that a backward moves beside the tiles of its mask: for each row and query head it reads out and dout, clears and
    reads the fp32 sum of dq, and writes dq."""
    return rows * heads_q * head_dim * (3 * BYTES[dtype] + 2 * FP32)


def memory_s(size: int, calls: int, compute: Compute) -> float:
    """Returns the seconds of operations that read and write memory, one after the other."""
    return size / (compute.memory_gb_s * 1e9) + calls * compute.launch_us * 1e-6
