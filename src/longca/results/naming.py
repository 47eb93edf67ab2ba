"""What records are called beside each other: the mask with its parameters, the kernel with its variant, the setting they share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from longca import masks
from longca.results.reading import Results
from longca.results.record import Pass, Record
from longca.text import format_extras, format_shape

PLAIN_MASKS = ("full", "causal")  # without parameters: others equal them where a window or a block is as long as the sequence
_RATIO = re.compile(r" ratio=\S+")


class Setting(NamedTuple):
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
        parts = [self.device, self.level, format_shape(self._asdict()), self.dtype, *format_extras(self._asdict())]
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


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A record with its names."""

    record: Record
    setting: Setting
    problem: str  # the mask, with its parameters where there are several
    line: str  # the kernel with its variant; before it the method and its grid
    series: str  # the same without the grid: what is drawn over the number of ranks
    panel: str  # the mask, and over how many ranks: what has a card, a panel or a row of its own
    same: str | None  # a simpler mask that shows the same pairs at this length
    homes: tuple[int, ...] = ()  # numbers of the journals that hold it

    @property
    def family(self) -> str:
        """The mask without the share of visible blocks."""
        return _RATIO.sub("", self.problem)

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
    settings: dict[tuple[object, ...], Setting] = {}
    found = []
    for record, problem, kernel, same in zip(records, problems, kernels, simpler, strict=True):
        shape = (record.heads_q, record.heads_kv, record.head_dim, record.head_dim_v, record.dtype, record.deterministic)
        setting = Setting(results.environment(record).name, record.level.value, *shape, record.softcap, record.sinks, record.scale)
        setting = settings.setdefault(tuple(setting), setting)  # one object for many records
        line, series = _split_names(record, kernel)
        panel = f"{problem} ×{record.ranks}" if record.method else problem
        found.append(Row(record, setting, problem, line, series, panel, same, tuple(results.homes.get(record.key, ()))))
    return found


def _split_names(record: Record, kernel: str) -> tuple[str, str]:
    suffix = f", simulated on {record.simulated}" if record.simulated else ""
    if not record.method:
        return kernel + suffix, kernel + suffix
    return f"{record.method} {record.grid} {kernel}{suffix}", f"{record.method} {kernel}{suffix}"


def is_pattern(record: Record) -> bool:
    """Whether the mask is a block pattern."""
    return record.mask in masks.block_names()


def mask_title(record: Record) -> str:
    """The mask with its source and parameters. One pattern per KV head is not mentioned."""
    usual = ("heads", record.heads_kv)
    source = [] if record.pattern_source == "random" else [record.pattern_source]
    params = (f"{name}={value}" for name, value in record.params.items() if (name, value) != usual)
    return " ".join([record.mask, *source, *params])


def problem_names(records: Sequence[Record]) -> list[str]:
    """For each record the name of its mask. It holds the parameters of block patterns, and parameters of which one seed has several."""
    titles: dict[tuple[str, int, int], set[str]] = {}
    for record in records:
        titles.setdefault((record.mask, record.seqlen, record.seed), set()).add(mask_title(record))
    listed = {mask for (mask, _, _), several in titles.items() if len(several) > 1}
    return [mask_title(record) if is_pattern(record) or record.mask in listed else record.mask for record in records]


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
    for record in records:
        if record.variant and record.ok and len(ran[record.level, record.asked]) > 1:
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
    return (record.env, record.level, record.asked, record.method, record.grid, record.ranks, record.mask, _given(record), *shape, *extras)


def same_masks(records: Sequence[Record]) -> list[str | None]:
    """For each record the name of a simpler mask that shows the same pairs at that length, or None. A kernel that can do only the simpler
    one runs there, which says nothing about its own mask."""
    names: dict[tuple[int, str], dict[str, int]] = {}  # number of parameters by name
    for seqlen in {record.seqlen for record in records}:
        for name in PLAIN_MASKS:
            names.setdefault((seqlen, masks.build(name, seqlen).digest), {})[name] = -1
    for record in records:
        names.setdefault((record.seqlen, record.mask_digest), {}).setdefault(record.mask, len(record.params))
    simplest = {place: min(found, key=lambda name: (found[name], name)) for place, found in names.items()}
    answers = (simplest[record.seqlen, record.mask_digest] for record in records)
    return [None if name == record.mask else name for name, record in zip(answers, records, strict=True)]


def contests(named: Iterable[Row]) -> dict[Contest, list[Row]]:
    """Rows by what they can be compared on."""
    groups: dict[Contest, list[Row]] = {}
    for row in named:
        groups.setdefault(row.contest, []).append(row)
    return groups
