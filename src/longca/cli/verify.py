"""`longca verify`: are these kernels right?"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from longca.errors import BadInput, Unavailable

if TYPE_CHECKING:
    from longca.bench.check import Error
    from longca.bench.verify import Finding

HELP = "check kernels against an fp64 reference on every mask they claim"

TENSORS = ("out", "lse", "dq", "dk", "dv")
DEFAULTS = {"cpu": ("8:2", "64", "fp32", "509"), "cuda": ("64:8", "128", "bf16", "8K")}  # heads, head size, dtype, lengths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernels", metavar="A,B:VARIANT", help="kernels to check; default: every variant of all that are available here")
    parser.add_argument("--masks", metavar="A,B", help="masks to check them on; default: the twelve static ones")
    parser.add_argument("--seqlens", metavar="8K,997", help="sequence lengths; default: 509 on a CPU, 8K on a GPU")
    parser.add_argument("--heads", metavar="64:8", help="query heads : KV heads; default 8:2 on a CPU, 64:8 on a GPU")
    parser.add_argument(
        "--head-dim", metavar="128", help="head size, or 192/128 where V has another one; default 64 on a CPU, 128 on a GPU"
    )
    parser.add_argument("--dtype", choices=("bf16", "fp16", "fp32", "fp64"), help="default fp32 on a CPU, bf16 on a GPU")
    parser.add_argument("--source", default="random", metavar="NAME", help="where block patterns come from: random, nsa or moba")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", metavar="w=512", action="append", default=[], help="a parameter of the masks that have it")
    parser.add_argument("--deterministic", action="store_true", help="ask for a deterministic backward")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is a GPU")
    parser.add_argument("--plugin", metavar="FILE.py", action="append", default=[], help="a file with a kernel of your own")
    parser.add_argument("--json", action="store_true", help="one JSON object per line instead of a table")


def run(args: argparse.Namespace) -> int:
    from longca import devices, masks
    from longca.bench.verify import WRONG, verify
    from longca.kernels import registry, selected
    from longca.kernels.base import Case
    from longca.text import parse_dims, parse_heads, parse_list, parse_settings, parse_size

    plugged = [name for file in args.plugin for name in registry.load_plugin(file)]
    device = args.device or devices.kind()
    devices.require(device)
    heads, dim, dtype, seqlens = DEFAULTS[device]
    heads_q, heads_kv = parse_heads(args.heads or heads)
    head_dim, head_dim_v = parse_dims(args.head_dim or dim)
    shape, numbers = selected.Heads(heads_q, heads_kv, head_dim), selected.numbers_of(args.source)
    case = Case(0, 0, *shape, head_dim_v, args.dtype or dtype, device, deterministic=args.deterministic, numbers=numbers)
    settings = parse_settings(args.set)
    wanted = parse_list(args.masks or "") or masks.names()
    for name in settings:
        if not any(name in masks.find(mask).defaults for mask in wanted):
            raise BadInput(f"none of these masks has a parameter {name!r}; `longca ls masks` shows which they have.")
    lengths = [parse_size(length) for length in parse_list(args.seqlens or seqlens)]
    settings.setdefault("heads", heads_kv)  # block patterns: one per KV head
    built = [
        selected.build(name, length, args.source, shape, seed=args.seed, **masks.own_params(name, settings))
        for length in lengths
        for name in wanted
    ]
    labels = parse_list(args.kernels or "") or plugged or registry.available_labels(device)
    for label in labels:
        registry.get(label)  # an unknown name is refused before anything runs

    if not args.json:
        print(f"{devices.title()}, {heads_q}:{heads_kv} heads of {head_dim}/{head_dim_v}, {case.dtype}, seed {args.seed}")
    findings = []
    for done, finding in enumerate(verify(labels, built, case, args.seed), 1):
        findings.append(finding)
        if args.json:
            print(json.dumps(asdict(finding)), flush=True)
        elif sys.stderr.isatty():
            print(f"\r{done}/{len(labels) * len(built)} {finding.kernel} {finding.mask} {finding.status:<40.40}", end="\r", file=sys.stderr)
    if not args.json:
        _show(findings)
    if not any(finding.errors or finding.status in WRONG for finding in findings):
        raise Unavailable("nothing was checked: no kernel could do any of this here.")
    return 1 if any(finding.status in WRONG for finding in findings) else 0


def _show(findings: list[Finding]) -> None:
    from longca.cli._tables import show_table

    checked = [finding for finding in findings if finding.errors]
    if checked:
        print("error/allowed of the worst token:")
        rows = [[f.kernel, f.mask, f.seqlen, f.status, *(_cell(f.errors.get(tensor)) for tensor in TENSORS), f.reason] for f in checked]
        show_table(("kernel", "mask", "seqlen", "status", *TENSORS, "note"), rows)
    for status in ("error", "oom", "unavailable", "unsupported"):
        reasons: dict[tuple[str, str], list[str]] = {}
        for finding in findings:
            if finding.status == status and not finding.errors:
                reasons.setdefault((finding.kernel, finding.reason), []).append(finding.mask)
        for (kernel, reason), where in reasons.items():
            print(f"{status}: {kernel} on {', '.join(dict.fromkeys(where))}: {reason}")
    counts = Counter(finding.status for finding in findings)
    print(", ".join(f"{count} {status}" for status, count in counts.items()))


def _cell(error: Error | None) -> str:
    return f"{error.error:.1e}/{error.allowed:.1e}" if error else "-"
