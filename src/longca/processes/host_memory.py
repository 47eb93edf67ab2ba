"""How much host memory is free for this process, and how much a process takes together with everything below it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from longca.processes.guard import parents
from longca.text import parse_size


class Files(NamedTuple):
    """The names of what a control group allows, of what it uses, and in its statistics of what it would give back."""

    most: str
    used: str
    idle: str


UNIFIED = Files("memory.max", "memory.current", "inactive_file")
OLD = Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def limit(asked: str = "") -> int:
    """Bytes of host memory for one process: as asked, such as 16G, or most of what is free."""
    return parse_size(asked) if asked else free_bytes() * 9 // 10


def free_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """What the machine has free, or less where a container or a batch job is allowed less."""
    free = int(os.sysconf("SC_AVPHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
    for line in _lines(proc / "meminfo"):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) << 10
    return max(0, min([free, *_allowed(proc, groups)]))


def _allowed(proc: Path, groups: Path) -> Iterator[int]:
    """What the groups of this process, and all above them, have left. A container sees its own group as the top one."""
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, files = (groups / "memory", OLD) if controllers else (groups, UNIFIED)
        own = Path(path.lstrip("/"))
        for folder in (top / part for part in (own, *own.parents)):
            most, used = ("".join(_lines(folder / name)) for name in (files.most, files.used))
            if most.isdecimal() and used.isdecimal():
                idle = [int(line.split()[1]) for line in _lines(folder / "memory.stat") if line.startswith(f"{files.idle} ")]
                yield int(most) - int(used) + sum(idle)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


class Table:
    """All processes of the machine with their parents, read again so seldom that it takes at most 2 % of a core."""

    FRESH_S = 0.25

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}
        self._fresh_until = 0.0

    def below(self, top: int) -> set[int]:
        """The processes below one."""
        if (start := time.monotonic()) > self._fresh_until:
            self._parents = dict(parents())
            end = time.monotonic()
            self._fresh_until = end + max(self.FRESH_S, 50 * (end - start))
        family, more = set[int](), {top}
        while more := {pid for pid, parent in self._parents.items() if parent in more} - family:
            family |= more
        return family


TABLE = Table()  # shared by the watches of all children


def resident_bytes(top: int, allowed: int) -> int:
    """The memory of all processes below one. Pages that they share count once, which is looked at only where it matters: beyond what is
    allowed."""
    page = os.sysconf("SC_PAGE_SIZE")
    resident = {pid: int(words[1]) * page for pid in TABLE.below(top) if (words := " ".join(_lines(Path(f"/proc/{pid}/statm"))).split())}
    if sum(resident.values()) <= allowed or len(resident) == 1:
        return sum(resident.values())
    return sum(_proportional(pid) or size for pid, size in resident.items())


def _proportional(pid: int) -> int:
    """The resident bytes of a process, with a page that n processes share as an nth; 0 where that is not told."""
    sizes = [int(line.split()[1]) << 10 for line in _lines(Path(f"/proc/{pid}/smaps_rollup")) if line.startswith("Pss:")]
    return sum(sizes)
