"""Dense kernels on every mask: check, then forward and backward TFLOP/s. Resumes: what stands in --out is not measured again.

PYTHONPATH=src python3 benchmarks/dense_kernels.py --out results/h200/dense.jsonl       # measure (one GPU)
PYTHONPATH=src python3 benchmarks/dense_kernels.py --out results/h200/dense.jsonl --table   # only print what was measured
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from longca import masks
from longca.text import parse_list, parse_size

KERNELS = "fa4:native,fa4:varlen,fa4:bands,cudnn_flex,fa3,flex"
ANY_BAND, NATIVE = ("fa4:bands", "cudnn_flex"), ("fa3", "fa4:native", "fa4:varlen")
HEADS_Q, HEADS_KV, HEAD_DIM, SEED = 64, 8, 128, 42


def wanted_masks(seqlen: int) -> Iterator[tuple[str, masks.Mask]]:
    """The twelve masks with the parameters of the published comparison, and blocks that divide by nothing."""
    params = {"prefix_lm_causal": {"p": seqlen // 3}, "global_sliding_window": {"g": 1024, "w": 1024}}
    for name in masks.names():
        distribution = "prolong64k" if masks.find(name).has_documents and name != "block_causal_document" else None
        yield name, masks.build(name, seqlen, seed=SEED, distribution=distribution, **params.get(name, {}))
    yield "block_causal_document/B=1000", masks.build("block_causal_document", seqlen, seed=SEED, B=1000)


def measure(label: str, mask: masks.Mask, case: Any, reference: Any, timer: Any, settings: Any) -> dict[str, Any]:
    import torch

    from longca.bench.check.check import check_kernel
    from longca.bench.clock import clock
    from longca.kernels import registry
    from longca.kernels.inputs import make
    from longca.results import metrics
    from longca.results.record import Pass

    kernel = registry.choose(label, mask, case)
    torch.cuda.synchronize()
    start = time.perf_counter()
    attention = kernel.prepare(mask, case)
    torch.cuda.synchronize()
    plan_ms = (time.perf_counter() - start) * 1e3
    verdict = check_kernel(kernel, attention, case, reference, SEED)
    found: dict[str, Any] = {
        "kernel": kernel.label,
        "status": "ok" if verdict.ok else "wrong",
        "reason": verdict.reason,
        "plan_ms": plan_ms,
    }
    found["check"] = {name: [error.error, error.allowed] for name, error in verdict.errors.items()}
    if not verdict.ok:
        return found
    start = time.perf_counter()
    again = kernel.prepare(mask, case)  # compiled by now: what is left is lowering and upload
    torch.cuda.synchronize()
    found["lower_ms"] = (time.perf_counter() - start) * 1e3
    q, k, v, dout = make(case, SEED, kernel.layout)
    if kernel.backward == "autograd":
        q, k, v = (x.requires_grad_() for x in (q, k, v))
    out, lse = again.forward(q, k, v)
    calls = {Pass.FWD: lambda: again.forward(q, k, v), Pass.BWD: lambda: again.backward(dout, q, k, v, out, lse)}
    for pass_, call in calls.items():
        timing = clock.measure(call, timer, settings)
        work = metrics.flops(mask, case, pass_)
        found[pass_.value] = {
            "ms": timing.median,
            "p20": timing.percentile(20),
            "p80": timing.percentile(80),
            "n": len(timing.samples),
            "host_bound": timing.host_bound,
            "tflops": metrics.tflops(work, timing.median),
        }
    return found


def run(args: argparse.Namespace) -> None:
    import torch

    from longca import devices
    from longca.bench.check.reference import reference
    from longca.bench.clock.timers import timer_for
    from longca.errors import LongcaError
    from longca.kernels.base import Case
    from longca.results.settings import ClockSettings

    done = {(record["asked"], record["mask"], record["seqlen"]) for record in load(args.out)}
    timer, settings = timer_for("cuda"), ClockSettings(budget_s=args.budget, least=4)
    environment = {"device": devices.title(), "torch": torch.__version__}
    with args.out.open("a") as journal:
        for seqlen in map(parse_size, parse_list(args.seqlens)):
            for name, mask in wanted_masks(seqlen):
                right = None
                case = Case(seqlen, seqlen, HEADS_Q, HEADS_KV, HEAD_DIM, HEAD_DIM, "bf16", "cuda")
                for label in parse_list(args.kernels):
                    if (label, name, seqlen) in done or (args.masks and name not in parse_list(args.masks)):
                        continue
                    about = {"asked": label, "mask": name, "seqlen": seqlen, "density": mask.density, "digest": mask.digest}
                    print(json.dumps({**about, "status": "started"}), file=journal, flush=True)
                    start = time.perf_counter()
                    try:
                        right = right or reference(mask, case, SEED)
                        found = measure(label, mask, case, right, timer, settings)
                    except LongcaError as refusal:
                        found = {"kernel": label, "status": "unsupported", "reason": str(refusal)}
                    except Exception as error:
                        found = {"kernel": label, "status": "error", "reason": f"{type(error).__name__}: {str(error)[:300]}"}
                    print(json.dumps({**about, **found, "env": environment}), file=journal, flush=True)
                    print(f"{seqlen} {name} {label}: {brief(found)} ({time.perf_counter() - start:.1f} s)", flush=True)


def brief(record: dict[str, Any]) -> str:
    if record["status"] != "ok":
        return f"{record['status']}: {record['reason'][:150]}"
    times = "/".join(f"{record[which]['tflops']:.0f}" for which in ("fwd", "bwd"))
    return f"{times} lower {record['lower_ms']:.1f} ms"


def load(path: Path) -> list[dict[str, Any]]:
    """The last record of each cell; one that only says `started` crashed the process and counts as an error."""
    records: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        record = json.loads(line)
        records[record["asked"], record["mask"], record["seqlen"]] = record
    for record in records.values():
        if record["status"] == "started":
            record |= {"status": "error", "reason": "the process died", "kernel": record["asked"]}
    return list(records.values())


def table(path: Path) -> None:
    records = load(path)
    labels = list(dict.fromkeys(record["asked"] for record in records))
    for seqlen in sorted({record["seqlen"] for record in records}):
        print(f"\n{seqlen // 1024}K, forward/backward TFLOP/s (x: cannot, W: wrong, E: error)")
        print(f"{'mask':<30}{'density':>8}" + "".join(f"{label:>12}" for label in labels) + "  any-band/flex   any-band/native")
        here = [record for record in records if record["seqlen"] == seqlen]
        for name in dict.fromkeys(record["mask"] for record in here):
            row = {record["asked"]: record for record in here if record["mask"] == name}
            cells = "".join(f"{cell(row.get(label)):>12}" for label in labels)
            ratios = [f"{ratio(row, ANY_BAND, others):>16}" for others in (("flex",), NATIVE)]
            print(f"{name:<30}{next(iter(row.values()))['density']:>8.3f}{cells}{''.join(ratios)}")
        slowest = max((record["lower_ms"] for record in here if "lower_ms" in record), default=0)
        print(f"slowest lowering: {slowest:.1f} ms")


def cell(record: dict[str, Any] | None) -> str:
    if record is None or record["status"] != "ok":
        return {"unsupported": "x", "wrong": "W", "error": "E"}.get(record["status"], "?") if record else "-"
    return f"{record['fwd']['tflops']:.0f}/{record['bwd']['tflops']:.0f}"


def ratio(row: dict[str, dict[str, Any]], mine: tuple[str, ...], others: tuple[str, ...]) -> str:
    """The best of mine over the best of the others, forward and backward."""

    def best(labels: tuple[str, ...], which: str) -> float:
        return max((row[label][which]["tflops"] for label in labels if row.get(label, {}).get("status") == "ok"), default=0.0)

    pairs = [(best(mine, which), best(others, which)) for which in ("fwd", "bwd")]
    return "/".join(f"{one / other:.2f}" if other else "-" for one, other in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seqlens", default="32K,128K")
    parser.add_argument("--kernels", default=KERNELS)
    parser.add_argument("--masks", default="", help="only these")
    parser.add_argument("--budget", type=float, default=0.15, help="seconds of samples per pass")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    if not args.table:
        run(args)
    table(args.out)


if __name__ == "__main__":
    main()
