"""What shipped records say: by device, class and pass, how much slower each kernel is than the fastest.

`measured.json.gz` is made from journals by `tools/choices.py`, as this room reads no journals. Records leave out kernels that they show far
enough behind the fastest: by more than `CLEAR` where they are of this class, `FAR` where they are of another length, density or number of
heads. The margin is wide, as the load of a device changes the order of kernels (docs/kernels.md has figures). A kernel that the nearest
entry lacks (a run skips slow ones) stands as in the nearest entry that has it. A kernel without any record is never left out.
"""

from __future__ import annotations

import gzip
import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from longca.kernels import registry
from longca.kernels.base import Kernel
from longca.kernels.choice.classes import ShapeClass
from longca.text import format_size

FILE = Path(__file__).parent / "measured.json.gz"
CLEAR, FAR = 1.15, 1.25
BEHIND = 1.05  # a kernel that the entry lacks, and that the nearest entry which has it shows so far behind, is not the fastest
FARTHEST = 6  # doublings: entries beyond leave out no kernel that nearer ones lack


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """One kernel in one pass: its time over that of the fastest, and the versions that it was measured with ("": not recorded)."""

    slower: float
    versions: list[str]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """The records of one class and pass on one device; `points` are the masks and lengths that they are of."""

    device: str
    mask: str
    seqlen: int
    heads: str
    head_dim: str
    dtype: str
    pass_: str
    points: int = 1
    journals: list[str] = []
    kernels: dict[str, Standing] = {}


@cache
def entries() -> list[Entry]:
    return msgspec.json.decode(gzip.decompress(FILE.read_bytes()), type=list[Entry])


def devices() -> list[str]:
    """Returns the devices that there are records of."""
    return sorted({entry.device for entry in entries()})


def versions_hash(versions: Mapping[str, str]) -> str:
    """Returns a short hash of what a kernel was, or is to be, measured with."""
    text = "\n".join(f"{name} {number}" for name, number in sorted(versions.items()))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def installed_versions(kernel: Kernel) -> str:
    """Returns the hash of the versions that this kernel has here, torch included."""
    return _installed(type(kernel), kernel.variant)


@cache
def _installed(kind: type[Kernel], variant: str) -> str:
    from importlib.metadata import version

    return versions_hash({"torch": version("torch")} | registry.versions(kind(variant)))


@dataclass(frozen=True)
class Evidence:
    """The entry nearest to a class; `exact` where it is of that class itself. `further` are others, nearest first."""

    entry: Entry
    exact: bool
    further: Sequence[Entry] = ()

    def slower(self, label: str) -> float | None:
        standing = self.entry.kernels.get(label)
        return None if standing is None else standing.slower

    def is_behind_elsewhere(self, label: str, among: Collection[str], limit: float = FAR) -> bool:
        """Returns whether this entry lacks a kernel, and the nearest one that has it shows it too far behind the fastest of `among`."""
        if label in self.entry.kernels:
            return False
        standings = next((entry.kernels for entry in self.further if label in entry.kernels), {})
        return label in standings and standings[label].slower > limit * min(standings[name].slower for name in among if name in standings)

    def describe(self) -> str:
        entry = self.entry
        kind = entry.mask.replace(", 1/", ", density near 1/")
        return f"records of {entry.device}, {kind}, about {format_size(entry.seqlen)} tokens, {entry.heads} heads of {entry.head_dim}"


def evidence(device: str, wanted: ShapeClass, pass_: str) -> Evidence | None:
    """Returns the records nearest to a class: of that kind of mask, head size and dtype, on that device; None where there are none."""
    if wanted.softcap or wanted.sinks or wanted.deterministic or wanted.seqlen_q != wanted.seqlen_k or not wanted.seqlen_q:
        return None
    near = [entry for entry in entries() if entry.device == device and entry.pass_ == pass_ and _is_alike(entry, wanted)]
    if not near:
        return None
    nearest, *further = sorted(near, key=lambda entry: _distance(entry, wanted))
    return Evidence(nearest, _distance(nearest, wanted) == 0, [entry for entry in further if _distance(entry, wanted) <= FARTHEST])


def _is_alike(entry: Entry, wanted: ShapeClass) -> bool:
    same_kind = entry.mask.partition(", 1/")[0] == wanted.mask.partition(", 1/")[0]
    return same_kind and (entry.head_dim, entry.dtype) == (wanted.head_dim, wanted.dtype)


def _distance(entry: Entry, wanted: ShapeClass) -> float:
    """Returns how many doublings of length, density and query heads per KV head are between them."""
    density = abs(_halvings(entry.mask) - _halvings(wanted.mask))
    heads = abs(math.log2(_group(entry.heads) / _group(wanted.heads))) + 0.5 * (entry.heads != wanted.heads)
    return abs(math.log2(entry.seqlen / wanted.seqlen_q)) + density + 2 * heads


def _halvings(mask: str) -> float:
    return math.log2(int(mask.partition(", 1/")[2] or 1))


def _group(heads: str) -> float:
    heads_q, heads_kv = map(int, heads.split(":"))
    return heads_q / heads_kv


def contenders(kernels: Sequence[Kernel], known: Evidence | None) -> list[Kernel]:
    """Returns the kernels that may be the fastest, the likeliest first."""
    measured = _measured(kernels, known)
    if known is None or not measured:
        return list(kernels)
    limit = min(measured.values()) * (CLEAR if known.exact else FAR)
    among = {kernel.label for kernel in kernels}
    kept = [kernel for kernel in kernels if measured.get(kernel.label, 0.0) <= limit and not known.is_behind_elsewhere(kernel.label, among)]
    return sorted(kept, key=lambda kernel: measured.get(kernel.label, math.inf))


def are_complete(kernels: Sequence[Kernel], known: Evidence | None, installed: Mapping[str, str]) -> bool:
    """Returns whether records of this very class have all these kernels in the versions that are installed (by label); kernels that the
    nearest other records show behind may be missing."""
    if known is None or not known.exact:
        return False
    among = {kernel.label for kernel in kernels}
    lacking = [label for label in among if label not in known.entry.kernels]
    fresh = all(known.entry.kernels[label].versions == [installed.get(label)] for label in among.difference(lacking))
    return fresh and all(known.is_behind_elsewhere(label, among, BEHIND) for label in lacking)


def _measured(kernels: Iterable[Kernel], known: Evidence | None) -> dict[str, float]:
    found = {kernel.label: None if known is None else known.slower(kernel.label) for kernel in kernels}
    return {label: slower for label, slower in found.items() if slower is not None}
