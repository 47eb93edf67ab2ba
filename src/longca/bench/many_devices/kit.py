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
from pathlib import Path
from typing import Any

import msgspec

from longca.bench.many_devices.level import ManyDevices
from longca.bench.many_devices.verify import CpVerification
from longca.bench.many_devices.words import cp_table
from longca.bench.run.environment import dated, describe
from longca.results.tables import plain_table

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


def _lines(entries: Iterable[msgspec.Struct]) -> bytes:
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
