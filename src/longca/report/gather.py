"""What the page shows, as plain data: records without their samples, environments, and small pictures of the masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longca import __version__, masks
from longca.bench import journal
from longca.bench.export import flat
from longca.bench.summary import mask_names
from longca.errors import BadInput, LongcaError
from longca.masks import AnyMask, Mask
from longca.masks.draw import shades
from longca.report.naming import kernel_names, same_masks
from longca.report.reading import Record, read, read_environments
from longca.report.reproduce import command

PICTURE = 64  # cells of a mask's picture in each direction
SHADES = "0123456789abcdef"
LEFT_OUT = ("schema", "key", "torch", "commit")  # of no use to a reader, or said once with the environment
MOST_BLOCK_TOKENS = 1 << 17  # a picture is not worth building a larger block pattern again


class Gathered(NamedTuple):
    """What several folders hold together."""

    records: list[Record]
    environments: dict[str, Record]
    masks: dict[str, Record]


def gather(folders: Sequence[str | Path]) -> Gathered:
    """All folders together; of two records with the same key the last one counts."""
    records: dict[str, Record] = {}
    environments: dict[str, Record] = {}
    drawn: dict[str, Record] = {}
    for folder in folders:
        records |= {record["key"]: record for record in read(folder)}
        environments |= read_environments(folder)
        drawn |= read_masks(folder)
    if not records:
        raise BadInput(f"there is no record in {', '.join(map(str, folders))}; give a folder in which `longca run` measured something.")
    return Gathered(list(records.values()), environments, drawn)


def page_data(found: Gathered) -> dict[str, Any]:
    """What the page's scripts read; rows are lists, so that names of fields are there once."""
    rows = [_row(record, found.environments) for record in found.records]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return {
        "longca": __version__,
        "columns": columns,
        "rows": [[row.get(name) for name in columns] for row in rows],
        "problems": mask_names(found.records),
        "same": same_masks(found.records),
        "kernels": kernel_names(found.records),
        "commands": [command(record, found.environments, found.masks) for record in found.records],
        "environments": found.environments,
        "pictures": pictures(found.records, found.masks),
    }


def _row(record: Record, environments: Mapping[str, Record]) -> Record:
    optional = {name: record.get(name) for name in ("ms", "check")}
    return {name: value for name, value in flat(record | optional, environments).items() if name not in LEFT_OUT}


def read_masks(folder: str | Path) -> dict[str, Record]:
    path = Path(folder) / journal.MASKS
    entries = journal.read_lines(path).entries
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry.get("digest"), str) or not isinstance(entry.get("mask"), str):
            raise BadInput(f"{path} line {number} describes no mask; repair or delete that line.")
    return {entry["digest"]: entry for entry in entries}


def pictures(records: Sequence[Record], drawn: Mapping[str, Record]) -> dict[str, Record]:
    """Per mask the picture of its longest measured one: rows of shades, one hexadecimal digit each."""
    longest: dict[str, Record] = {}
    for record in records:
        entry = drawn.get(record["mask_digest"])
        known = longest.get(record["mask"])
        if entry is not None and (known is None or entry["seqlen_k"] > known["seqlen_k"]):
            longest[record["mask"]] = entry
    found = {}
    for name, entry in longest.items():
        mask = _rebuilt(entry)
        if mask is not None:
            about = {"seqlen": entry["seqlen_k"], "seed": entry["seed"], "density": mask.density, "params": entry["params"]}
            found[name] = about | {"shades": _shades(mask)}
    return found


def _rebuilt(entry: Record) -> AnyMask | None:
    try:
        if entry["bands"] is not None:
            return Mask.of(entry["seqlen_q"], entry["seqlen_k"], entry["bands"])
        if entry["seqlen_k"] > MOST_BLOCK_TOKENS or entry.get("source", "random") != "random":
            return None
        return masks.build(entry["mask"], entry["seqlen_k"], seed=entry["seed"], **entry["params"]).take_heads([0])
    except (LongcaError, TypeError, KeyError):  # a mask of somebody's plugin: the page does without its picture
        return None


def _shades(mask: AnyMask) -> list[str]:
    picture = shades(mask, PICTURE, PICTURE)[0]
    levels = np.ceil(picture * (len(SHADES) - 1)).astype(int)  # the faintest part stays visible
    return ["".join(SHADES[level] for level in row) for row in levels.tolist()]
