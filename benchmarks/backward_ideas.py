"""Measures ideas for a faster Hopper backward against the kernels that are fastest without them, on one GPU.

    PYTHONPATH=src python benchmarks/backward_ideas.py [--masks causal_document,share_question] [--seqlens 32K] [--ideas fused,clearing]
    PYTHONPATH=src python benchmarks/backward_ideas.py --check-only
    PYTHONPATH=src python benchmarks/backward_ideas.py --compile-only     needs no GPU: compiles for a Hopper GPU into --cache

First each idea goes through the check on small masks, in a process of its own, which ends after --timeout seconds: a kernel that hangs
costs no more, and an idea that is wrong is not timed. Then one process times all kernels in turn on the same numbers. It prints
milliseconds, TFLOP/s and the share of what tiles allow (`benchmarks/limits.py`); of FlashAttention-4's kernels also the parts of the time:
before, main, after, and rest (fills). Compiled kernels are kept in --cache for the next process.

Ideas, each against the one named `fused`:
    fused       fa4:fused: dQ is finished inside the main kernel, and its sums stay cleared between calls
    clearing    the sums are cleared by every call
    rounds      two copies instead of one bring a half tile of dQ to shared memory
    lists       tile lists also for documents and windows
    joined      a thread block takes several query heads of one KV head, as many as leave the longest block short: keys and values are
                loaded, and dk and dv added, that much less often; with tile lists, and heads outermost in memory
    joined2, joined8    the same with 2 or 8 heads
    heavy       tile lists, and thread blocks with the most work begin first
    heavy_joined        the same with as many heads as leave the longest block half of the time
    joined_plain        joined heads in the library's own kernel, which does not finish dQ
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
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
PEERS = ("fa4", "fa4:bands", "fa3", "cudnn_flex")
IDEAS: dict[str, dict[str, Any]] = {
    "fused": {},
    "clearing": {"keeps_sums": False},
    "rounds": {"rounds": 2},
    "lists": {"lists": True},
    "joined": {"joined": None},
    "joined2": {"joined": 2},
    "joined8": {"joined": 8},
    "joined_plain": {"joined": None, "finishes": False},
    "heavy": {"heavy_first": True},
    "heavy_joined": {"heavy_first": True, "joined": None},
}
CHECKED = (
    *("causal", "full", "sliding_window", "sliding_window_causal"),
    *("causal_document", "full_document", "share_question", "causal_blockwise"),
)
CHECKED_TOKENS, WINDOW = 1507, 99
WHOLE_TILES = 1536  # tokens; heads are joined only where the last tile is whole
DENSE_SPEED = 615.0  # TFLOP/s of the fastest dense backward on an H200
PARTS = {"preprocess": "before", "bwd_sm90": "main", "FinishingBackward": "main", "postprocess": "after"}
SAMPLES, WARMUP = 15, 3


def build(name: str, seqlen: int, **params: Any) -> Any:
    return masks.build(name, seqlen, seed=42, **params)


def kernel_of(label: str, small: bool = False) -> Any:
    """Returns the kernel of a label, or of an idea's name; on a small mask heads are joined only where their number is given."""
    from longca.kernels import registry
    from longca.kernels.backends.fa4._fused import Fusing
    from longca.kernels.backends.fa4.kernel import Fa4

    if label not in IDEAS:
        return registry.get(label)
    fusing = Fusing(**IDEAS[label])
    return Fa4("fused", fusing=replace(fusing, joined=fusing.joined or 2) if small else fusing)


def small_mask(name: str, idea: str) -> Any:
    seqlen = WHOLE_TILES if "joined" in IDEAS[idea] else CHECKED_TOKENS
    return build(name, seqlen, **({"w": WINDOW} if "sliding" in name else {}))


def small_case(mask: Any, args: argparse.Namespace) -> Any:
    """Two KV heads with as many query heads each as will be timed: the same compiled kernels."""
    from longca.kernels.base import Case

    heads, heads_kv = parse_heads(args.heads)
    return Case(mask.seqlen_q, mask.seqlen_k, 2 * heads // heads_kv, 2, args.head_dim, args.head_dim, "bf16", "cuda")


def compile_only(args: argparse.Namespace) -> None:
    """Compiles the ideas for the masks of the check and for those that will be timed."""
    from compile_fa4 import pretend
    from torch._subclasses.fake_tensor import FakeTensorMode

    from longca.kernels import registry
    from longca.kernels.base import Case

    pretend(1, args.cache)
    heads = parse_heads(args.heads)
    begun = time.monotonic()
    for label in (*args.ideas.split(","), *(peer for peer in PEERS if peer.startswith("fa4"))):
        cases = []
        if label in IDEAS:
            checked = [small_mask(name, label) for name in CHECKED]
            cases = [(mask, small_case(mask, args), kernel_of(label, small=True)) for mask in checked]
        for name, length in product(masks.expand(args.masks.split(",")), args.seqlens.split(",")):
            mask = build(name, parse_size(length))
            case = Case(mask.seqlen_q, mask.seqlen_k, *heads, args.head_dim, args.head_dim, "bf16", "cuda")
            cases.append((mask, case, registry.choose(kernel_of(label), mask, case)))
        for mask, case, kernel in cases:
            with FakeTensorMode(allow_non_fake_inputs=True):
                kernel.prepare(mask, case)
            print(f"{label} {mask.name} {format_size(mask.seqlen_q)}: {time.monotonic() - begun:.0f} s", flush=True)


def check(args: argparse.Namespace) -> bool:
    """Checks each idea on each mask twice, so that the second call finds what the first left; prints what is wrong."""
    from longca.bench.check.check import check_kernel
    from longca.bench.check.reference import reference

    all_right = True
    for name, idea in product(CHECKED, args.ideas.split(",")):
        mask, kernel = small_mask(name, idea), kernel_of(idea, small=True)
        case = small_case(mask, args)
        attention, right = kernel.prepare(mask, case), reference(mask, case)
        verdicts = [check_kernel(kernel, attention, case, right) for _ in range(2)]
        wrong = [f"call {number}: {verdict.reason}" for number, verdict in enumerate(verdicts, 1) if not verdict.ok]
        print(f"{name} {idea}: {'right' if not wrong else 'WRONG, ' + '; '.join(wrong)}", flush=True)
        all_right &= not wrong
    return all_right


def check_apart(args: argparse.Namespace) -> list[str]:
    """Checks each idea in a process of its own, all at once, and ends those that take too long. Returns the ideas that are right."""
    command = [
        sys.executable,
        __file__,
        "--heads",
        args.heads,
        "--head-dim",
        str(args.head_dim),
        "--cache",
        str(args.cache),
        "--check-here",
    ]
    begun, ideas = time.monotonic(), args.ideas.split(",")
    pipes: dict[str, Any] = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    running = {idea: subprocess.Popen([*command, "--ideas", idea], **pipes) for idea in ideas}
    for idea, process in running.items():
        try:
            output, _ = process.communicate(timeout=max(1.0, args.timeout - (time.monotonic() - begun)))
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0] + f"\n{idea}: no answer after {args.timeout:g} s"
        if process.returncode:
            print("\n".join([line for line in output.splitlines() if line.strip()][-25:]), flush=True)
    right = [idea for idea, process in running.items() if process.returncode == 0]
    print(f"right on {len(CHECKED)} masks: {', '.join(right) or 'none'}; {time.monotonic() - begun:.0f} s", flush=True)
    return right


@dataclass
class Entrant:
    label: str
    ran: str
    subject: Any
    inputs: Any
    samples: list[float] = field(default_factory=list)

    def backward(self) -> Any:
        return self.subject.backward(self.inputs)


def entrants(mask: Any, case: Any, labels: list[str]) -> Iterator[Entrant]:
    from longca.bench.check.check import KernelSubject
    from longca.kernels import registry
    from longca.kernels.inputs import make

    given: dict[str, Any] = {}
    seen: set[str] = set()
    for label in labels:
        try:
            kernel = registry.choose(kernel_of(label), mask, case)
            if label not in IDEAS and kernel.label in seen:
                continue
            seen.add(kernel.label)
            ran, attention = registry.prepare(kernel, mask, case)
            numbers = given.setdefault(ran.layout, make(case, layout=ran.layout))
            joined = getattr(attention, "heads", 1)
            name = f"{ran.label}, {joined} heads" if joined > 1 else ran.label
            entrant = Entrant(label, name, KernelSubject(ran, attention, case), numbers)
            entrant.subject.forward(numbers)
            entrant.backward()
        except (LongcaError, RuntimeError) as error:
            print(f"  {label} left out: {type(error).__name__}: {str(error).splitlines()[0][:160]}", flush=True)
            continue
        yield entrant


def parts_of(entrant: Entrant) -> dict[str, float]:
    """Returns the milliseconds of a backward's kernels by part."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        entrant.backward()
        entrant.backward()
    sums = dict.fromkeys((*PARTS.values(), "rest"), 0.0)
    for event in profiler.key_averages():
        part = next((part for word, part in PARTS.items() if word in event.key), "rest")
        sums[part] += float(event.self_device_time_total) / 2e3
    return sums


def difference(entrant: Entrant, right: list[Any]) -> str:
    """Returns the largest distance of dq, dk and dv to another kernel's, in percent of its largest value."""
    return ", ".join(f"{100 * float((a - b).abs().max() / b.abs().max()):.1f}" for a, b in zip(entrant.backward(), right, strict=True))


def measure(name: str, seqlen: int, ideas: list[str], args: argparse.Namespace) -> None:
    from longca.kernels.base import Case
    from longca.kernels.choice.clocks import clock_for
    from longca.results.limits import BACKWARD_ROWS, covered
    from longca.results.metrics import flops
    from longca.results.record import Pass

    mask = build(name, seqlen)
    case = Case(seqlen, seqlen, *parse_heads(args.heads), args.head_dim, args.head_dim, "bf16", "cuda")
    limit = args.dense * covered(mask.bands, mask.area, seqlen, seqlen, BACKWARD_ROWS)
    print(f"\n{name}, {format_size(seqlen)} tokens, limit {limit:.0f} TFLOP/s")
    running, clock = list(entrants(mask, case, [*PEERS, *ideas])), clock_for("cuda")
    if not running:
        return
    for number in range(WARMUP + SAMPLES):
        for entrant in Random(number).sample(running, len(running)):
            entrant.samples.append(clock.sample(entrant.backward, min(entrant.samples, default=0.0)))
    right = list(running[0].backward())
    for entrant in running:
        ms = median(entrant.samples[WARMUP:])
        speed = flops(mask, case, Pass.BWD) / ms / 1e9
        parts = {part: ms for part, ms in parts_of(entrant).items() if ms} if "fa4" in entrant.ran else {}
        shown = " + ".join(f"{part} {ms:.2f}" for part, ms in parts.items())
        line = f"  {entrant.label:<12}{entrant.ran:<24}{ms:8.3f} ms {speed:6.0f} TFLOP/s  share {speed / limit:.2f}"
        print(f"{line}  differs by {difference(entrant, right)} %  {shown}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masks", default=MASKS)
    parser.add_argument("--seqlens", default="32K")
    parser.add_argument("--ideas", default="fused,clearing,joined,heavy_joined,joined_plain")
    parser.add_argument("--heads", default="64:8")
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--dense", type=float, default=DENSE_SPEED, help="TFLOP/s of the fastest dense backward")
    parser.add_argument("--timeout", type=float, default=90.0, metavar="S", help="of the check")
    parser.add_argument("--cache", type=Path, default=Path("out/fa4-cache"), help="folder of compiled kernels")
    parser.add_argument("--check-only", action="store_true")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--no-check", action="store_true")
    parser.add_argument("--check-here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "1")
    os.environ.setdefault("FLASH_ATTENTION_CUTE_DSL_CACHE_DIR", str(args.cache.resolve()))
    names = masks.expand(args.masks.split(","))
    if args.compile_only:
        compile_only(args)
        return 0
    if args.check_here:
        return 0 if check(args) else 1
    right = args.ideas.split(",") if args.no_check else check_apart(args)
    if args.check_only or not right:
        return 0 if right == args.ideas.split(",") else 1
    for seqlen in map(parse_size, args.seqlens.split(",")):
        for name in names:
            measure(name, seqlen, right, args)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
