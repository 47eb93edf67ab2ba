"""What records are called beside each other: the mask with its parameters, the kernel with its variant, the setting they share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from longca import masks
from longca.results.reading import Results
from longca.results.record import Pass, Record
from longca.text import format_extras, format_shape

PLAIN_MASKS = ("full", "causal")  # without parameters: others equal them where a window or a block is as long as the sequence
Series = tuple[str, str, str | None]  # the method, its options, and the cluster that it was simulated on


class Setting(Struct, frozen=True, cache_hash=True):
    """What records must share to stand in one picture."""

    device: str
    level: str
    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int
    dtype: str
    deterministic: bool
    softcap: float = 0.0
    sinks: bool = False
    scale: float = 0.0

    @property
    def title(self) -> str:
        shape = asdict(self)
        parts = [self.device, self.level, format_shape(shape), self.dtype, *format_extras(shape)]
        parts += ["deterministic"] if self.deterministic else []
        return " · ".join(parts)


class Contest(NamedTuple):
    """What kernels are compared on: one mask, length and pass in one setting, on as many ranks, measured or simulated."""

    setting: Setting
    problem: str
    seqlen: int
    pass_: Pass
    ranks: int | None
    simulated: str | None


class Row(Struct, frozen=True, eq=False, gc=False):
    """A record with its names."""

    record: Record
    setting: Setting
    problem: str  # the mask, with its parameters where there are several
    line: str  # the kernel with its variant; before it the method, its grid and options
    series: str  # the same without the grid and the size of nodes: what is drawn over the number of ranks
    panel: str  # the mask, and over how many ranks: what has a card, a panel or a row of its own
    same: str | None  # a simpler mask that shows the same pairs at this length
    homes: tuple[int, ...] = ()  # numbers of the journals that hold it

    @property
    def family(self) -> str:
        """The mask without the share of visible blocks."""
        return self.problem.replace(f" ratio={self.ratio}", "")

    @property
    def is_pattern(self) -> bool:
        return is_pattern(self.record)

    @property
    def is_dense(self) -> bool:
        """Whether the mask is one that block patterns are compared with."""
        record = self.record
        return not self.is_pattern and record.method is None and record.mask in map(masks.dense_of, masks.SOURCES)

    @property
    def ratio(self) -> float | None:
        return self.record.params.get("ratio")

    @property
    def contest(self) -> Contest:
        record = self.record
        return Contest(self.setting, self.problem, record.seqlen, record.pass_, record.ranks, record.simulated)


def rows(results: Results) -> list[Row]:
    """All records with their names."""
    records = results.records
    simpler, problems, kernels = same_masks(records), problem_names(records), kernel_names(records)
    compared = _compared_nodes(records)
    named = []
    for record, problem, kernel, same in zip(records, problems, kernels, simpler, strict=True):
        line, series = _split_names(record, kernel, compared)
        panel = f"{problem} ×{record.ranks}" if record.method else problem
        setting = _setting(record, results.environment(record).name)
        named.append(Row(record, setting, problem, line, series, panel, same, results.homes.get(record.key, ())))
    return named


def _setting(record: Record, device: str) -> Setting:
    return Setting(
        device=device,
        level=record.level.value,
        heads_q=record.heads_q,
        heads_kv=record.heads_kv,
        head_dim=record.head_dim,
        head_dim_v=record.head_dim_v,
        dtype=record.dtype,
        deterministic=record.deterministic,
        softcap=record.softcap,
        sinks=record.sinks,
        scale=record.scale,
    )


def _split_names(record: Record, kernel: str, compared: Collection[Series]) -> tuple[str, str]:
    suffix = f", simulated on {record.simulated}" if record.simulated else ""
    if not record.method:
        return kernel + suffix, kernel + suffix
    options = record.options if _without_node(record) in compared else _without_node(record)[1]
    series = f"{record.method} {options}" if options else record.method
    return f"{record.split_name} {kernel}{suffix}", f"{series} {kernel}{suffix}"


def _without_node(record: Record) -> Series:
    """Returns the method and its options without `node`: more ranks than one node has are on several, and that alone is no other method."""
    options = [option for option in (record.options or "").split(",") if not option.startswith("node=")]
    return record.method or "", ",".join(options), record.simulated


def _compared_nodes(records: Iterable[Record]) -> set[Series]:
    """Returns what was measured on one number of ranks with several values of `node`, which names must tell apart."""
    nodes: dict[tuple[Series, int | None], set[str]] = {}
    for record in records:
        if record.method:
            nodes.setdefault((_without_node(record), record.ranks), set()).add(record.options or "")
    return {series for (series, _), several in nodes.items() if len(several) > 1}


def is_pattern(record: Record) -> bool:
    """Whether the mask is a block pattern."""
    return masks.has_blocks(record.mask)


def mask_title(record: Record) -> str:
    """The mask with its source and parameters. One pattern per KV head is not mentioned."""
    title = record.mask if record.pattern_source == "random" else f"{record.mask} {record.source}"
    for name, value in record.params.items():
        if (name, value) != ("heads", record.heads_kv):
            title += f" {name}={value}"
    return title


def problem_names(records: Sequence[Record]) -> list[str]:
    """For each record the name of its mask. It holds the parameters of block patterns, parameters of which one seed has several, and how
    documents were drawn where that differs: they are no other seeds of the same documents."""
    titles = list(map(mask_title, records))
    by_seed: dict[tuple[str, int, int], str] = {}
    listed = set(masks.block_names())
    for record, title in zip(records, titles, strict=True):
        if by_seed.setdefault((record.mask, record.seqlen, record.seed), title) != title:
            listed.add(record.mask)
    names = [title if record.mask in listed else record.mask for record, title in zip(records, titles, strict=True)]
    drawn = [_documents(record) for record in records]
    kinds: dict[str, set[str]] = {}
    for record, kind in zip(records, drawn, strict=True):
        kinds.setdefault(record.mask, set()).add(kind)
    several = {mask for mask, own in kinds.items() if len(own) > 1}
    return [name + kind if record.mask in several else name for record, name, kind in zip(records, names, drawn, strict=True)]


def _documents(record: Record) -> str:
    """How its documents were drawn, as far as that was asked for."""
    given = record.given
    words = given.distribution, given.packing, "own documents" if given.documents else ""
    return "".join(f" {word}" for word in words if word)


def kernel_names(records: Sequence[Record]) -> list[str]:
    """For each record its kernel with the variant that ran.

    Where one request took several variants at one place (other seeds, other passes), all its records there keep the requested name. A
    record that failed before a variant was chosen belongs to the only variant that the same request led to elsewhere.
    """
    ran: dict[tuple[str, str], set[str]] = {}
    for record in records:
        if record.variant and record.ok:
            ran.setdefault((record.level, record.asked), set()).add(record.label)
    here: dict[tuple[object, ...], set[str]] = {}
    several = {request for request, labels in ran.items() if len(labels) > 1}
    for record in records if several else ():
        if record.variant and record.ok and (record.level, record.asked) in several:
            here.setdefault(_place(record), set()).add(record.label)
    names = []
    for record in records:
        variants = ran.get((record.level, record.asked), ())
        if len(variants) > 1 and len(here.get(_place(record), ())) > 1:
            names.append(record.asked)
        else:
            names.append(next(iter(variants)) if record.variant is None and len(variants) == 1 else record.label)
    return names


def _given(record: Record) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(record.given.params.items()))


def _place(record: Record) -> tuple[object, ...]:
    shape = (record.seqlen, record.heads_q, record.heads_kv, record.head_dim, record.head_dim_v, record.dtype, record.deterministic)
    extras = (record.softcap, record.sinks, record.scale)
    return (record.env, record.level, record.asked, record.split_name, record.ranks, record.mask, _given(record), *shape, *extras)


def same_masks(records: Sequence[Record]) -> list[str | None]:
    """For each record the name of a simpler mask that shows the same pairs at that length, or None. A kernel that can do only the simpler
    one runs there, which says nothing about its own mask."""
    names: dict[tuple[int, str], dict[str, int]] = {}  # number of parameters by name
    for seqlen in {record.seqlen for record in records}:
        for name in PLAIN_MASKS:
            names.setdefault((seqlen, masks.build(name, seqlen).digest), {})[name] = -1
    for record in records:
        names.setdefault((record.seqlen, record.mask_digest), {}).setdefault(record.mask, len(record.params))
    simplest = {place: min(own, key=lambda name: (own[name], name)) for place, own in names.items()}
    same = [simplest[record.seqlen, record.mask_digest] for record in records]
    return [None if name == record.mask else name for name, record in zip(same, records, strict=True)]


def contests(named: Iterable[Row]) -> dict[Contest, list[Row]]:
    """Rows by what they can be compared on."""
    groups: dict[Contest, list[Row]] = {}
    for row in named:
        groups.setdefault(row.contest, []).append(row)
    return groups


def cluster_name(cluster: str) -> str:
    """Returns the name that simulated records have for a cluster: of a file, its name without folder and ending."""
    return Path(cluster).stem if cluster.endswith(".toml") or "/" in cluster else cluster
