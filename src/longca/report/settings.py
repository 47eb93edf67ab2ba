"""Records that can stand in one picture: the same device, level, shape and dtype."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from statistics import median

from longca.bench.summary import BY_RULE
from longca.report.reading import Record
from longca.text import format_shape

PASSES = ("fwd", "bwd", "fwd+bwd")
MARKS = {"unsupported": "X", "unavailable": "X", "oom": "M", "wrong": "W", "timeout": "T", "error": "E", "invalid": "E", BY_RULE: "L"}
LETTERS = {"X": "unsupported or unavailable", "M": "out of memory", "W": "wrong", "T": "timed out", "E": "error"}
LETTERS |= {"L": f"not run, {BY_RULE}"}
SIMULATED = ", simulated on"  # part of a line's name, so that nobody takes it for a measured one
MARKS_EXPLAINED = (
    f"A letter at the foot stands where a kernel has no time: {'; '.join(f'{letter} {said}' for letter, said in LETTERS.items())}. "
    "A grey letter stands for several kernels, and a number says how many: X3 means that three kernels are unsupported or unavailable."
)


def by_setting(records: Iterable[Record], environments: Mapping[str, Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        device = environments.get(record["env"], {}).get("device") or "unknown device"
        name = f"{device} · {record['level']} · {format_shape(record)} · {record['dtype']}"
        groups.setdefault(name + (" · deterministic" if record.get("deterministic") else ""), []).append(record)
    return groups


def slug(name: str) -> str:
    """A setting's name as a part of a file's."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()


def speed_at(records: Iterable[Record]) -> tuple[float, float, float] | None:
    """(median, low, high) TFLOP/s of records of one point, from the 20th to the 80th percentile of their samples."""
    ok = [record for record in records if record["status"] == "ok" and record.get("tflops")]
    if not ok:
        return None
    speeds = [record["tflops"] for record in ok]
    low = min(record["tflops"] * record["ms"]["median"] / record["ms"]["p80"] for record in ok)
    high = max(record["tflops"] * record["ms"]["median"] / record["ms"]["p20"] for record in ok)
    middle = median(speeds)
    return middle, min(low, middle), max(high, middle)
