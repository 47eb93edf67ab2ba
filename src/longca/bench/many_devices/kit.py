"""What `longca verify --level cp` leaves behind: one table, and one file to send.

The file holds a folder with
  findings.jsonl   every method on every mask: status, reason, errors
  transfers.jsonl  seconds of transfers by size, which `longca calibrate` reads
  env.json         device, versions, settings of NCCL and gloo; nodes are numbered, not named
  table.txt        the table that was printed
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from longca.bench.many_devices.transfers import TransferTime
from longca.bench.one_device.verify import FAILED
from longca.bench.run.environment import dated, describe
from longca.results.record import Status
from longca.results.tables import Table, plain_table
from longca.text import plural

if TYPE_CHECKING:
    from longca.bench.many_devices.level import ManyDevices
    from longca.bench.many_devices.verify import CpFinding, CpVerification

COLUMNS = ["what", "ranks", "nodes", "result", "detail"]
OPERATIONS = {"p2p": "point to point", "all_gather": "all-gather", "all_to_all": "all-to-all"}
FILES = ("findings.jsonl", "transfers.jsonl", "env.json", "table.txt")


def write(done: CpVerification, level: ManyDevices, out: Path) -> Path:
    """Writes the folder and packs it; returns the file to send."""
    out.mkdir(parents=True, exist_ok=True)
    (out / FILES[0]).write_bytes(_lines(done.findings))
    (out / FILES[1]).write_bytes(_lines(done.transfers))
    (out / FILES[2]).write_bytes(msgspec.json.format(msgspec.json.encode(_environment(done, level))) + b"\n")
    (out / FILES[3]).write_text(plain_table(*cp_table(done)[1:]))
    packed = out.with_name(f"{out.name}.tar.gz")
    with tarfile.open(packed, "w:gz") as archive:
        for name in FILES:
            archive.add(out / name, f"{out.name}/{name}", filter=_anonymous)
    return packed


def _lines(entries: Iterable[Any]) -> bytes:
    return b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)


def _environment(done: CpVerification, level: ManyDevices) -> dict[str, Any]:
    """The first rank's machine, and of each rank what may differ; without names of hosts."""
    ranks = [msgspec.to_builtins(place.facts) | {"rank": place.rank, "node": place.node} for place in done.places]
    for rank in ranks:
        del rank["host"]
    own = msgspec.to_builtins(dated(describe(level.device, level.suite, level.catalogue.entries)))
    return {"environment": own, "ranks": ranks, "broken": done.broken}


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


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
    parts += [f"{finding.place} at {finding.seqlen}: {finding.status}: {finding.reason}" for finding in failed[:2]]
    if len(failed) > 2:
        parts.append(f"and {plural(len(failed) - 2, 'more case')} not right")
    if others:
        parts.append(f"{plural(len(others), 'case')} refused, such as {others[0].place}: {others[0].reason}")
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
