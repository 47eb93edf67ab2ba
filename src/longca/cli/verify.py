"""`longca verify`: are these kernels right?"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from longca.errors import BadInput, Unavailable

if TYPE_CHECKING:
    from longca.bench.plan import Planned
    from longca.bench.suite import Suite
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
    parser.add_argument(
        "--set",
        metavar="w=512",
        action="append",
        default=[],
        help="a parameter of the masks that have it; under 4K tokens windows and blocks are narrow unless set",
    )
    parser.add_argument("--deterministic", action="store_true", help="ask for a deterministic backward")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is a GPU")
    parser.add_argument("--plugin", metavar="FILE.py", action="append", default=[], help="a file with a kernel of your own")
    parser.add_argument("--json", action="store_true", help="one JSON object per line instead of a table")


def run(args: argparse.Namespace) -> int:
    from longca import devices
    from longca.bench import plan
    from longca.bench.catalogue import catalogue
    from longca.bench.compilations import keep_on_disk
    from longca.bench.environment import device_model
    from longca.bench.verify import WRONG, verify

    device = args.device or devices.kind()
    devices.require(device)
    if device == "cuda":
        keep_on_disk()
    suite, steps = _wanted(args, device)
    found = catalogue(suite, args.plugin, device, only_named=args.kernels is not None)
    for entry in found.entries.values():
        if entry.failure:
            raise BadInput(f"{entry.plugin}: {entry.failure[1].rstrip('.')}.")
    planned = plan.plan(plan.cells(suite, found.for_all_masks, device, steps), device, found.versions)
    if not args.json:
        print(f"{device_model(device)}, {suite.heads[0]} heads of {suite.head_dims[0]}, {suite.dtypes[0]}, seed {args.seed}")
    _say_equal(planned)
    findings = []
    for done, finding in enumerate(verify(planned, suite, found, device), 1):
        findings.append(finding)
        if args.json:
            print(json.dumps(asdict(finding), allow_nan=False), flush=True)
        elif sys.stderr.isatty():
            print(f"\r{done}/{len(planned)} {finding.kernel} {finding.mask} {finding.status:<40.40}", end="\r", file=sys.stderr)
    if not args.json:
        _show(findings)
    if not any(finding.errors or finding.status in WRONG for finding in findings):
        raise Unavailable("nothing was checked: no kernel could do any of this here.")
    return 1 if any(finding.status in WRONG for finding in findings) else 0


def _wanted(args: argparse.Namespace, device: str) -> tuple[Suite, list[dict[str, Any]]]:
    """What to check, as a suite, and the masks as its steps."""
    from longca import devices, masks
    from longca.bench.suite import Suite, check
    from longca.bench.supervisor import memory_limit
    from longca.bench.verify import LIMITS, refuse_too_long, step
    from longca.kernels import registry
    from longca.kernels.base import Case
    from longca.text import parse_dims, parse_heads, parse_list, parse_settings, parse_size

    heads, dim, dtype, seqlens = DEFAULTS[device]
    settings = parse_settings(args.set)
    wanted = parse_list(args.masks or "") or masks.names()
    for name in settings:
        if not any(name in masks.find(mask).defaults for mask in wanted):
            raise BadInput(f"none of these masks has a parameter {name!r}; `longca ls masks` shows which they have.")
    lengths = parse_list(args.seqlens or seqlens)
    suite = Suite(
        masks=tuple(wanted),
        seqlens=tuple(lengths),
        heads=(args.heads or heads,),
        head_dims=(args.head_dim or dim,),
        dtypes=(args.dtype or dtype,),
        passes=("fwd+bwd",),
        seeds=(args.seed,),
        deterministic=args.deterministic,
        source=args.source,
        limits=LIMITS,
    )
    check(suite)
    for length in lengths:
        case = Case(0, 0, *parse_heads(suite.heads[0]), *parse_dims(suite.head_dims[0]), suite.dtypes[0])
        refuse_too_long(parse_size(length), case, devices.memory(device) or memory_limit(LIMITS))
    labels = parse_list(args.kernels or "") or ([] if args.plugin else registry.available_labels(device))
    steps = [step(name, parse_size(length), args.seed, settings) for length in lengths for name in wanted]
    return suite.changed(kernels=tuple(labels)), steps


def _say_equal(planned: Sequence[Planned]) -> None:
    """A kernel that ignores what tells two masks apart passes where they are equal; nobody should take that for a check."""
    shown: dict[tuple[int, str], dict[str, None]] = {}
    for entry in planned:
        shown.setdefault((entry.cell.seqlen, entry.digest), {})[entry.cell.mask] = None
    for (seqlen, _), names in shown.items():
        if len(names) > 1:
            print(f"note: {' and '.join(names)} show the same pairs at {seqlen} tokens", file=sys.stderr)


def _show(findings: list[Finding]) -> None:
    from longca.cli._tables import show_table

    checked = [finding for finding in findings if finding.errors]
    if checked:
        print("error/allowed of the worst token:")
        rows = [[f.kernel, f.mask, f.seqlen, f.status, *(_cell(f.errors.get(tensor)) for tensor in TENSORS), _note(f)] for f in checked]
        show_table(("kernel", "mask", "seqlen", "status", *TENSORS, "note"), rows)
    for status in ("wrong", "error", "timeout", "oom", "unavailable", "unsupported"):
        reasons: dict[tuple[str, str], list[str]] = {}
        for finding in findings:
            if finding.status == status:
                reasons.setdefault((finding.kernel, finding.reason), []).append(finding.mask)
        for (kernel, reason), where in reasons.items():
            print(f"{status}: {kernel} on {', '.join(dict.fromkeys(where))}: {reason}")
    counts = Counter(finding.status for finding in findings)
    print(", ".join(f"{count} {status}" for status, count in counts.items()))


def _note(finding: Finding) -> str:
    """Why something is wrong stands below the table."""
    return finding.reason if finding.status == "ok" else ""


def _cell(error: dict[str, Any] | None) -> str:
    if not error:
        return "-"
    found, allowed = (math.inf if error[name] is None else error[name] for name in ("error", "allowed"))
    return f"{found:.1e}/{allowed:.1e}"
