"""What figures and tables tell of records: their names beside each other, and one number of several records."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from longca.bench.summary import BY_RULE, is_sparse, mask_names
from longca.masks import SOURCES, dense_of
from longca.report.gather import Gathered
from longca.report.naming import kernel_names, same_masks
from longca.report.reading import Record
from longca.report.settings import SIMULATED

TENSORS = {"fwd": ("out", "lse"), "bwd": ("dq", "dk", "dv"), "fwd+bwd": ("out", "lse", "dq", "dk", "dv")}  # what a pass computes
SHAPE = ("heads_q", "heads_kv", "head_dim", "head_dim_v", "dtype", "deterministic", "pass", "seqlen")
WORDS = {"oom": "out of memory", "timeout": "timed out"}  # of statuses that are no words themselves


class Worst(NamedTuple):
    """The largest error of some records as a part of what is allowed, and whose it is."""

    share: float
    tensor: str
    record: Record


class Share(NamedTuple):
    """A speed as a part of the device's peak or of the fastest, and at which length it is."""

    value: float
    seqlen: int


def described(found: Gathered) -> list[Record]:
    """Records with what a chart calls them: `problem` (the mask with its parameters and the number of ranks), `family` (without the share
    of visible blocks and that number), `line` (the kernel and how it was split), `same` (a simpler mask that is the very same), `homes`
    (the journals that hold it), `ratio`, and whether the mask is `sparse`, or `dense`: one that block patterns are compared with."""
    records = found.records
    names = zip(records, mask_names(records), kernel_names(records), same_masks(records), strict=True)
    return [_described(*each) | {"homes": homes} for each, homes in zip(names, found.homes, strict=True)]


def _described(record: Record, mask: str, kernel: str, same: str | None) -> Record:
    split = f" {record['method']}" if record.get("method") else ""
    simulated = f"{SIMULATED} {record['simulated']}" if record.get("simulated") else ""
    return record | {
        "problem": f"{mask} ×{record['ranks']}" if split else mask,
        "family": re.sub(r" ratio=\S+", "", mask),
        "line": f"{kernel}{split}{simulated}",
        "same": same,
        "ratio": record["params"].get("ratio"),
        "sparse": is_sparse(record),
        "dense": not is_sparse(record) and not split and record["mask"] in map(dense_of, SOURCES),
    }


def timed(records: Iterable[Record]) -> list[str]:
    """Lines that have a time: the others would be empty entries of a legend."""
    return sorted({record["line"] for record in records if record["status"] == "ok"})


def grouped(records: Iterable[Record], *fields: str) -> dict[Any, list[Record]]:
    """Records by the value of a field, or by the values of several."""
    groups: dict[Any, list[Record]] = {}
    for record in records:
        values = tuple(record[field] for field in fields)
        groups.setdefault(values if len(fields) > 1 else values[0], []).append(record)
    return groups


def at_longest(records: Sequence[Record], field: str) -> list[Record]:
    """Of each group of the field, what was done at its longest length."""
    longest = {name: max(record["seqlen"] for record in group) for name, group in grouped(records, field).items()}
    return [record for record in records if record["seqlen"] == longest[record[field]]]


def longest_timed(records: Sequence[Record]) -> dict[str, tuple[int, list[Record]]]:
    """By mask the longest length at which anything was timed, and the records of that length. What is wrong at any length is among them:
    no speed of a kernel that may be wrong."""
    found = {}
    for mask, group in grouped(records, "problem").items():
        longest = max(record["seqlen"] for record in [record for record in group if record["status"] == "ok"] or group)
        found[mask] = longest, [record for record in group if record["seqlen"] == longest or record["status"] == "wrong"]
    return found


def only_beside(group: Sequence[Record], records: Iterable[Record]) -> bool:
    """Whether these are one kernel on the dense masks that block patterns of the same run are compared with, and nothing else."""
    return len(timed(group)) <= 1 and len(group) == len(_compared(group, records))


def beside(patterns: Iterable[Record], records: Iterable[Record]) -> list[Record]:
    """What the same run measured on the dense masks that these block patterns are a part of."""
    return [record for record in _compared(records, patterns) if record["status"] == "ok"]


def _compared(records: Iterable[Record], patterns: Iterable[Record]) -> list[Record]:
    """Of some records, those on a dense mask that a block pattern of the same journal, shape and length is a part of."""
    wanted = {place for record in patterns if record["sparse"] for place in _places(record, dense_of(record.get("source") or "random"))}
    return [record for record in records if record["dense"] and wanted & _places(record, record["mask"])]


def _places(record: Record, mask: str) -> set[tuple[Any, ...]]:
    return {(home, mask, *(record[name] for name in SHAPE)) for home in record["homes"]}


def worst_error(records: Iterable[Record]) -> Worst | None:
    """Over the tensors that each record's pass computes, of a wrong one over all that were checked: a backward may be wrong for the lse
    it starts from. Infinite where an error is no number, which journals keep as null."""
    worst: Worst | None = None
    for record in records:
        for tensor in (record["check"] or ()) if record["status"] == "wrong" else TENSORS.get(record["pass"], ()):
            found = (record["check"] or {}).get(tensor) or {}
            allowed, error = found.get("allowed"), found.get("error")
            if allowed is None:
                continue
            if error is None or not math.isfinite(error) or (error and not allowed):
                share = math.inf
            else:
                share = error / allowed if error else 0.0
            if worst is None or share > worst.share:
                worst = Worst(share, tensor, record)
    return worst


def peak_known(records: Iterable[Record]) -> bool:
    return any(record.get("mfu") is not None for record in records)


def fastest_of_masks(records: Iterable[Record]) -> dict[Any, float]:
    """The highest speed by mask, pass and cluster it was simulated on, where the mask is not the same as a simpler one."""
    best: dict[Any, float] = {}
    for record in records:
        if record["status"] == "ok" and not record["same"]:
            best[_race(record)] = max(best.get(_race(record), 0.0), record["tflops"])
    return best


def _race(record: Record) -> tuple[str, str, str | None]:
    return record["problem"], record["pass"], record.get("simulated")


def best_share(records: Iterable[Record], fastest: Mapping[Any, float] | None) -> Share | None:
    """The best of one kernel on one mask as a part of the device's peak; given the fastest speeds, as a part of those. Where a mask is
    the same as a simpler one, a kernel that can do only that one runs, too: this is no merit."""
    ok = [record for record in records if record["status"] == "ok" and not record["same"]]
    if fastest is None:
        shares = [Share(record["mfu"], record["seqlen"]) for record in ok if record.get("mfu") is not None]
    else:
        shares = [Share(record["tflops"] / fastest[_race(record)], record["seqlen"]) for record in ok]
    return max(shares, default=None)


def percent(share: float) -> str:
    return f"{100 * share:.{int(share < 0.1)}f} %"


def time_at(records: Iterable[Record]) -> tuple[float, float, float] | None:
    """(median, low, high) milliseconds of records of one point."""
    times = [record["ms"] for record in records if record["status"] == "ok"]
    if not times:
        return None
    middle = median(ms["median"] for ms in times)
    return middle, min(middle, *(ms["p20"] for ms in times)), max(middle, *(ms["p80"] for ms in times))


def untimed(records: Iterable[Record]) -> str:
    """The status that tells why there is no time: that it is wrong before all others, and that a rule left it out only where nothing else
    is known. Empty where all have one."""
    order = {"wrong": -1, BY_RULE: 1}
    return min((str(record["status"]) for record in records if record["status"] != "ok"), key=lambda name: order.get(name, 0), default="")


def word(records: Iterable[Record]) -> str:
    """Why records without a time have none."""
    status = untimed(records)
    return WORDS.get(status, status) or "not run"
