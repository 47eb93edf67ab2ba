"""Measures ideas for a faster Hopper backward against the kernels that are fastest without them, on one GPU.

    PYTHONPATH=src python benchmarks/backward_ideas.py [--masks causal_document,share_question] [--seqlens 32K,128K] [--ideas joined,whole]
    PYTHONPATH=src python benchmarks/backward_ideas.py --out results/h200/backward_ideas.jsonl     appends what it measures
    PYTHONPATH=src python benchmarks/backward_ideas.py --compile-only     needs no GPU: compiles for a Hopper GPU into --cache

First each idea goes through the check on small masks; one that is wrong is not timed. Then all kernels are timed in turn on the same
numbers. It prints milliseconds, TFLOP/s and the share of what tiles allow (`benchmarks/limits.py`); of FlashAttention-4's kernels also the
parts of the time: before (delta, cleared sums), main, after (sums to gradients) and rest (fills). Compiled kernels are kept in --cache.

Ideas, all with tile lists, in the library's main kernel:
    lists       nothing else: as fa4:bands
    joined      a thread block takes several query heads of one KV head, as many as leave the longest block short
    joined2, joined4, joined8       the same with so many heads
    outer, outer2, outer4, outer8   the same, but all tiles of a head before those of the next: partial tiles of all heads, then full tiles
    whole, whole2, whole4, whole8   the same, but partial and full tiles of a head before those of the next
    documents1, documents2, documents4, documents8      as lists and whole, but blocks of the longest documents begin first, those of a
                document and head together
    finish1, ... finish8    the same, and the block that adds the last part of a dq tile converts it after its last tile, and leaves zeros
    cleared1, ... cleared8  the same, but every call clears the sums
    documents   the same with as many heads as leave the longest block half of the time
    heavy       thread blocks with the most work begin first
    heavy_joined        both, with as many heads as leave the longest block half of the time
    keys64      tiles of 64 keys instead of 128: fewer scores outside the mask
Counted and not built: delta inside the main kernel, for which it would load `out` with every tile of dout.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from longca import masks
from longca.errors import LongcaError
from longca.text import format_size, parse_heads, parse_size

MASKS = "sliding_window,sliding_window_causal,full_document,causal_document,share_question,causal_blockwise"
PEERS = "fa4,fa4:bands,fa3,cudnn_flex"
IDEAS: dict[str, dict[str, Any]] = {
    "joined": {},
    "joined2": {"joined": 2},
    "joined4": {"joined": 4},
    "joined8": {"joined": 8},
    "outer": {"order": "heads"},
    "outer2": {"joined": 2, "order": "heads"},
    "outer4": {"joined": 4, "order": "heads"},
    "outer8": {"joined": 8, "order": "heads"},
    "whole": {"order": "whole heads"},
    "whole2": {"joined": 2, "order": "whole heads"},
    "whole4": {"joined": 4, "order": "whole heads"},
    "whole8": {"joined": 8, "order": "whole heads"},
    "documents1": {"joined": 1, "documents_first": True},
    "documents2": {"joined": 2, "order": "whole heads", "documents_first": True},
    "documents4": {"joined": 4, "order": "whole heads", "documents_first": True},
    "documents8": {"joined": 8, "order": "whole heads", "documents_first": True},
    **{f"finish{n}": {"joined": n, "order": "whole heads", "documents_first": True, "finishes": "keep"} for n in (1, 2, 4, 8)},
    **{f"cleared{n}": {"joined": n, "order": "whole heads", "documents_first": True, "finishes": "clear"} for n in (1, 2, 4, 8)},
    "documents": {"order": "whole heads", "documents_first": True},
    "lists": {"joined": 1},
    "heavy": {"joined": 1, "heavy_first": True},
    "heavy_joined": {"heavy_first": True},
    "keys64": {"joined": 1, "keys": 64},
}
CHECKED = ("full", "sliding_window", "causal_document", "share_question", "causal_blockwise")
CHECKED_TOKENS, WINDOW = 1536, 99
DENSE_SPEED = 615.0  # TFLOP/s of the fastest dense backward on an H200
PARTS = {"preprocess": "before", "bwd_sm90": "main", "JoinedBackward": "main", "postprocess": "after"}
SAMPLES, WARMUP = 9, 2
MARK, MARK_CYCLES = "spin_kernel", 1000  # a kernel between those of two entrants in a profile


def build(name: str, seqlen: int, **params: Any) -> Any:
    return masks.build(name, seqlen, seed=42, **params)


def case_of(mask: Any, args: argparse.Namespace, kv_heads: int | None = None) -> Any:
    """Returns the case that will be timed, or one with fewer KV heads, for which the same kernels are compiled."""
    from longca.kernels.base import Case

    heads, heads_kv = parse_heads(args.heads)
    fewer = kv_heads or heads_kv
    return Case(mask.seqlen_q, mask.seqlen_k, fewer * heads // heads_kv, fewer, args.head_dim, args.head_dim, args.dtype, "cuda")


def kernel_of(label: str, small: bool = False) -> Any:
    """Returns the kernel of a label, or of an idea's name; on a small mask two heads are joined where the number is not given."""
    from longca.kernels import registry
    from longca.kernels.backends.fa4._joined import Joining
    from longca.kernels.backends.fa4.kernel import Fa4

    if label not in IDEAS:
        return registry.get(label)
    joining = Joining(**IDEAS[label])
    return Fa4("joined", joining=replace(joining, joined=joining.joined or 2) if small else joining)


def small_mask(name: str) -> Any:
    return build(name, CHECKED_TOKENS, **({"w": WINDOW} if "sliding" in name else {}))


def compile_only(args: argparse.Namespace) -> None:
    """Compiles the ideas for the masks of the check, and ideas and FlashAttention-4's own variants for the masks that will be timed."""
    from compile_fa4 import pretend
    from torch._subclasses.fake_tensor import FakeTensorMode

    from longca.kernels import registry

    pretend(1, args.cache)
    begun = time.monotonic()
    timed = [build(name, parse_size(length)) for name, length in product(masks.expand(args.masks.split(",")), args.seqlens.split(","))]
    small = [small_mask(name) for name in CHECKED]
    for label in (*args.ideas.split(","), *(peer for peer in args.peers.split(",") if peer.startswith("fa4"))):
        jobs = [(mask, case_of(mask, args, 2), kernel_of(label, small=True)) for mask in small if label in IDEAS]
        jobs += [(mask, case, registry.choose(kernel_of(label), mask, case)) for mask in timed for case in [case_of(mask, args)]]
        for mask, case, kernel in jobs:
            with FakeTensorMode(allow_non_fake_inputs=True):
                kernel.prepare(mask, case)
        print(f"{label}: {time.monotonic() - begun:.0f} s", flush=True)


def check(args: argparse.Namespace) -> list[str]:
    """Checks each idea on small masks, prints what is wrong, and returns the ideas that are right."""
    from longca.bench.check.check import check_kernel
    from longca.bench.check.reference import reference

    begun, wrong = time.monotonic(), set()
    for name in CHECKED:
        mask = small_mask(name)
        case = case_of(mask, args, 2)
        right = reference(mask, case)
        for idea in args.ideas.split(","):
            kernel = kernel_of(idea, small=True)
            try:
                verdict = check_kernel(kernel, kernel.prepare(mask, case), case, right)
                reason = "" if verdict.ok else verdict.reason
            except (LongcaError, RuntimeError) as error:
                reason = f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"
            if reason:
                wrong.add(idea)
                print(f"{idea} on {name}: WRONG, {reason}", flush=True)
    ideas = [idea for idea in args.ideas.split(",") if idea not in wrong]
    print(f"right on {len(CHECKED)} masks: {', '.join(ideas) or 'none'}; {time.monotonic() - begun:.0f} s", flush=True)
    return ideas


@dataclass
class Entrant:
    label: str
    ran: str
    subject: Any
    inputs: Any
    samples: list[float] = field(default_factory=list)

    def backward(self) -> Any:
        return self.subject.backward(self.inputs)

    @property
    def ms(self) -> float:
        return median(self.samples[WARMUP:])


def entrants(mask: Any, case: Any, labels: list[str]) -> Iterator[Entrant]:
    from longca.bench.check.check import KernelSubject
    from longca.kernels import registry
    from longca.kernels.inputs import make

    given: dict[str, Any] = {}
    seen: dict[Any, str] = {}
    for label in labels:
        try:
            kernel = registry.choose(kernel_of(label), mask, case)
            ran, attention = registry.prepare(kernel, mask, case)
            heads = getattr(attention, "heads", 1)
            options = IDEAS.get(label, {}) | {"joined": heads}
            if heads == 1:
                options.pop("order", None)
            kind = (ran.label, frozenset(options.items()))
            if kind in seen:
                print(f"  {label} is {seen[kind]} here")
                continue
            seen[kind] = label
            numbers = given.setdefault(ran.layout, make(case, layout=ran.layout))
            name = f"{ran.label}, {heads} heads" if heads > 1 else ran.label
            entrant = Entrant(label, name, KernelSubject(ran, attention, case), numbers)
            entrant.subject.forward(numbers)
            entrant.backward()
        except (LongcaError, RuntimeError) as error:
            print(f"  {label} left out: {type(error).__name__}: {str(error).splitlines()[0][:160]}", flush=True)
            continue
        yield entrant


def parts_of(running: list[Entrant]) -> list[dict[str, float]]:
    """Returns for each kernel of FlashAttention-4 the milliseconds of a backward by part, from one profile of two calls of each."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for entrant in running:
            torch.cuda._sleep(MARK_CYCLES)
            for _ in range(2):
                entrant.backward()
        torch.cuda.synchronize()
    events = [event for event in profiler.events() or () if event.device_type.name == "CUDA"]
    found: list[dict[str, float]] = []
    for event in sorted(events, key=lambda event: event.time_range.start):
        if MARK in event.name:
            found.append(dict.fromkeys(("before", "main", "after", "rest"), 0.0))
        elif found:
            part = next((part for word, part in PARTS.items() if word in event.name), "rest")
            found[-1][part] += event.time_range.elapsed_us() / 2e3
    if len(found) != len(running):
        print(f"  no parts: the profile shows {len(found)} kernels instead of {len(running)}")
        return [{} for _ in running]
    return [parts if "fa4" in entrant.ran else {} for entrant, parts in zip(running, found, strict=True)]


def difference(entrant: Entrant, right: list[Any]) -> str:
    """Returns the largest distance of dq, dk and dv to another kernel's, in percent of its largest value."""
    return ", ".join(f"{100 * float((a - b).abs().max() / b.abs().max()):.1f}" for a, b in zip(entrant.backward(), right, strict=True))


def delta_bytes(mask: Any, case: Any) -> tuple[float, float]:
    """Returns GB that the kernel before reads for delta (out and dout once), and that the main kernel would read of `out` instead: a tile
    of 64 queries for every tile that the mask touches."""
    tokens = case.seqlen_q * case.heads_q * case.head_dim * 2 / 1e9
    tiles = mask.tiles(64, 128)
    return 2 * tokens, tokens * (tiles.full + tiles.partial) / -(-case.seqlen_q // 64)


def commit() -> str:
    described = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return os.environ.get("LONGCA_COMMIT", "") or described.stdout.strip()


def measure(name: str, seqlen: int, ideas: list[str], args: argparse.Namespace) -> None:
    from longca.kernels.choice.clocks import clock_for
    from longca.results.limits import BACKWARD_ROWS, covered
    from longca.results.metrics import flops
    from longca.results.record import Pass

    mask = build(name, seqlen)
    case = case_of(mask, args)
    shares = [covered(mask.bands, mask.area, seqlen, seqlen, BACKWARD_ROWS, keys) for keys in (128, 64)]
    work, limit, once, more = flops(mask, case, Pass.BWD) / 1e12, args.dense * shares[0], *delta_bytes(mask, case)
    print(f"\n{name}, {format_size(seqlen)} tokens, limit {limit:.0f} TFLOP/s, with 64 keys {shares[1] / shares[0]:.2f} times that")
    if 1e3 * work / limit > args.longest_ms:
        print(f"  left out: a call takes longer than {args.longest_ms:g} ms; --longest-ms allows more")
        return
    print(f"  delta: {once:.2f} GB are read before; inside the main kernel it would read {more:.2f} GB more")
    running, clock = list(entrants(mask, case, [*args.peers.split(","), *ideas])), clock_for("cuda")
    if not running:
        return
    for number in range(WARMUP + SAMPLES):
        for entrant in Random(number).sample(running, len(running)):
            entrant.samples.append(clock.sample(entrant.backward, min(entrant.samples, default=0.0)))
    right, times = list(running[0].backward()), dict[str, Any]()
    for entrant, parts in zip(running, parts_of(running), strict=True):
        speed = 1e3 * work / entrant.ms
        shown = " + ".join(f"{part} {ms:.2f}" for part, ms in parts.items())
        line = f"  {entrant.label:<13}{entrant.ran:<24}{entrant.ms:8.3f} ms {speed:6.0f} TFLOP/s  share {speed / limit:.2f}"
        print(f"{line}  differs by {difference(entrant, right)} %  {shown}", flush=True)
        times[entrant.label] = [entrant.ran, round(entrant.ms, 3), *(round(ms, 2) for ms in parts.values())]
    if args.out:
        row = {"mask": name, "seqlen": seqlen, "work": round(work, 4), "limit": round(limit, 1), "commit": commit(), "times": times}
        with args.out.open("a") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masks", default=MASKS)
    parser.add_argument("--seqlens", default="32K")
    parser.add_argument("--ideas", default=",".join(IDEAS))
    parser.add_argument("--peers", default=PEERS)
    parser.add_argument("--heads", default="64:8")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--dense", type=float, default=DENSE_SPEED, help="TFLOP/s of the fastest dense backward")
    parser.add_argument("--longest-ms", type=float, default=200.0, help="leave out masks whose backward takes longer at the limit")
    parser.add_argument("--cache", type=Path, default=Path("out/fa4-cache"), help="folder of compiled kernels")
    parser.add_argument("--out", type=Path, help="a .jsonl file; a line for each mask and length is appended")
    parser.add_argument("--check-only", action="store_true")
    parser.add_argument("--compile-only", action="store_true")
    args = parser.parse_args()
    begun = time.monotonic()
    os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1")
    os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_DIR", str(args.cache.resolve()))
    if args.compile_only:
        compile_only(args)
        return 0
    right = check(args)
    if not args.check_only and right:
        for seqlen, name in product(map(parse_size, args.seqlens.split(",")), masks.expand(args.masks.split(","))):
            measure(name, seqlen, right, args)
    print(f"\n{time.monotonic() - begun:.0f} s")
    return 0 if right == args.ideas.split(",") else 1


if __name__ == "__main__":
    raise SystemExit(main())
