"""What a call of longca.attention costs beside the kernel: directly, through the operator of torch.compile, and compiled.

`python benchmarks/attention_overhead.py [kernel]`; a few tokens on the CPU, or on the GPU where there is one (then host time counts).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch

import longca
from longca import masks
from longca.kernels import functional, operator

TOKENS, HEADS, KV_HEADS, SIZE = 8, 4, 2, 64
CALLS, ROUNDS = 200, 10


def microseconds(call: Callable[[], object]) -> float:
    """The best of some rounds, per call."""
    for _ in range(CALLS):
        call()
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, (time.perf_counter() - start) / CALLS)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return best * 1e6


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    kernel = sys.argv[1] if len(sys.argv) > 1 else None
    q, k, v = (torch.randn(TOKENS, heads, SIZE, device=device, dtype=dtype, requires_grad=True) for heads in (HEADS, KV_HEADS, KV_HEADS))
    mask = masks.causal(TOKENS)
    case = functional.make_case(q, k, v, 0.0, 0.0, False, False, True)
    chosen, prepared = functional.prepared_for(kernel, mask, case, q.device.index)
    dout = torch.randn(TOKENS, HEADS, SIZE, device=device, dtype=dtype)
    compiled = torch.compile(longca.attention, fullgraph=True)
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "the kernel alone": lambda: prepared.forward(q.detach(), k.detach(), v.detach())[0],
        "longca.attention": lambda: longca.attention(q, k, v, mask, kernel=kernel),
        "the operator": lambda: operator.compiled_attention(q, k, v, mask, kernel, 0.0, 0.0, None, False, False)[0],
        "torch.compile": lambda: compiled(q, k, v, mask, kernel=kernel),
    }
    print(f"{chosen.label} on {device}, {TOKENS} tokens, {torch.get_num_threads()} threads; µs per call")
    for name, way in ways.items():
        forward = microseconds(way)
        both = microseconds(lambda way=way: torch.autograd.grad(way(), (q, k, v), dout)) if name != "the kernel alone" else None  # type: ignore[misc]
        print(f"{name:18} forward {forward:7.0f}" + ("" if both is None else f"   forward and backward {both:7.0f}"))


if __name__ == "__main__":
    main()
