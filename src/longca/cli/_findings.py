"""Prints findings of a verification while it runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from longca.cli._tables import write_over

if TYPE_CHECKING:
    from longca.bench.many_devices.verify import CpFinding
    from longca.bench.one_device.verify import Finding


def say(text: str) -> None:
    """Prints a sentence on a line of its own."""
    write_over("")
    print(text, file=sys.stderr, flush=True)


def tell(name: str, finding: Finding | CpFinding, count: str, as_json: bool) -> None:
    """Prints a finding of the kernel or method `name` at once, so that a log has it even if the job is killed."""
    line = f"[{count}] {name} on {finding.mask}, {finding.seqlen} tokens: {finding.status}"
    if as_json:
        print(msgspec.json.encode(finding).decode(), flush=True)
    elif sys.stderr.isatty():
        write_over(line)
    else:
        print(line + (f": {finding.reason}" if finding.reason else ""), file=sys.stderr, flush=True)
