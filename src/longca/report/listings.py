"""Tables of `longca ls kernels`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longca.masks import block_names
from longca.results.shown import Part
from longca.results.tables import Table

SIGNS = {"native": "N", "lowered": "L", "no": "."}
Entry = dict[str, Any]


def kernel_summary(entries: Sequence[Entry]) -> list[Part]:
    """One line per kernel: what runs here, its kinds of backward, how many static masks it takes, and which block patterns."""
    families: dict[str, list[Entry]] = {}
    for entry in entries:
        families.setdefault(entry["kernel"].partition(":")[0], []).append(entry)
    columns = ["kernel", "variants", "here", "backward", "masks", "blocks"]
    more = "`longca ls kernels NAME` shows how to install it, where it was tested, and which masks it takes; --details shows all."
    return [Table("", columns, [_summary(*family) for family in families.items()]), "", more]


def _summary(name: str, variants: Sequence[Entry]) -> list[str]:
    short = {entry["kernel"]: entry["kernel"].partition(":")[2] for entry in variants}
    runs = [short[entry["kernel"]] for entry in variants if entry["available"]]
    here = variants[0]["here"].partition(";")[0] if not runs else "yes" if len(runs) == len(variants) else f"yes: {', '.join(runs)}"
    takes = [mask for mask in variants[0]["masks"] if any(entry["masks"][mask]["answer"] != "no" for entry in variants)]
    blocks = [mask.removesuffix("_block") for mask in takes if mask in block_names()]
    static = sum(mask not in block_names() for mask in variants[0]["masks"])
    backward = "/".join(dict.fromkeys(entry["backward"] for entry in variants))
    return [name, ", ".join(filter(None, short.values())), here, backward, f"{len(takes) - len(blocks)} of {static}", ", ".join(blocks)]


def mask_matrix(entries: Sequence[Entry]) -> list[Part]:
    """Which kernel takes which mask, and the reasons if not."""
    names = list(entries[0]["masks"])
    short = {name: "".join(word[:2] if len(name.split("_")) < 3 else word[0] for word in name.split("_")) for name in names}
    legend = "N: native support; L: by lowering the mask; .: unsupported. " + ", ".join(f"{short[name]} {name}" for name in names)
    rows = [[entry["kernel"], *(SIGNS[entry["masks"][name]["answer"]] for name in names)] for entry in entries if entry["masks"]]
    parts: list[Part] = ["", legend, Table("", ["kernel", *short.values()], rows)]
    for entry in entries:
        reasons: dict[str, list[str]] = {}
        for name, answer in entry["masks"].items():
            if answer["answer"] == "no":
                reasons.setdefault(answer["note"], []).append(name)
        parts += [f"{entry['kernel']} does not support {', '.join(where)}: it {reason}" for reason, where in reasons.items()]
    return parts
