"""How much host memory is free for this process: the machine's, or less where a container or a batch job is allowed less."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Files(NamedTuple):
    """The names of what a control group allows, of what it uses, and in its statistics of what it would give back."""

    most: str
    used: str
    idle: str


UNIFIED = Files("memory.max", "memory.current", "inactive_file")
OLD = Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
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
