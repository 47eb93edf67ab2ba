"""A cluster as a TOML file describes it: devices, links, and what an operation costs on them."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from longca.bench.plan.suite import convert, folder, names, read_toml
from longca.errors import BadInput, unknown

Positive = Annotated[float, Meta(gt=0, le=1e12)]
NotNegative = Annotated[float, Meta(ge=0, le=1e12)]
Share = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=1 << 20)]
DENSE, DOCUMENTS = ("full", "causal"), ("full_document", "causal_document")  # kinds of masks that were compared
SHAPE = (64, 8, 128, 128)  # heads and head sizes of the published figures
_RANKS = re.compile(r"\d+(-\d+)?")


class Algorithm(StrEnum):
    """How a collective moves its bytes."""

    DIRECT = "direct"  # every rank sends each message to its receiver
    RING = "ring"  # every rank passes everything on to its neighbour; bytes that leave a node are spread over all its adapters
    HIERARCHICAL = "hierarchical"  # as direct, but what leaves a node goes through the links inside it at both ends too


class Compute(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What attention and memory cost on one device. `forward_tflops` and `backward_tflops` count whole tiles of 128 x 128, or
    all pairs of a call where no tile is skipped."""

    forward_tflops: Positive
    backward_tflops: Positive
    memory_gb_s: Positive  # that operations on memory reach
    host_us: NotNegative  # of the host for each operation, post and wait
    launch_us: NotNegative = 0.0  # of the device for each operation
    half_rows: NotNegative = 0.0  # rows of a call at which it reaches half the speed of long ones
    skips_tiles: bool = True  # false: attention computes every pair of a call's rows and keys, as torch:chunked does


class Links(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Links of one kind, as every device has them: GB/s in each direction on paper, the share that is reached, latency of a message."""

    gb_s: Positive
    efficiency: Share = 1.0
    latency_us: NotNegative = 0.0

    @property
    def bytes_s(self) -> float:
        return self.gb_s * 1e9 * self.efficiency


class Operations(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The algorithm of each operation that a program posts."""

    exchange: Algorithm = Algorithm.DIRECT
    all_to_all: Algorithm = Algorithm.DIRECT
    all_gather: Algorithm = Algorithm.RING
    reduce_scatter: Algorithm = Algorithm.RING

    def of(self, operation: str) -> Algorithm:
        return getattr(self, operation, Algorithm.DIRECT)


class Efficiency(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The share of a link that a single message of an operation can take, beside the links' own efficiency."""

    exchange: Share = 1.0
    all_to_all: Share = 1.0
    all_gather: Share = 1.0
    reduce_scatter: Share = 1.0

    def of(self, operation: str) -> float:
        return getattr(self, operation, 1.0)


class Cluster(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Nodes of equal devices. Devices of a node reach each other by `inside`, all others by `between`."""

    about: str
    device: str
    memory_gib: Positive
    per_node: Count
    compute: Compute
    inside: Links
    between: Links
    operations: Operations = Operations()
    efficiency: Efficiency = Efficiency()
    wait_holds_host: bool = False  # gloo: a wait stops the host, not only the stream of the device
    cores: NotNegative = 0.0  # of a node, shared by all its ranks; 0: every rank has a device of its own
    slow: dict[str, Positive] = {}  # ranks ("3", or "8-15") whose compute takes so many times as long
    compared: str = ""  # a sentence on what predictions were compared with, where that gives no error of whole times
    source: str = ""  # where the constants come from

    def __post_init__(self) -> None:
        for ranks in self.slow:
            if not _RANKS.fullmatch(ranks):
                raise ValueError(f"slow has {ranks!r}, which must be a rank such as 3, or ranks such as 8-15")

    def slowness(self, rank: int) -> float:
        """Returns the factor by which compute on a rank is slower."""
        factor = 1.0
        for text, times in self.slow.items():
            first, _, last = text.partition("-")
            if int(first) <= rank <= int(last or first):
                factor *= times
        return factor

    def node(self, rank: int) -> int:
        return rank // self.per_node


def find(name: str) -> tuple[str, Cluster]:
    """A cluster of the package by name, or a user's file by path; with the name that records carry, of a file its name without ending."""
    if name in names("clusters"):
        return name, read_toml(folder("clusters") / f"{name}.toml", Cluster)
    if name.endswith(".toml") or "/" in name:
        return Path(name).stem, read_toml(Path(name), Cluster)
    raise unknown("cluster", name, names("clusters"), listed=True)


def changed(cluster: Cluster, settings: dict[str, float]) -> Cluster:
    """The cluster with other constants, such as {"between.gb_s": 100}."""
    values = msgspec.to_builtins(cluster)
    for name, value in settings.items():
        *tables, last = str(name).split(".")
        table = values
        for part in tables:
            table = table.get(part, {}) if isinstance(table, dict) else {}
        if not isinstance(table, dict) or last not in table:
            raise BadInput(f"{name} is no constant of a cluster; write one such as between.gb_s or compute.host_us.")
        table[last] = int(value) if isinstance(value, int) or value.is_integer() else value
    return convert(values, Cluster, "the cluster with these constants")


def constant(cluster: Cluster, name: str) -> float:
    """The value of a constant by its name, such as between.gb_s."""
    value: Any = cluster
    for part in name.split("."):
        value = getattr(value, part)
    return float(value)


def to_toml(cluster: Cluster) -> str:
    """The cluster as a file."""
    values = msgspec.to_builtins(cluster)
    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    lines = [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in values.items() if name not in tables]
    for name, table in tables.items():
        if table:
            lines += ["", f"[{name}]", *(f"{_key(key)} = {msgspec.json.encode(value).decode()}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if name.isidentifier() else f'"{name}"'
