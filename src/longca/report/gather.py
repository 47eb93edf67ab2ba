"""What the page shows, as plain data: records without their samples, environments, and small pictures of the masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longca import __version__, masks
from longca.bench import journal
from longca.bench.export import flat
from longca.bench.summary import is_sparse, mask_names, shown_status
from longca.errors import BadInput, LongcaError
from longca.masks import AnyMask, Mask
from longca.masks.draw import shades
from longca.report.naming import kernel_names, same_masks
from longca.report.reading import Drawn, Record, journals, read, read_environments
from longca.report.reproduce import command

PICTURE = 64  # cells of a mask's picture in each direction
SHADES = "0123456789abcdef"
LEFT_OUT = ("schema", "key", "torch", "commit")  # of no use to a reader, or said once with the environment
MASK_FIELDS = {"digest": str, "mask": str, "seqlen_q": int, "seqlen_k": int, "area": int}
MOST_BLOCK_TOKENS = 1 << 17  # a picture is not worth building a larger block pattern again


class Gathered(NamedTuple):
    """What several folders hold together."""

    records: list[Record]
    environments: dict[str, Record]
    masks: Drawn
    homes: list[list[int]]  # for each record the numbers of the journals that hold it


def gather(folders: Sequence[str | Path]) -> Gathered:
    """All folders together; of two records with the same key the last one counts."""
    records: dict[str, Record] = {}
    environments: dict[str, Record] = {}
    drawn: dict[tuple[str, str], Record] = {}
    homes: dict[str, list[int]] = {}
    for number, folder in enumerate(journals(folders)):
        own = {record["key"]: record | {"status": shown_status(record)} for record in read(folder)}
        records |= own
        for key in own:
            homes.setdefault(key, []).append(number)
        environments |= read_environments(folder)
        drawn |= read_masks(folder)
    if not records:
        raise BadInput(f"there is no record in {', '.join(map(str, folders))}; give a folder in which `longca run` measured something.")
    return Gathered(list(records.values()), environments, drawn, [homes[key] for key in records])


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
        "homes": found.homes,
        "patterns": sorted({record["mask"] for record in found.records if is_sparse(record)}),
        "commands": [command(record, found.environments, found.masks) for record in found.records],
        "environments": found.environments,
        "pictures": pictures(found.records, found.masks),
    }


def _row(record: Record, environments: Mapping[str, Record]) -> Record:
    optional = {name: record.get(name) for name in ("ms", "check")}
    row = flat(record | optional, environments)
    return {name: value for name, value in row.items() if name not in LEFT_OUT}


def read_masks(folder: str | Path) -> dict[tuple[str, str], Record]:
    path = Path(folder) / journal.MASKS
    entries = journal.read_lines(path).entries
    for number, entry in enumerate(entries, 1):
        if not all(isinstance(entry.get(name), kind) for name, kind in MASK_FIELDS.items()):
            raise BadInput(f"{path} line {number} describes no mask; repair or delete that line.")
    return {(entry["digest"], entry["mask"]): entry for entry in entries}


def pictures(records: Sequence[Record], drawn: Drawn) -> dict[str, Record]:
    """By the name of a mask, which for block patterns tells parameters and source: what its longest measured one is and, where it can
    be built again, its picture: rows of shades, one hexadecimal digit each, else null."""
    shown = {digest: entry for (digest, _), entry in drawn.items()}  # the same under any name, and old journals have but one
    longest: dict[str, tuple[Record, Record]] = {}
    for record, name in zip(records, mask_names(records), strict=True):
        entry = shown.get(record["mask_digest"])
        if entry is not None and (name not in longest or entry["seqlen_k"] > longest[name][1]["seqlen_k"]):
            longest[name] = record, entry
    found = {}
    for name, (record, entry) in longest.items():
        mask = _rebuilt(record, entry)
        patterns = record["params"].get("heads", 1) if record["mask"] in masks.block_names() else 1
        density = entry["area"] / (entry["seqlen_q"] * entry["seqlen_k"] * patterns)
        about = {"seqlen": entry["seqlen_k"], "seed": record["seed"], "density": density, "params": record["params"]}
        found[name] = about | {"shades": None if mask is None else _shades(mask)}
    return found


def _rebuilt(record: Record, entry: Record) -> AnyMask | None:
    """Bands from the journal, random blocks from their seed. What q and k selected would need all of them again."""
    try:
        if entry["bands"] is not None:
            return Mask.of(entry["seqlen_q"], entry["seqlen_k"], entry["bands"])
        if entry["seqlen_k"] > MOST_BLOCK_TOKENS or (record.get("source") or "random") != "random":
            return None
        return masks.build(record["mask"], entry["seqlen_k"], seed=record["seed"], **record["params"]).take_heads([0])
    except (LongcaError, TypeError, KeyError):  # a mask of somebody's plugin: the page does without its picture
        return None


def _shades(mask: AnyMask) -> list[str]:
    picture = shades(mask, PICTURE, PICTURE)[0]
    levels = np.ceil(picture * (len(SHADES) - 1)).astype(int)  # the faintest part stays visible
    return ["".join(SHADES[level] for level in row) for row in levels.tolist()]
