"""What records are called beside each other: the mask with its parameters, the kernel with its variant, the setting they share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from longca import masks
from longca.results.problem import Operator, Pass
from longca.results.reading import Results
from longca.results.record import LevelName, Record

PLAIN_MASKS = ("full", "causal")  # without parameters: others equal them where a window or a block is as long as the sequence


class Setting(Struct, frozen=True, cache_hash=True):
    """What records must share to stand in one picture."""

    device: str
    level: str
    operator: Operator

    @property
    def title(self) -> str:
        return f"{self.device} · {self.level} · {self.operator.title}"


class Contest(NamedTuple):
    """What kernels are compared on: one mask, length and pass in one setting, on as many ranks, measured or simulated."""

    setting: Setting
    mask_name: str
    seqlen: int
    pass_: Pass
    ranks: int
    simulated: str | None

    @property
    def is_split(self) -> bool:
        """Whether methods of context parallelism are compared."""
        return self.setting.level == LevelName.CP

    @property
    def title(self) -> str:
        """The pass and the setting, with the ranks where they are several, and the cluster."""
        ranks = f", {self.ranks} ranks, each" if self.ranks > 1 else ""
        return f"{self.pass_}, {self.setting.title}{ranks}{simulated_on(self.simulated)}"


class Row(Struct, frozen=True, eq=False, gc=False):
    """A record with its names, and with what views ask of it again and again."""

    record: Record
    contest: Contest
    mask_name: str  # the mask, with its parameters where there are several
    line: str  # the kernel with its variant; before it the method, its grid and options
    series: str  # the same without the grid and the size of nodes: what is drawn over the number of ranks
    base: str  # the series without the cluster that it was simulated on: both have one colour
    panel: str  # the mask, and over how many ranks: what has a card, a panel or a row of its own
    same: str | None  # a simpler mask that shows the same pairs at this length
    is_pattern: bool
    dense: Contest | None  # of block patterns, and of the masks that they are a part of: this mask, on whatever level
    ratio: float | None  # the share of visible blocks
    family: str  # the mask without it


def rows(results: Results) -> list[Row]:
    """All records with their names."""
    records = results.records
    simpler, names, kernels = same_masks(records), mask_names(records), kernel_names(records)
    dense = {source: masks.dense_of(source) for source in masks.SOURCES}
    named = []
    for record, name, kernel, same in zip(records, names, kernels, simpler, strict=True):
        suffix = simulated_on(record.simulated)
        line, base = _split_names(record, kernel)
        problem, split = record.problem, record.split
        panel = f"{name} ×{problem.ranks}" if split else name
        setting = Setting(_device(record, results.environment(record).name), record.level.value, problem.operator)
        contest = Contest(setting, name, problem.seqlen, problem.pass_, problem.ranks, record.simulated)
        is_pattern = problem.is_pattern
        whole = dense.get(problem.source) if is_pattern else problem.mask if split is None and problem.mask in dense.values() else None
        beside = contest._replace(setting=replace(setting, level=""), mask_name=whole) if whole else None
        ratio = record.built.params.get("ratio")
        family = name if ratio is None else name.replace(f" ratio={ratio}", "")
        named.append(Row(record, contest, name, line + suffix, base + suffix, base, panel, same, is_pattern, beside, ratio, family))
    return named


def _device(record: Record, name: str) -> str:
    """The name of the device; one that ranks share is another device."""
    return f"{name} ({record.problem.sharing})" if record.problem.sharing else name


def _split_names(record: Record, kernel: str) -> tuple[str, str]:
    """The line and the series, without the cluster. More ranks than one node has are on several: that alone is no other method."""
    if not record.split:
        return kernel, kernel
    options = [option for option in record.split.options.split(",") if option and not option.startswith("node=")]
    return f"{record.split_name} {kernel}", " ".join([record.split.method, *([",".join(options)] if options else []), kernel])


def simulated_on(cluster: str | None) -> str:
    """What the names of simulated lines end with."""
    return f", simulated on {cluster}" if cluster else ""


def mask_title(record: Record) -> str:
    """The mask with its source and parameters. One pattern per KV head is not mentioned."""
    title = record.problem.mask if record.problem.source == "random" else f"{record.problem.mask} {record.problem.source}"
    for name, value in record.built.params.items():
        if (name, value) != ("heads", record.problem.heads_kv):
            title += f" {name}={value}"
    return title


def mask_names(records: Sequence[Record]) -> list[str]:
    """For each record the name of its mask. It holds the parameters of block patterns, parameters of which one seed has several, and how
    documents were drawn where that differs: they are no other seeds of the same documents."""
    titles, drawn = [mask_title(record) for record in records], [record.problem.documents_title for record in records]
    by_seed, by_mask = defaultdict[tuple[str, int, int], set[str]](set), defaultdict[str, set[str]](set)
    for record, title, documents in zip(records, titles, drawn, strict=True):
        by_seed[record.problem.mask, record.problem.seqlen, record.problem.seed].add(title)
        by_mask[record.problem.mask].add(documents)
    listed = {*masks.block_names(), *(mask for (mask, _, _), several in by_seed.items() if len(several) > 1)}
    names = [title if record.problem.mask in listed else record.problem.mask for record, title in zip(records, titles, strict=True)]
    return [
        name + documents if len(by_mask[record.problem.mask]) > 1 else name
        for record, name, documents in zip(records, names, drawn, strict=True)
    ]


def kernel_names(records: Sequence[Record]) -> list[str]:
    """For each record its kernel with the variant that ran.

    Where one request took several variants at one place (other seeds, other passes), all its records there keep the requested name. A
    record that failed before a variant was chosen belongs to the only variant that the same request led to elsewhere.
    """
    ran, here = defaultdict[tuple[str, str], set[str]](set), defaultdict[tuple[object, ...], set[str]](set)
    for record in records:
        if record.variant and record.ok:
            ran[record.level, record.asked].add(record.label)
            here[_place(record)].add(record.label)
    names = []
    for record in records:
        variants = ran[record.level, record.asked]
        only = next(iter(variants)) if record.variant is None and len(variants) == 1 else record.label
        names.append(record.asked if len(here[_place(record)]) > 1 else only)
    return names


def _place(record: Record) -> tuple[object, ...]:
    problem = replace(record.problem, seed=0, pass_=Pass.BOTH, documents=None, distribution=None, packing=None)
    return record.env, record.level, record.asked, record.split, problem


def same_masks(records: Sequence[Record]) -> list[str | None]:
    """For each record the name of a simpler mask that shows the same pairs at that length, or None. A kernel that can do only the simpler
    one runs there, which says nothing about its own mask."""
    names: dict[tuple[int, str], dict[str, int]] = {}  # number of parameters by name
    for seqlen in {record.problem.seqlen for record in records}:
        for name in PLAIN_MASKS:
            names.setdefault((seqlen, masks.build(name, seqlen).digest), {})[name] = -1
    for record in records:
        names.setdefault((record.problem.seqlen, record.built.digest), {}).setdefault(record.problem.mask, len(record.built.params))
    simplest = {place: min(own, key=lambda name: (own[name], name)) for place, own in names.items()}
    same = [simplest[record.problem.seqlen, record.built.digest] for record in records]
    return [None if name == record.problem.mask else name for name, record in zip(same, records, strict=True)]


def simpler_mask(rows: Iterable[Row]) -> str | None:
    """The simpler mask that all of these rows show; None where one does not, as with the documents of another seed."""
    names = {row.same for row in rows}
    return names.pop() if len(names) == 1 else None
