"""`longca verify`: are these kernels right?"""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from longca.cli import INTERRUPTED, _verify_cp
from longca.cli._tables import write_over
from longca.errors import BadInput, Unavailable
from longca.text import plural

if TYPE_CHECKING:
    from longca.bench.many_devices.verify import CpRequest
    from longca.bench.one_device.verify import Finding
    from longca.bench.plan.suite import Suite
    from longca.bench.plan.workload import Step
    from longca.results.record import TensorError

STOPPING = (signal.SIGINT, signal.SIGTERM)
HELP = "check kernels, or methods on ranks, against an fp64 reference on every mask they claim"

SHOWN_LINES = 10  # of what a kernel prints in one job
TENSORS = ("out", "lse", "dq", "dk", "dv")
KERNELS_HELP = "kernels to check, or all; default: every variant of all that are available here, with --plugin only those of the plugins"
DEFAULTS = {"cpu": ("8:2", "64", "fp32", "509"), "cuda": ("64:8", "128", "bf16", "8K")}  # heads, head size, dtype, lengths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernels", metavar="A,B:VARIANT", help=KERNELS_HELP)
    parser.add_argument("--masks", metavar="A,B", help="masks to check them on, or all, which is the default: the static ones")
    parser.add_argument("--seqlens", metavar="8K,997", help="sequence lengths, odd ones too; default: 509 on a CPU, 8K on a GPU")
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
        help="a parameter of the masks that have it, one value each; repeatable; under 4K tokens windows and blocks are narrow unless set",
    )
    parser.add_argument("--deterministic", action="store_true", help="ask for a deterministic backward, and demand the same bits twice")
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="check N times on each data set, to find what is wrong only now and then",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is a GPU")
    parser.add_argument("--plugin", metavar="FILE.py", action="append", default=[], help="a file with kernels of your own; repeatable")
    parser.add_argument(
        "--deadline",
        type=float,
        metavar="S",
        help="seconds that each step of a kernel on a mask may take; default 300, and up to 3600 where sequences are long",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line instead of a table")
    _verify_cp.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from longca import devices
    from longca.bench.check.trial_names import trials_on
    from longca.bench.one_device.compiled_code import keep_on_disk
    from longca.bench.one_device.level import OneDevice
    from longca.bench.one_device.verify import distinct, verify
    from longca.bench.plan.cells import equal_masks, plan
    from longca.bench.run.environment import device_model

    _verify_cp.refuse(args)
    device = args.device or devices.kind()
    devices.require(device)
    if device == "cuda":
        keep_on_disk()
    if args.level == "cp":
        with _signals_stop():
            return _verify_cp.run(args, _cp_request(args, device))
    suite, steps = _wanted(args, device)
    level = OneDevice(suite, device, args.plugin, only_named=args.kernels is not None)
    for entry in level.catalogue.entries.values():
        if entry.failure:
            file = "" if str(entry.plugin) in entry.failure.reason else f"{entry.plugin}: "
            raise BadInput(f"{file}{entry.failure.reason.rstrip('.')}.")
    planned = plan(level.cells(steps), device, level.catalogue.versions)
    if not args.json:
        print(f"{device_model(device)}, {suite.heads[0]} heads of {suite.head_dims[0]}, {suite.dtypes[0]}, seed {args.seed}", flush=True)
    for note in equal_masks(planned):
        print(f"note: {note}: checked once", file=sys.stderr)
    jobs = {entry.cell.job for entry in distinct(planned)}
    cases = len(jobs) + len({job.kernel for job in jobs}) * len(trials_on(device))
    findings: list[Finding] = []
    stopped = False
    try:
        with _signals_stop(), closing(verify(planned, suite, level.catalogue, device, args.repeat, _show_output)) as coming:
            for finding in coming:
                findings.append(finding)
                _tell(finding, f"{len(findings)}/{cases}", args.json)
    except KeyboardInterrupt:
        stopped = True  # what was found so far is worth as much as before
    if not args.json:
        write_over("")
        _show(findings)
    if stopped:
        print(f"longca: stopped; {cases - len(findings)} of {cases} cases are not checked.", file=sys.stderr)
        return INTERRUPTED
    return _exit_code(findings, args.kernels or "")


def _cp_request(args: argparse.Namespace, device: str) -> CpRequest:
    from longca.bench.many_devices.verify import CpRequest

    same = ("methods", "kernels", "masks", "seqlens", "heads", "head_dim", "dtype", "nproc", "seed", "deadline")
    return CpRequest(device, settings=_settings(args.set), plugins=args.plugin, **{name: getattr(args, name) for name in same})


@contextmanager
def _signals_stop() -> Iterator[None]:
    """Ctrl-C, or a SIGTERM as schedulers send it, stops once. Further signals are ignored until the process ends: they must not keep
    workers from being ended, nor what was checked from being printed."""

    def stop(number: int, _: FrameType | None) -> None:
        for which in STOPPING:
            signal.signal(which, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is stop:
                signal.signal(number, handler)


def _tell(finding: Finding, count: str, as_json: bool) -> None:
    """At once, whoever reads it: a log shows what came before a job was ended."""
    line = f"[{count}] {finding.kernel} on {finding.mask}, {finding.seqlen} tokens: {finding.status}"
    if as_json:
        print(msgspec.json.encode(finding).decode(), flush=True)
    elif sys.stderr.isatty():
        write_over(line)
    else:
        print(line + (f": {finding.reason}" if finding.reason else ""), file=sys.stderr, flush=True)


def _exit_code(findings: list[Finding], named: str) -> int:
    """Green means that all which was asked for was checked: what a kernel refuses may stay out, but not all of a named one."""
    from longca.bench.one_device.verify import FAILED
    from longca.text import parse_list

    looked_at = {finding.kernel for finding in findings if finding.errors or finding.status in FAILED}
    if not looked_at:
        raise Unavailable("nothing was checked: no kernel could do any of this here.")
    known = looked_at | {kernel.partition(":")[0] for kernel in looked_at}
    missing = [label for label in parse_list(named) if label not in known and label != "all"]
    failed = any(finding.status in FAILED for finding in findings)
    if missing:
        sentence = f"nothing of {' and '.join(missing)} was checked, as said above; leave it out of --kernels, or mend that."
        if not failed:
            raise Unavailable(sentence)
        print(f"longca: {sentence}", file=sys.stderr)
    return 1 if failed else 0


def _wanted(args: argparse.Namespace, device: str) -> tuple[Suite, list[Step]]:
    """What to check, as a suite, and the masks as its steps."""
    from longca import devices, masks
    from longca.bench.one_device.verify import limits, make_step, refuse_too_long
    from longca.bench.plan.suite import Suite, check
    from longca.kernels import registry
    from longca.kernels.base import Case
    from longca.processes import host_memory
    from longca.results.record import Pass
    from longca.text import parse_dims, parse_heads, parse_list, parse_size

    heads, dim, dtype, seqlens = DEFAULTS[device]
    settings = _settings(args.set)
    wanted = [name for given in parse_list(args.masks or "all") for name in (masks.names() if given == "all" else [given])]
    for name in settings:
        if not any(name in masks.find(mask).defaults for mask in wanted):
            raise BadInput(f"none of these masks has a parameter {name!r}; `longca ls masks` shows which they have.")
    if args.repeat < 1:
        raise BadInput(f"--repeat must be 1 or more, not {args.repeat}.")
    if args.deadline is not None and not 0 < args.deadline < math.inf:
        raise BadInput(f"--deadline must be a number of seconds over 0, not {args.deadline}.")
    lengths = parse_list(args.seqlens or seqlens)
    query_heads, kv_heads = parse_heads(args.heads or heads)
    longest = max(map(parse_size, lengths), default=0)
    suite = Suite(
        masks=tuple(wanted),
        seqlens=tuple(lengths),
        heads=(args.heads or heads,),
        head_dims=(args.head_dim or dim,),
        dtypes=(args.dtype or dtype,),
        passes=(Pass.FWD, Pass.BWD),
        seeds=(args.seed,),
        deterministic=args.deterministic,
        source=args.source,
        limits=limits(args.deadline, device, longest, query_heads),
    )
    check(suite)
    for length in lengths:
        case = Case(0, 0, query_heads, kv_heads, *parse_dims(str(suite.head_dims[0])), suite.dtypes[0])
        refuse_too_long(parse_size(length), case, devices.memory(device) or host_memory.limit(suite.limits.memory))
    labels = parse_list(args.kernels or "") or ([] if args.plugin else registry.available_labels(device))
    steps = [make_step(name, parse_size(length), args.seed, settings) for length in lengths for name in wanted]
    return suite.changed(kernels=tuple(labels)), steps


def _settings(entries: Sequence[str]) -> dict[str, int | float]:
    from longca.text import parse_axes

    settings = parse_axes(entries)
    for name, values in settings.items():
        if len(values) > 1:
            given = ",".join(map(str, values))
            raise BadInput(f"verify takes one value of a parameter, not {name}={given}; call it for each, or use `longca run`.")
    return {name: values[0] for name, values in settings.items()}


def _show_output(kernel: str, output: str) -> None:
    """Shows the first and the last lines that a kernel printed: those of a crash begin with the line that crashed."""
    from longca.text import printable

    write_over("")
    lines = [printable(line) for line in output.splitlines()]
    if left_out := len(lines[SHOWN_LINES:]):
        half = SHOWN_LINES // 2
        lines[half:-half] = [f"({plural(left_out, 'line')} left out)"]
    for line in lines:
        print(f"{kernel} prints: {line}", file=sys.stderr, flush=True)


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


def _cell(error: TensorError | None) -> str:
    if error is None:
        return "-"
    value, allowed = (math.inf if number is None else number for number in (error.error, error.allowed))
    pairs = ((f"{value:.{digits}e}", f"{allowed:.{digits}e}") for digits in range(1, 6))
    return "/".join(next((pair for pair in pairs if pair[0] != pair[1]), (f"{value:.1e}", f"{allowed:.1e}")))
