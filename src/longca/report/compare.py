"""Two journals, cell by cell: what became slower, faster, broken, or cannot be told."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longca.bench.summary import label
from longca.errors import BadInput
from longca.report import PRACTICAL
from longca.report.ratio import CONFIDENCE, Ratio, ratio
from longca.report.reading import Record, identity, measured_thing, read, read_environments
from longca.text import format_dims, format_heads, format_size, plural

# worst first
VERDICTS = ("BROKEN", "SLOWER", "UNCLEAR", "SAME", "FASTER", "MENDED", "UNMEASURED")
REGRESSIONS = ("BROKEN", "SLOWER")
LOOSE = 0.02  # a median that its run did not know better than this is not compared
FAR = 3.0  # times: a change by more is one, whatever else the machine did (twice was seen on two busy cores)
# the part of such cells above which no cell of a journal is trusted: on a CPU all share one machine with whatever else it does
BUSY = {"cpu": 0.1, "cuda": 0.5}
CONDITIONS = {  # in env.json, with what they are called
    "device": "the device",
    "threads": "the number of threads",
    "clock": "the clock's settings",
    "power_limit_w": "the power limit in W",
    "application_sm_mhz": "the application clock of the SMs in MHz",
    "application_memory_mhz": "the application clock of the memory in MHz",
}
MAY_BE_UNKNOWN = ("power_limit_w", "application_sm_mhz", "application_memory_mhz")  # to older journals, CPUs and some drivers
# what no column of the table says, but two rows may differ by; a digest says little, so it is the last resort
TOLD_APART = ("level", "source", "seed", "deterministic", "grad", "grid", "simulated", "seqlen_q", "seqlen_k")


@dataclass(frozen=True)
class Compared:
    """One cell that both journals have. `ratio` is B over A, where both were measured."""

    verdict: str
    before: Record
    after: Record
    ratio: Ratio | None

    def to_json(self) -> Record:
        found = None if self.ratio is None else {"value": self.ratio.value, "low": None, "high": None}
        if found is not None and self.ratio is not None and self.ratio.known:
            found |= {"low": self.ratio.low, "high": self.ratio.high, "wander": self.ratio.wander, "drifting": self.ratio.drifting}
        sides = {side: _side(record) for side, record in (("a", self.before), ("b", self.after))}
        return {"verdict": self.verdict, "cell": measured_thing(self.before), "ratio": found, **sides}


@dataclass(frozen=True)
class Comparison:
    cells: list[Compared]  # worst first
    only_before: list[Record]
    only_after: list[Record]
    differences: list[str]  # what was overlooked because of --force
    busy: list[str]  # where nothing can be called slower or faster, because the machine was doing other things

    @property
    def counts(self) -> dict[str, int]:
        counted = Counter(cell.verdict for cell in self.cells)
        return {verdict: counted[verdict] for verdict in VERDICTS}

    def fails(self, also: Iterable[str] = ()) -> bool:
        """Whether something regressed; `also` may name 'unclear' and 'missing' as failures too."""
        wanted = set(also)
        regressed = any(self.counts[verdict] for verdict in REGRESSIONS)
        unclear = "unclear" in wanted and self.counts["UNCLEAR"] > 0
        return regressed or unclear or ("missing" in wanted and bool(self.only_before))

    def to_json(self, threshold: float) -> Record:
        about = {"threshold": threshold, "confidence": CONFIDENCE, "overlooked": self.differences, "busy": self.busy, "counts": self.counts}
        only = {"only_in_a": self.only_before, "only_in_b": self.only_after}
        names = {side: [measured_thing(record) for record in records] for side, records in only.items()}
        return about | {"cells": [cell.to_json() for cell in self.cells]} | names


def compare(before: str | Path, after: str | Path, threshold: float = PRACTICAL, force: bool = False) -> Comparison:
    """What changed from `before` to `after`; journals that cannot be compared fairly are refused unless forced."""
    sides = [read(folder) for folder in (before, after)]
    empty = [str(folder) for folder, side in zip((before, after), sides, strict=True) if not side]
    if empty:
        raise BadInput(f"there is no record in {' and '.join(empty)}; give folders in which `longca run` measured something.")
    environments = [read_environments(folder) for folder in (before, after)]
    _refuse_several_devices((before, after), sides, environments)
    a, b = ({identity(record, {}): record for record in side} for side in sides)
    shared = [name for name in a if name in b]
    if not shared:
        raise BadInput(f"{before} and {after} have no cell in common; compare two runs of the same suite.")
    differences = _differences([(a[name], b[name]) for name in shared], environments)
    if differences and not force:
        raise BadInput(f"{before} and {after} differ in {'; and in '.join(differences)}; --force compares them all the same.")
    busy = [
        sentence for sentence in (_busy(str(before), sides[0], environments[0]), _busy(str(after), sides[1], environments[1])) if sentence
    ]
    cells = sorted((_judge(a[name], b[name], threshold, bool(busy)) for name in shared), key=_worst_first)
    return Comparison(cells, [a[n] for n in a if n not in b], [b[n] for n in b if n not in a], differences, busy)


def verdict(found: Ratio, threshold: float) -> str:
    """The whole interval must lie beyond the threshold for a change, by more than a drift explains, and within it for none."""
    limit, drift = 1 + threshold, math.exp(found.wander)
    if found.low > limit * drift:
        return "SLOWER"
    if found.high * drift < 1 / limit:
        return "FASTER"
    return "SAME" if found.low >= 1 / limit and found.high <= limit else "UNCLEAR"


def _busy(name: str, records: list[Record], environments: Mapping[str, Record]) -> str:
    """A sentence if the run gave up on many of its cells: then the rest, measured in between, may be off by any factor too, however
    close together their samples are (docs/report.md has what was seen)."""
    measured = [record for record in records if record["status"] == "ok"]
    loose = sum(map(unsteady, measured))
    kinds = {str(environments.get(record["env"], {}).get("device_kind")) for record in measured}
    if loose <= min((BUSY.get(kind, 0.5) for kind in kinds), default=0.5) * len(measured):
        return ""
    advice = "measure again on a quiet machine or with a larger --budget"
    return f"{loose} of {len(measured)} cells of {name} are unsteady, so nothing is called slower or faster; {advice}."


def unsteady(record: Record) -> bool:
    """Noisy, and not only by a suite's strict target: times that wander by whole percents do so between runs too."""
    spread = record["ms"].get("spread")
    return bool(record.get("noisy")) and (spread is None or spread > LOOSE)


def _by_the_clock(a: Record, b: Record, found: Ratio, threshold: float) -> bool:
    """Whether a change is one of the device's clock: in cycles it would be none, or not that one."""
    before, after = a.get("clock_mhz"), b.get("clock_mhz")
    if not before or not after:
        return False
    in_cycles = verdict(found.times(after / before), threshold)
    return verdict(found, threshold) in ("FASTER", "SLOWER") and in_cycles != verdict(found, threshold)


def _judge(a: Record, b: Record, threshold: float, busy: bool) -> Compared:
    measured = (a["status"] == "ok", b["status"] == "ok")
    if measured == (True, True):
        found = ratio(a["ms"]["samples"], b["ms"]["samples"])
        disturbed = (busy or unsteady(a) or unsteady(b)) and verdict(found, FAR - 1) not in ("SLOWER", "FASTER")
        unclear = disturbed or _by_the_clock(a, b, found, threshold)
        return Compared("UNCLEAR" if unclear else verdict(found, threshold), a, b, found)
    return Compared({(True, False): "BROKEN", (False, True): "MENDED", (False, False): "UNMEASURED"}[measured], a, b, None)


def _worst_first(cell: Compared) -> tuple[int, float]:
    return VERDICTS.index(cell.verdict), -cell.ratio.value if cell.ratio else 0.0


def _side(record: Record) -> Record:
    return {"kernel": label(record), "status": record["status"], "reason": record["reason"], "ms": (record.get("ms") or {}).get("median")}


def _refuse_several_devices(names: Sequence[str | Path], sides: list[list[Record]], environments: list[dict[str, Record]]) -> None:
    for name, records, known in zip(names, sides, environments, strict=True):
        devices = {str(known.get(record["env"], {}).get("device")) for record in records}
        if len(devices) > 1:
            raise BadInput(f"{name} holds records of several devices ({', '.join(sorted(devices))}); compare journals of one.")


def _differences(pairs: list[tuple[Record, Record]], environments: list[dict[str, Record]]) -> list[str]:
    """What makes times of two that are compared incomparable, in words: cell by cell, as a run may be resumed under other conditions."""
    found: dict[str, set[tuple[str, str]]] = {}
    for records in pairs:
        schemas = tuple(str(record["schema"]) for record in records)
        facts = [known.get(record["env"], {}) for record, known in zip(records, environments, strict=True)]
        values = {title: tuple(_word(fact.get(name)) for fact in facts) for name, title in CONDITIONS.items()}
        for name in MAY_BE_UNKNOWN:
            if any(fact.get(name) is None for fact in facts):
                del values[CONDITIONS[name]]
        for title, (one, other) in {"the schema": schemas, **values}.items():
            if one != other:
                found.setdefault(title, set()).add((one, other))
    return [f"{title} ({', '.join(f'{one} and {other}' for one, other in sorted(both))})" for title, both in found.items()]


def _word(value: Any) -> str:
    return json.dumps(_plain(value), sort_keys=True).replace('"', "")


def _plain(value: Any) -> Any:
    """The same number written the same way: 1 second in a file of settings is 1.0 on the command line."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def why(cell: Compared) -> str:
    """Why a cell has no time: the reason of B, or of A where B has a time."""
    reasons = [" ".join(record["reason"].split()) for record in (cell.after, cell.before) if record["status"] != "ok"]
    return reasons[0] if reasons else ""


def describe_all(records: Sequence[Record]) -> list[list[str]]:
    """The columns that name each cell in a table, with what else tells two apart that would read the same."""
    rows = [describe(record) for record in records]
    alike: dict[tuple[str, ...], list[Record]] = {}
    for row, record in zip(rows, records, strict=True):
        alike.setdefault(tuple(row), []).append(record)
    for row, record in zip(rows, records, strict=True):
        group = alike[tuple(row)]
        differ = [name for name in TOLD_APART if len({json.dumps(other.get(name), sort_keys=True) for other in group}) > 1]
        differ = differ if differ or len(group) == 1 else ["mask_digest"]
        row[-1] = " ".join([row[-1], *(f"{name} {record.get(name)}" for name in differ)])
    return rows


def describe(record: Record) -> list[str]:
    """The columns that name a cell in a table."""
    params = ",".join(f"{name}={value}" for name, value in sorted(record["params"].items()))
    shape = f"{format_heads(record)}x{format_dims(record)} {record['dtype']}"
    split = [f"{record['method']} on {record['ranks']}"] if record.get("method") else []
    kernel = " ".join([record["asked"], *split])
    return [kernel, record["mask"] + (f"({params})" if params else ""), format_size(record["seqlen"]), record["pass"], shape]


def change(found: Ratio | None) -> tuple[str, str]:
    """(change, interval) in percent of time: +5.0 % is slower."""
    if found is None:
        return "", ""
    low, high = (f"{100 * (edge - 1):+.1f}" for edge in (found.low, found.high))
    return (
        f"{100 * (found.value - 1):+.1f} %",
        f"{low} to {high} %{' (drift)' if found.drifting else ''}" if found.known else "too few samples",
    )


def advice(cells: Iterable[Compared]) -> list[str]:
    """What would decide cells that their samples leave open."""
    unclear = [cell.ratio for cell in cells if cell.verdict == "UNCLEAR" and cell.ratio]
    few, drifting = sum(not found.known for found in unclear), sum(found.drifting for found in unclear)
    more = "measure them again with more samples: --clock least=20, or a larger --budget"
    said = [f"{plural(few, 'cell')} with too few samples, which is fewer than five: {more}."] if few else []
    drift = "samples rise or fall together, so only a change beyond what that explains would be called one"
    return said + ([f"{plural(drifting, 'cell')} with (drift): {drift}; {more}, on a quiet machine."] if drifting else [])


def as_json(compared: Comparison, threshold: float) -> str:
    return json.dumps(compared.to_json(threshold), indent=1, allow_nan=False)
