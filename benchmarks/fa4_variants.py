"""Which settings of fa4:bands pay: every option on every mask, checked at a small size, then timed.

    python benchmarks/fa4_variants.py --out fa4.jsonl [--seqlen 32768] [--masks causal,full] [--options tile_64_rows] [--passes forward]

Prints one table per pass (masks x options, TFLOP/s), the largest error of each option and the time to lower each mask at 128K.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from longca import masks
from longca.kernels.backends.fa4._bands import BandAttention, Tuning
from longca.kernels.backends.fa4.kernel import Fa4
from longca.kernels.base import Attention, Case
from longca.kernels.lower import dense
from longca.masks import Mask

HEADS, KV_HEADS, HEAD_DIM, SEED = 64, 8, 128, 42
SMALL = 1152  # ends with a tile, as the lengths to time do, so that the same compiled kernel is checked; `blind` does not
TOLERANCE = 0.03  # of the largest value of a result; bf16 stays below 0.01
SPIN_CYCLES = 2_000_000  # lets the host run ahead of the device


@dataclass(frozen=True)
class Option:
    tuning: Tuning | None  # None: what FA4 knows itself, through fa4:native or fa4:varlen
    passes: tuple[str, ...] = ("forward", "backward")


OPTIONS = {
    "default": Option(Tuning()),
    "native": Option(None),
    "per_score": Option(Tuning(per_fragment=False, packed_lists=False, skip_ends=False, backward_rows=128)),  # the plain form
    "coarse_lists": Option(Tuning(packed_lists=False), ("forward",)),
    "fine_lists": Option(Tuning(packed_lists=True), ("forward",)),
    "no_pack": Option(Tuning(pack_gqa=False), ("forward",)),
    "in_order": Option(Tuning(heavy_first=False), ("forward",)),
    "last_first": Option(Tuning(heavy_first=True), ("forward",)),
    "no_overlap": Option(Tuning(overlap=False), ("forward",)),
    "tile_64_keys": Option(Tuning(forward_tile=(128, 64)), ("forward",)),
    "tile_96_keys": Option(Tuning(forward_tile=(128, 96)), ("forward",)),
    "tile_112_keys": Option(Tuning(forward_tile=(128, 112)), ("forward",)),
    "tile_64_rows": Option(Tuning(forward_tile=(64, 128)), ("forward",)),
    "rows_64": Option(Tuning(backward_rows=64), ("backward",)),
    "rows_80": Option(Tuning(backward_rows=80), ("backward",)),
    "rows_128": Option(Tuning(backward_rows=128), ("backward",)),
    "test_ends": Option(Tuning(backward_rows=64, skip_ends=False), ("backward",)),
    "descending": Option(Tuning(descending=True)),
}


def build(name: str, seqlen: int) -> Mask:
    params: dict[str, Any] = {"prefix_lm_causal": {"p": max(1, seqlen // 3)}, "global_sliding_window": {"g": 1024, "w": 1024}}.get(name, {})
    if seqlen <= 2048:  # the windows of the benchmark would show everything
        small = {"sliding_window": {"w": 100}, "sliding_window_causal": {"w": 100}, "global_sliding_window": {"g": 70, "w": 100}}
        params = small.get(name, params) | ({"B": 100} if name == "block_causal_document" else {})
    mask = masks.build(name, seqlen, seed=SEED, **params)
    assert isinstance(mask, Mask)
    return mask


def blind() -> Mask:
    """Rows that see nothing, tiles that nobody lists, different lengths."""
    return build("global_sliding_window", 1500).rows([(80, 400), (600, 1400)]).cols([(75, 500), (1000, 1300)])


def kernel_for(option: Option, mask: Mask, case: Case) -> Fa4 | None:
    if option.tuning is not None:
        return Fa4("bands", option.tuning)
    native = (Fa4(variant) for variant in ("native", "varlen"))
    return next((kernel for kernel in native if kernel.supports(mask, case)), None)


def inputs(case: Case) -> list[torch.Tensor]:
    """q, k, v, dout."""
    generator = torch.Generator("cuda").manual_seed(SEED)
    lengths = ((case.seqlen_q, case.heads_q), (case.seqlen_k, case.heads_kv), (case.seqlen_k, case.heads_kv), (case.seqlen_q, case.heads_q))
    return [torch.randn(*shape, HEAD_DIM, device="cuda", dtype=torch.bfloat16, generator=generator) for shape in lengths]


def reference(mask: Mask, case: Case, tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """out, lse, dq, dk, dv in fp32 from every pair."""
    q, k, v = (tensor.float().requires_grad_() for tensor in tensors[:3])
    keys, values = (tensor.repeat_interleave(case.group, 1) for tensor in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, keys) * case.softmax_scale
    scores = scores.masked_fill(~dense(mask, "cuda"), float("-inf"))
    lse = scores.logsumexp(-1)
    weights = torch.exp(scores - lse.clamp_min(-1e30)[..., None])
    out = torch.einsum("hqk,khd->qhd", weights, values)
    grads = torch.autograd.grad(out, (q, k, v), tensors[3].float())
    return (out.detach(), lse.detach(), *(torch.nan_to_num(grad) for grad in grads))


def check(option: Option, mask: Mask) -> dict[str, float]:
    """The largest error of each result, as a part of its largest value; raises where one is too large."""
    case = Case(mask.seqlen_q, mask.seqlen_k, 2 * HEADS // KV_HEADS, 2, HEAD_DIM, HEAD_DIM, device="cuda")
    kernel = kernel_for(option, mask, case)
    if kernel is None:
        return {}
    q, k, v, dout = tensors = inputs(case)
    attention = kernel.prepare(mask, case)
    out, lse = attention.forward(q, k, v)
    assert lse is not None
    grads = attention.backward(dout, q, k, v, out, lse)
    names, wanted = ("out", "lse", "dq", "dk", "dv"), reference(mask, case, tensors)
    errors = {}
    for name, got, expected in zip(names, (out, lse, *grads), wanted, strict=True):
        same_infinities = bool((torch.isfinite(got) == torch.isfinite(expected)).all())
        finite = torch.isfinite(expected)
        errors[name] = float((got - expected)[finite].abs().max() / expected[finite].abs().max()) if same_infinities else float("inf")
    worst = max(errors, key=lambda name: errors[name])
    if not errors[worst] <= TOLERANCE:
        raise ArithmeticError(f"{worst} of {mask} is off by {errors[worst]:.3g} of its largest value")
    return errors


def milliseconds(run: Any, flush: torch.Tensor, repeats: int) -> float:
    times: list[float] = []
    for repeat in range(repeats + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        torch.cuda._sleep(SPIN_CYCLES)
        start.record()
        run()
        end.record()
        end.synchronize()
        if repeat > 1:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def measure(option: Option, mask: Mask, tensors: list[torch.Tensor], flush: torch.Tensor, passes: list[str]) -> dict[str, float]:
    """TFLOP/s of each pass."""
    case = Case(mask.seqlen_q, mask.seqlen_k, HEADS, KV_HEADS, HEAD_DIM, HEAD_DIM, device="cuda")
    kernel = kernel_for(option, mask, case)
    if kernel is None:
        return {}
    attention: Attention = kernel.prepare(mask, case)
    q, k, v, dout = tensors
    out, lse = attention.forward(q, k, v)
    runs = {"forward": lambda: attention.forward(q, k, v), "backward": lambda: attention.backward(dout, q, k, v, out, lse)}
    work = {"forward": 4, "backward": 10}
    repeats = 3 if mask.density > 0.3 else 7
    scale = mask.area * HEADS * HEAD_DIM / 1e9
    return {name: work[name] * scale / milliseconds(runs[name], flush, repeats) for name in passes if name in option.passes}


def lowering_ms(seqlen: int) -> dict[str, float]:
    """Building a mask and lowering it for both passes, without compiling."""
    found = {}
    for name in masks.names():
        torch.cuda.synchronize()
        start = time.perf_counter()
        BandAttention(build(name, seqlen), Case(seqlen, seqlen, HEADS, KV_HEADS, HEAD_DIM, HEAD_DIM, device="cuda"), Tuning())
        torch.cuda.synchronize()
        found[name] = 1e3 * (time.perf_counter() - start)
    return found


def write(path: Path, record: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def run_options(arguments: argparse.Namespace) -> None:
    """Every option from the first one still to do; where an option leaves the device unusable, a new process goes on behind it."""
    case = Case(arguments.seqlen, arguments.seqlen, HEADS, KV_HEADS, HEAD_DIM, HEAD_DIM)
    tensors, flush = inputs(case), torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    deadline = time.monotonic() + arguments.budget
    for place, name in list(enumerate(arguments.options))[arguments.first :]:
        begun = time.perf_counter()
        if time.monotonic() > deadline:
            print(f"{name}: left out, the {arguments.budget:.0f} s of --budget are over", flush=True)
            continue
        for mask_name in arguments.masks:
            try:
                errors = check(OPTIONS[name], build(mask_name, SMALL)) | {
                    f"blind {key}": error
                    for key, error in (check(OPTIONS[name], blind()) if mask_name == arguments.masks[0] else {}).items()
                }
                speed = measure(OPTIONS[name], build(mask_name, arguments.seqlen), tensors, flush, arguments.passes)
                write(arguments.out, {"option": name, "mask": mask_name, "seqlen": arguments.seqlen, "errors": errors, "tflops": speed})
            except Exception as error:  # a tuning script goes on with the next setting, whatever failed
                problem = f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else ''}"
                print(f"{name} {mask_name}: {problem}", flush=True)
                write(arguments.out, {"option": name, "mask": mask_name, "seqlen": arguments.seqlen, "problem": problem})
                if not device_works():
                    os.execv(sys.executable, [sys.executable, *sys.argv, "--first", str(place + 1)])
        print(f"{name}: {time.perf_counter() - begun:.1f} s", flush=True)


def compile_only(arguments: argparse.Namespace) -> None:
    """Compile everything that a run needs, from shapes alone; FA4's cache on disk then carries it to the machine with the device.

    FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED=1 and FLASH_ATTENTION_CUTE_DSL_CACHE_DIR say where; without a device also
    CUTE_DSL_ARCH=sm_90a FLASH_ATTENTION_ARCH=sm_90 FLASH_ATTENTION_NUM_SMS=132.
    """
    for name in arguments.options[arguments.first :]:
        begun = time.perf_counter()
        for mask in (blind(), *(build(mask_name, length) for mask_name in arguments.masks for length in (SMALL, arguments.seqlen))):
            case = Case(mask.seqlen_q, mask.seqlen_k, HEADS, KV_HEADS, HEAD_DIM, HEAD_DIM, device="cuda")
            with FakeTensorMode(allow_non_fake_inputs=True):
                kernel = kernel_for(OPTIONS[name], mask, case)
                if kernel is not None:
                    kernel.prepare(mask, case)
        print(f"{name}: {time.perf_counter() - begun:.1f} s", flush=True)


def device_works() -> bool:
    try:
        torch.zeros(1, device="cuda").item()
    except RuntimeError:
        return False
    return True


def print_tables(arguments: argparse.Namespace) -> None:
    records = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    records = [record for record in records if record.get("seqlen") == arguments.seqlen]
    for name in arguments.passes:
        shown = [option for option in arguments.options if name in OPTIONS[option].passes]
        print(f"\n{name}, TFLOP/s, {arguments.seqlen} tokens\n{'':24s}" + "".join(f"{option[:13]:>14s}" for option in shown))
        for mask in arguments.masks:
            cells = {record["option"]: record.get("tflops", {}).get(name) for record in records if record["mask"] == mask}
            figures = (f"{cells[option]:.0f}" if cells.get(option) else "-" for option in shown)
            print(f"{mask:24s}" + "".join(f"{figure:>14s}" for figure in figures))
    print("\nlargest error of each option, as a part of the largest value")
    for option in arguments.options:
        errors = [(error, key) for record in records if record["option"] == option for key, error in record.get("errors", {}).items()]
        print(f"{option:24s}" + (f"{max(errors)[0]:.2g} ({max(errors)[1]})" if errors else "-"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines are added to this file")
    parser.add_argument("--seqlen", type=int, default=32768)
    parser.add_argument("--masks", type=lambda text: text.split(","), default=masks.names())
    parser.add_argument("--options", type=lambda text: text.split(","), default=list(OPTIONS))
    parser.add_argument("--passes", type=lambda text: text.split(","), default=["forward", "backward"])
    parser.add_argument("--budget", type=float, default=150.0, help="seconds after which no further option is begun")
    parser.add_argument("--first", type=int, default=0, help="place of the first option to run")
    parser.add_argument("--compile-only", action="store_true", help="fill FA4's cache on disk; needs no device")
    arguments = parser.parse_args()
    if arguments.compile_only:
        compile_only(arguments)
        return
    run_options(arguments)
    print_tables(arguments)
    print("\nlowering at 131072 tokens, ms: " + ", ".join(f"{name} {ms:.0f}" for name, ms in lowering_ms(131072).items()))


if __name__ == "__main__":
    main()
