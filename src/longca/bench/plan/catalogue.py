"""Which kernels a run measures: the named ones, or all that can run here, and those of plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from msgspec.structs import replace as change

from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import kept_by_problem, make_cells
from longca.bench.plan.suite import Suite
from longca.bench.plan.versions import kernel_versions
from longca.errors import unknown
from longca.kernels import registry
from longca.kernels.base import No, Yes
from longca.masks import AnyMask, own
from longca.results.problem import Pass, Problem
from longca.results.settings import SAMPLE_LENGTH

EVERY = ":*"  # behind the name of a kernel: all its variants


@dataclass(frozen=True)
class Entry:
    """A kernel to measure."""

    label: str
    versions: dict[str, str]
    plugin: str | None = None
    dense_only: bool = False  # it runs only the dense mask beside block patterns
    dtypes: tuple[str, ...] = ()  # that it declares; empty: any
    head_dims: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Without the variant."""
        return self.label.partition(":")[0]


@dataclass
class Catalogue:
    """The kernels of a run, and what is left out of it."""

    entries: dict[str, Entry] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # kernels that are not measured here, with the reason
    plugins: tuple[str, ...] = ()  # files that every rank loads
    methods: dict[str, dict[str, str]] = field(default_factory=dict)  # versions by method

    def add(self, *entries: Entry) -> None:
        self.entries.update({entry.label: entry for entry in entries})

    @property
    def for_all_masks(self) -> list[str]:
        return [label for label, entry in self.entries.items() if not entry.dense_only]

    @property
    def versions(self) -> dict[str, dict[str, str]]:
        """By kernel label, and by method."""
        return {label: entry.versions for label, entry in self.entries.items()} | self.methods

    def declared(self, name: str, usual: Sequence[str]) -> tuple[str, ...]:
        """The usual dtypes or head sizes that some kernel takes, and one of each kernel that takes none of these."""
        limits = [list(map(str, getattr(entry, name))) for entry in self.entries.values()]
        taken = [value for value in usual if any(not own or value in own for own in limits)]
        return tuple(dict.fromkeys([*taken, *(own[0] for own in limits if own and not set(own) & set(usual))]))

    @property
    def plugin_kernels(self) -> list[str]:
        """The names of the user's own kernels."""
        return list(dict.fromkeys(entry.name for entry in self.entries.values() if entry.plugin is not None))

    @property
    def plugin_files(self) -> dict[str, list[str]]:
        """Plugin files as they were typed, with the kernels and masks of each; a file that every rank loads has no names."""
        files: dict[str, set[str]] = {path: set() for path in self.plugins}
        files |= {path: set(names) for path, names in own.files().items() if path not in files}
        for entry in self.entries.values():
            if entry.plugin is not None:
                files.setdefault(entry.plugin, set()).add(entry.name)
        return {path: sorted(names) for path, names in files.items()}


def make_catalogue(suite: Suite, offered: Mapping[str, Entry], device: str, only_named: bool = False) -> Catalogue:
    """The kernels of a suite and, unless only named ones are wanted, all that plugins offer (by label)."""
    catalogue = Catalogue()
    for label in suite.kernels:
        if label == "all":
            _add_all(catalogue, suite, device)
        elif label.endswith(EVERY):
            catalogue.add(*(_named(each, offered) for each in _variants(label.removesuffix(EVERY), offered)))
        else:
            catalogue.add(_named(label, offered))
    if not only_named:
        catalogue.add(*offered.values())
    measured = {entry.name for entry in catalogue.entries.values()}
    catalogue.left_out |= {entry.name: "--kernels does not name it" for entry in offered.values() if entry.name not in measured}
    for label in suite.dense:
        if label not in catalogue.entries:
            catalogue.add(replace(_named(label, offered), dense_only=True))
    return catalogue


def _variants(name: str, offered: Mapping[str, Entry]) -> list[str]:
    """The labels of all variants of a kernel."""
    return [label for label, entry in offered.items() if entry.name == name] or registry.labels(_named(name, offered).name)


def _named(label: str, offered: Mapping[str, Entry]) -> Entry:
    """The entry for a kernel that is asked for: a plugin's, or one of ours."""
    name, _, variant = label.partition(":")
    own = {known: entry for known, entry in offered.items() if entry.name == name}
    if own:
        if variant and label not in own:
            raise unknown(f"variant of {name}", variant, [known.partition(":")[2] for known in own if ":" in known])
        return replace(own.get(label) or next(iter(own.values())), label=label)
    if name not in registry.names():
        raise unknown("kernel", name, [*dict.fromkeys(entry.name for entry in offered.values()), *registry.names()])
    return entry_of(label)


def entry_of(label: str, plugin: str | None = None) -> Entry:
    """The entry of a kernel of the registry."""
    kernel = registry.get(label)
    return Entry(label, kernel_versions(label), plugin, dtypes=tuple(kernel.dtypes), head_dims=tuple(kernel.head_dims))


def _add_all(catalogue: Catalogue, suite: Suite, device: str) -> None:
    """Adds every kernel that can do some cell of the suite at a short length, without or with the backward that the suite has."""
    short = suite.changed(seqlens=(SAMPLE_LENGTH,), passes=(Pass.FWD,), seeds=suite.seed_list[:1], dense=())
    grads = sorted({False, any(pass_ is not Pass.FWD for pass_ in suite.passes)})
    samples = [change(cell, grad=grad) for grad in grads for cell in make_cells(short, [""], device)]
    for name in registry.compared_names():
        for label in registry.labels(name):
            excluded = label in suite.without or name in suite.without
            if reason := "the suite excludes it" if excluded else _obstacle(label, samples, device):
                catalogue.left_out[label] = reason
            else:
                catalogue.add(Entry(label, kernel_versions(label)))


def _obstacle(label: str, samples: list[Cell], device: str) -> str:
    """Why a kernel can do none of these cells: it is not available here, or refuses all of them. Empty: it can."""
    answer = registry.available(registry.get(label), device)
    if isinstance(answer, No):
        return answer.reason
    refusals = [answer_of(change(sample, kernel=label)) for sample in samples]
    return refusals[0].reason if all(isinstance(refusal, No) for refusal in refusals) and isinstance(refusals[0], No) else ""


@lru_cache(maxsize=4096)
def answer_of(sample: Cell) -> Yes | No:
    """What a kernel of the registry says to a short cell: the first Yes of the ways that its name may stand for, or the first No. A kernel
    that cannot answer is asked again by its worker, which records the error."""
    try:
        mask = _sample_mask(sample.problem)
        answers = [registry.supports(kernel, mask, sample.case(mask)) for kernel in registry.choices(sample.kernel)]
    except Exception:
        return Yes()
    return next((answer for answer in answers if isinstance(answer, Yes)), answers[0])


@kept_by_problem(64)  # block patterns are the slowest to make, so all kernels share them
def _sample_mask(problem: Problem) -> AnyMask:
    return problem.build_mask()
