"""The table of `longca verify --level cp`."""

from __future__ import annotations

from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING

from longca.bench.many_devices.transfers import TransferTime
from longca.bench.one_device.verify import FAILED
from longca.results.record import Status
from longca.results.tables import Table
from longca.text import plural

if TYPE_CHECKING:
    from longca.bench.many_devices.verify import CpFinding, CpVerification

COLUMNS = ["what", "ranks", "nodes", "result", "detail"]
OPERATIONS = {"p2p": "point to point", "all_gather": "all-gather", "all_to_all": "all-to-all"}


def cp_table(done: CpVerification) -> Table:
    """A row for each method, then one for each kind of transfer."""
    nodes = str(len({place.node for place in done.places}) or 1)
    by_method: dict[str, list[CpFinding]] = {}
    for finding in done.findings:
        by_method.setdefault(finding.title, []).append(finding)
    rows = [[title, str(done.ranks), nodes, *_verdict(findings)] for title, findings in by_method.items()]
    for (op, ranks, of_nodes), lines in groupby(done.transfers, lambda line: (line.op, line.ranks, line.nodes)):
        rows.append([OPERATIONS[op], str(ranks), str(of_nodes), *_speed(list(lines))])
    return Table("", COLUMNS, rows)


def _verdict(findings: list[CpFinding]) -> tuple[str, str]:
    """The result of a method in a word, and what it was on which masks."""
    right = [finding for finding in findings if finding.status is Status.OK]
    failed = [finding for finding in findings if finding.status in FAILED]
    others = [finding for finding in findings if finding not in right and finding not in failed]
    worst = 100 * max((finding.worst for finding in right), default=0.0)
    parts = [f"correct in {plural(len(right), 'case')}, worst error {worst:.0f} % of the tolerance"] if right else []
    parts += [f"{finding.mask} at {finding.seqlen}: {finding.status}: {finding.reason}" for finding in failed[:2]]
    if len(failed) > 2:
        parts.append(f"and {plural(len(failed) - 2, 'more case')} not right")
    if others:
        parts.append(f"{plural(len(others), 'case')} refused, such as {others[0].mask}: {others[0].reason}")
    result = str(failed[0].status) if failed else "ok" if right else str(others[0].status)
    return result, "; ".join(parts)


def _speed(lines: list[TransferTime]) -> tuple[str, str]:
    small, large = min(lines, key=lambda line: line.bytes), max(lines, key=lambda line: line.bytes)
    sent = large.bytes * (1 if large.op == "p2p" else large.ranks - 1)
    rate = sent / median(large.seconds) / 1e9
    return (
        f"{median(small.seconds) * 1e6:.0f} us",
        f"with {small.bytes} bytes; {rate:.2f} GB/s per rank with messages of {large.bytes >> 10} KiB",
    )
