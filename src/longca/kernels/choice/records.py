"""What records say: by device, class and pass, how much slower each kernel is than the fastest.

This room reads no journals. `measured.json.gz` is made from the shipped journals by `tools/choices.py`; `longca tune` writes a table of the
same kind beside its own journal, in the user's cache folder.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import msgspec

from longca.kernels import registry
from longca.kernels.base import Kernel
from longca.kernels.choice.classes import ShapeClass

SHIPPED = Path(__file__).parent / "measured.json.gz"
CACHE = "LONGCA_CACHE"  # the environment variable that moves the user's cache folder


class KernelRatio(msgspec.Struct, frozen=True, array_like=True):
    """One kernel in one pass: its time over that of the fastest (None: it failed), and the versions that it was measured with ("": not
    recorded)."""

    slower: float | None
    versions: list[str]


class ClassRecords(msgspec.Struct, frozen=True, array_like=True):
    """The records of one class and pass on one device; `points` are the masks and lengths that they are of."""

    device: str
    mask: str
    seqlen: int
    heads: str
    head_dim: str
    dtype: str
    pass_: str
    softcap: bool
    sinks: bool
    points: int = 1
    journals: list[str] = []
    kernels: dict[str, KernelRatio] = {}


@cache
def shipped() -> list[ClassRecords]:
    return msgspec.json.decode(gzip.decompress(SHIPPED.read_bytes()), type=list[ClassRecords])


def tuned_folder() -> Path:
    """Returns the folder of the journal that `longca tune` writes: below $LONGCA_CACHE, else below the user's cache folder."""
    own = os.environ.get(CACHE)
    home = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "longca"
    return home.expanduser() / "tuned"


def tuned_file() -> Path:
    return tuned_folder() / "choices.json"


def tuned() -> list[ClassRecords]:
    """Returns the entries of `longca tune`; none where there is no file that can be read."""
    try:
        return _decoded(tuned_file().read_bytes())
    except OSError:
        return []


@cache
def _decoded(contents: bytes) -> list[ClassRecords]:
    try:
        return msgspec.json.decode(contents, type=list[ClassRecords])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []


def devices() -> list[str]:
    """Returns the devices that there are records of."""
    return sorted({entry.device for entry in (*tuned(), *shipped())})


def versions_hash(versions: Mapping[str, str]) -> str:
    """Returns a short hash of what a kernel was, or is to be, measured with."""
    text = "\n".join(f"{name} {number}" for name, number in sorted(versions.items()))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def installed_versions(kernel: Kernel) -> str:
    """Returns the hash of the versions that this kernel has here, torch included."""
    return _installed(type(kernel), kernel.variant)


@cache
def _installed(kind: type[Kernel], variant: str) -> str:
    return versions_hash({"torch": version("torch")} | registry.versions(kind(variant)))


@dataclass(frozen=True)
class Evidence:
    """The entries of one pass that are of a class or near it, nearest first. `tuned` says that the first is of the class itself and was
    measured by `longca tune`."""

    entries: Sequence[ClassRecords] = ()
    tuned: bool = False

    def slower(self, label: str) -> float | None:
        """Returns a kernel's time over that of the fastest, from the nearest entry that has it; None where none has, or where it failed."""
        return next((entry.kernels[label].slower for entry in self.entries if label in entry.kernels), None)

    def is_current(self, kernels: Sequence[Kernel]) -> bool:
        """Whether `longca tune` measured these kernels for this class in the versions that are installed."""
        known = self.entries[0].kernels if self.tuned else {}
        return bool(known) and all(k.label in known and known[k.label].versions == [installed_versions(k)] for k in kernels)


def evidence(device: str, wanted: ShapeClass, pass_: str) -> Evidence:
    """Returns the records near a class: of that kind of mask, head size and dtype, on that device."""
    if wanted.deterministic or wanted.seqlen_q != wanted.seqlen_k or not wanted.seqlen_q:
        return Evidence()
    own = tuned()
    near = [entry for entry in (*own, *shipped()) if entry.device == device and entry.pass_ == pass_ and _is_alike(entry, wanted)]
    near.sort(key=lambda entry: _distance(entry, wanted))  # own ones stay before shipped ones of the same distance
    return Evidence(near, bool(near) and near[0] in own and _distance(near[0], wanted) == 0)


def _is_alike(entry: ClassRecords, wanted: ShapeClass) -> bool:
    same_kind = entry.mask.partition(", 1/")[0] == wanted.mask.partition(", 1/")[0]
    shape = entry.head_dim, entry.dtype, entry.softcap, entry.sinks
    return same_kind and shape == (wanted.head_dim, wanted.dtype, wanted.softcap, wanted.sinks)


def _distance(entry: ClassRecords, wanted: ShapeClass) -> float:
    """Returns how many doublings of length, density and query heads per KV head are between them."""
    density = abs(_halvings(entry.mask) - _halvings(wanted.mask))
    heads = abs(math.log2(_group(entry.heads) / _group(wanted.heads))) + 0.5 * (entry.heads != wanted.heads)
    return abs(math.log2(entry.seqlen / wanted.seqlen_q)) + density + 2 * heads


def _halvings(mask: str) -> float:
    return math.log2(int(mask.partition(", 1/")[2] or 1))


def _group(heads: str) -> float:
    heads_q, heads_kv = map(int, heads.split(":"))
    return heads_q / heads_kv
