"""Journals for readers: every field that a report or a comparison leans on is there and of its type, or the line is named."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from longca.bench import journal
from longca.errors import BadInput

Record = dict[str, Any]
Drawn = Mapping[tuple[str, str], Record]  # entries of masks.jsonl by digest and name: masks that show the same may be made otherwise

FIELDS: dict[str, tuple[type, ...]] = {
    "level": (str,),
    "kernel": (str,),
    "variant": (str, type(None)),
    "asked": (str,),
    "mask": (str,),
    "params": (dict,),
    "mask_digest": (str,),
    "seed": (int,),
    "seqlen": (int,),
    "heads_q": (int,),
    "heads_kv": (int,),
    "head_dim": (int,),
    "head_dim_v": (int,),
    "dtype": (str,),
    "pass": (str,),
    "status": (str,),
    "reason": (str,),
    "env": (str,),
    "deterministic": (bool,),
    "grad": (bool,),
    "ms": (dict, type(None)),
    "check": (dict, type(None)),
    "tflops": (int, float, type(None)),
}
# what was measured: not what it was measured with, nor what was found; the variant is the kernel's own choice
IDENTITY = (
    *("level", "asked", "mask", "params", "mask_digest", "seed", "seqlen", "seqlen_q", "seqlen_k", "heads_q", "heads_kv"),
    *("head_dim", "head_dim_v", "dtype", "deterministic", "grad", "pass", "method", "ranks", "grid", "simulated"),
)
STATUSES = ("ok", "unsupported", "unavailable", "oom", "timeout", "wrong", "error", "invalid")


def journals_below(folder: Path) -> list[Path]:
    """Every folder at or below this one that holds a journal."""
    return sorted({path.parent for path in folder.rglob(f"{journal.RESULTS}*") if path.name in (journal.RESULTS, f"{journal.RESULTS}.gz")})


def journals(folders: Iterable[str | Path]) -> list[Path]:
    """Folders of journals, each for those below it. What holds none stays, for its reader to refuse."""
    found: dict[Path, None] = {}
    for folder in map(Path, folders):
        below = journals_below(folder)
        found |= dict.fromkeys([folder] if folder in below else below or [folder])
    return list(found)


def read(folder: str | Path) -> list[Record]:
    """The records of a journal that count; one that is none of ours is refused with file and line."""
    history = journal.history(folder)
    for record in {record["key"]: record for record in history}.values():
        fault = _fault(record)
        if fault:
            path = Path(folder) / journal.RESULTS
            raise BadInput(f"{path} line {_line_of(path, record)}: {fault}; repair or delete that line, or give a folder of `longca run`.")
    return that_count(history, read_environments(folder))


def that_count(history: Iterable[Record], environments: Mapping[str, Record]) -> list[Record]:
    """Of records that measure the same, the last one, at the place of the first: a kernel that was edited has another key, and yet it is
    measured in place of what it was."""
    same: dict[str, Record] = {}
    newest: dict[str, Record] = {}
    for record in history:
        same[identity(as_planned(record), environments)] = newest[record["key"]] = record
    return [record for record in same.values() if record is newest[record["key"]]]


def replaced(history: Iterable[Record], environments: Mapping[str, Record], keys: Collection[str]) -> list[Record]:
    """Records with these keys that no longer count, because a later one with none of these keys measures the same."""
    found = list(history)
    counting = {identity(as_planned(record), environments): record["key"] for record in found}
    own = {record["key"]: record for record in found if record["key"] in keys}
    return [record for record in own.values() if counting[identity(as_planned(record), environments)] not in keys]


def as_planned(record: Record) -> Record:
    """A forward that was measured alone because its backward failed is what was planned beside that backward all the same."""
    given = record.get("given")
    return record if record["pass"] != "fwd" or given is None else record | {"grad": bool(given.get("grad"))}


def measured_thing(record: Record) -> Record:
    """What was measured, in those fields that the record has."""
    return {name: record[name] for name in IDENTITY if name in record}


def identity(record: Record, environments: Mapping[str, Record]) -> str:
    """What was measured; with environments, on what device too, for journals of several."""
    device = environments.get(record["env"], {}).get("device")
    return json.dumps([device, measured_thing(record)], sort_keys=True)


def read_environments(folder: str | Path) -> dict[str, Record]:
    found: Any = journal.load_environments(folder)
    if not isinstance(found, dict) or not all(isinstance(facts, dict) for facts in found.values()):
        raise BadInput(f"{Path(folder) / journal.ENVIRONMENTS} does not hold environments by name; restore what `longca run` wrote there.")
    return found


def _fault(record: Record) -> str:
    for name, kinds in FIELDS.items():
        if name not in record:
            return f"the record has no field {name!r}"
        if not isinstance(record[name], kinds):
            return f"field {name!r} is {record[name]!r}, which is of the wrong type"
    if record["status"] not in STATUSES:
        return f"status {record['status']!r} is unknown"
    if not all(isinstance(found, dict) for found in (record["check"] or {}).values()):
        return "field 'check' must hold an object for each tensor"
    return _fault_of_times(record) if record["status"] == "ok" else ""


def _fault_of_times(record: Record) -> str:
    ms = record.get("ms")
    if not isinstance(ms, dict) or not isinstance(ms.get("samples"), list) or not ms["samples"]:
        return "the status is ok, but there are no samples in 'ms'"
    wrong = [time for time in (*ms["samples"], *(ms.get(name) for name in ("median", "p20", "p80"))) if not _positive(time)]
    if wrong:
        return f"'ms' holds {wrong[0]!r}, which is no time"
    missing = [name for name in ("flops", "tflops") if not _positive(record.get(name))]
    return f"field {missing[0]!r} is {record.get(missing[0])!r}, where a measured cell has a number" if missing else ""


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _line_of(path: Path, record: Record) -> int:
    """The last line with this key, which is the one that counts."""
    entries = journal.read_lines(path).entries
    return max(number for number, entry in enumerate(entries, 1) if entry.get("key") == record["key"])
