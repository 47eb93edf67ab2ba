"""`longca verify --level cp`: checks methods on ranks, and measures transfers between them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from longca.cli import INTERRUPTED
from longca.cli._findings import say, tell
from longca.cli._tables import show_table, write_over
from longca.errors import BadInput, Unavailable
from longca.text import parse_axes

if TYPE_CHECKING:
    from longca.bench.many_devices.verify import CpRequest, Verification


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--level",
        choices=("kernel", "cp"),
        default="kernel",
        help="cp: context-parallel methods on ranks, and transfers between them (default kernel)",
    )
    parser.add_argument("--methods", metavar="A,B", help="with --level cp: methods to check, all or peers (default: all that run here)")
    parser.add_argument(
        "--nproc",
        type=int,
        metavar="N",
        help="with --level cp: number of ranks (default: one per GPU, 2 on CPUs; in a launched job all its ranks)",
    )
    parser.add_argument("--out", metavar="DIR", help="with --level cp: the folder to pack into one file (default longca-cp-N)")


def refuse(args: argparse.Namespace) -> None:
    """Refuses flags of the other level."""
    if args.level == "cp":
        wrong = {"--repeat": args.repeat != 1, "--deterministic": args.deterministic, "--source": args.source != "random"}
    else:
        wrong = {"--methods": args.methods, "--nproc": args.nproc is not None, "--out": args.out}
    if typed := [flag for flag, given in wrong.items() if given]:
        other = "kernels; leave out --level cp" if args.level == "cp" else "context parallelism; add --level cp"
        raise BadInput(f"{typed[0]} is for {other}.")
    if args.nproc is not None and args.nproc < 1:
        raise BadInput(f"--nproc must be 1 rank or more, not {args.nproc}.")


def run(args: argparse.Namespace) -> int:
    """Runs with its own pool of ranks, or as one rank of a launched job, whose first rank prints."""
    from longca.bench.many_devices.verify import make_level
    from longca.cli._ranks import take_part
    from longca.parallel import joining

    request = _request(args)
    launch, level = joining.launched(), make_level(request)
    level.refuse_here()
    if launch is None or launch.rank == 0:
        for note in level.notes:
            print(f"note: {note}", file=sys.stderr)

    def check() -> int:
        from longca.bench.many_devices.grids import ranks_of
        from longca.bench.many_devices.kit import COLUMNS, table, write
        from longca.bench.many_devices.verify import make_steps, verify
        from longca.lengths import cut_note
        from longca.results.tables import plain_table

        ranks = ranks_of(level.suite, request.device)

        def show(so_far: Verification) -> None:
            finding = so_far.findings[-1]
            tell(finding.method, finding, f"{len(so_far.findings)}/{so_far.cases}", args.json)

        steps = make_steps(request, level.suite, ranks)
        for note in cut_note(level.suite.document_lengths, (step.seqlen for step in steps)) if level.suite.documents else []:
            print(f"note: {note}", file=sys.stderr)
        done = verify(level, steps, show, say)
        rows = table(done)
        packed = write(done, level, Path(args.out or f"longca-cp-{ranks}"), plain_table(COLUMNS, rows))
        write_over("")
        if args.json:
            print("\n".join(msgspec.json.encode(line).decode() for line in done.transfers))
        else:
            show_table(COLUMNS, rows)
        if done.broken:
            print(f"longca: {done.broken}; docs/cluster.md says what to do if a rank fails.", file=sys.stderr)
        print(f"wrote {packed}; attach it if you report a problem", file=sys.stderr if args.json else sys.stdout)
        if not done.failed and not any(finding.errors for finding in done.findings):
            raise Unavailable("nothing was checked: no method supports any of this here.")
        return INTERRUPTED if done.stopped else 1 if done.failed else 0

    return check() if launch is None else take_part(launch, request.device, level.suite.limits.start_s, check)


def _request(args: argparse.Namespace) -> CpRequest:
    from dataclasses import fields

    from longca import devices
    from longca.api.verify import mask_settings
    from longca.bench.many_devices.verify import CpRequest
    from longca.bench.one_device.compiled_code import keep_on_disk

    device = args.device or devices.kind()
    devices.require(device)
    if device == "cuda":
        keep_on_disk()
    typed = {field.name: getattr(args, field.name) for field in fields(CpRequest) if hasattr(args, field.name)}
    return CpRequest(**typed | {"device": device, "settings": mask_settings(parse_axes(args.set)), "plugins": args.plugin})
