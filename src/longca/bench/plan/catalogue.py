"""Which kernels a run measures: the named ones, or all that can run here, and those of plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from longca.bench.plan.cells import make_cells
from longca.bench.plan.suite import Suite
from longca.bench.plan.versions import kernel_versions
from longca.errors import unknown
from longca.kernels import registry
from longca.kernels.base import Case, No
from longca.masks import AnyMask, own
from longca.results.problem import Pass
from longca.results.record import Outcome
from longca.results.settings import SAMPLE_LENGTH

Trial = tuple[AnyMask, Case]


@dataclass(frozen=True)
class Entry:
    """A kernel to measure. `failure` is the outcome of its cells where its plugin could not be loaded."""

    label: str
    versions: dict[str, str]
    plugin: str | None = None
    failure: Outcome | None = None
    dense_only: bool = False  # it runs only the dense mask beside block patterns


@dataclass
class Catalogue:
    """The kernels of a run, and what is left out of it."""

    entries: dict[str, Entry] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # kernels of `all` and plugin files that are not measured here, with the reason
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

    @property
    def plugin_kernels(self) -> list[str]:
        """The names of the user's own kernels."""
        return list(dict.fromkeys(label.partition(":")[0] for label, entry in self.entries.items() if entry.plugin is not None))

    @property
    def plugin_files(self) -> dict[str, list[str]]:
        """Plugin files as they were typed, with the kernels and masks of each; a file that every rank loads has no names."""
        files: dict[str, set[str]] = {path: set() for path in self.plugins}
        files |= {path: set(names) for path, names in own.files().items() if path not in files}
        for label, entry in self.entries.items():
            if entry.plugin is not None:
                files.setdefault(entry.plugin, set()).add(label.partition(":")[0])
        return {path: sorted(names) for path, names in files.items()}


@dataclass(frozen=True)
class Offered:
    """The kernels of plugins by label, and by path an entry for each plugin that cannot be loaded."""

    kernels: Mapping[str, Entry] = field(default_factory=dict)
    failed: Mapping[str, Entry] = field(default_factory=dict)


def make_catalogue(suite: Suite, offered: Offered, device: str, only_named: bool = False) -> Catalogue:
    """The kernels of a suite and, unless only named ones are wanted, all kernels of the plugins."""
    catalogue = Catalogue()
    for label in suite.kernels:
        if label == "all":
            _add_all(catalogue, suite, device)
        else:
            catalogue.add(_named(label, offered))
    if not only_named:
        catalogue.add(*offered.kernels.values(), *offered.failed.values())
    measured = {label.partition(":")[0] for label in catalogue.entries}
    for name in dict.fromkeys(label.partition(":")[0] for label in offered.kernels):
        if name not in measured:
            catalogue.left_out[name] = "--kernels does not name it"
    for label, entry in offered.failed.items():
        if label not in catalogue.entries and entry.failure is not None:
            catalogue.left_out[label] = entry.failure.reason
    for label in suite.dense:
        if label not in catalogue.entries:
            catalogue.add(replace(_named(label, offered), dense_only=True))
    return catalogue


def _named(label: str, offered: Offered) -> Entry:
    """The entry for a kernel that is asked for: a plugin's, or one of ours. An unknown name may be one of a plugin that cannot be loaded,
    whose records tell that."""
    name, _, variant = label.partition(":")
    own = {known: entry for known, entry in offered.kernels.items() if known.partition(":")[0] == name}
    if own:
        if variant and label not in own:
            raise unknown(f"variant of {name}", variant, [known.partition(":")[2] for known in own if ":" in known])
        return replace(own.get(label) or next(iter(own.values())), label=label)
    if name in registry.names():
        registry.get(label)  # refuses an unknown variant
        return Entry(label, kernel_versions(label))
    failed = sorted(offered.failed.values(), key=lambda entry: entry.label != name)
    if not failed:
        raise unknown("kernel", name, [*dict.fromkeys(known.partition(":")[0] for known in offered.kernels), *registry.names()])
    return replace(failed[0], label=label)


def _add_all(catalogue: Catalogue, suite: Suite, device: str) -> None:
    trials = _trials(suite, device)
    for name in registry.compared_names():
        for label in registry.labels(name):
            excluded = label in suite.without or name in suite.without
            reason = "the suite excludes it" if excluded else _obstacle(label, trials, device)
            if reason:
                catalogue.left_out[label] = reason
            else:
                catalogue.add(Entry(label, kernel_versions(label)))


def _obstacle(label: str, trials: Sequence[Trial], device: str) -> str:
    """Why a kernel can do no cell of a suite: it is not installed, or refuses all of these trials. Empty: it can."""
    kernel = registry.get(label)
    answer = registry.available(kernel, device)
    if isinstance(answer, No):
        return answer.reason
    refusals = []
    for mask, case in trials:
        try:
            answer = registry.supports(kernel, mask, case)
        except Exception:  # a kernel that cannot even answer is asked again by its worker, which records the error
            return ""
        if not isinstance(answer, No):
            return ""
        refusals.append(answer.reason)
    return refusals[0]


def _trials(suite: Suite, device: str) -> list[Trial]:
    """Returns the masks and cases of a suite at a short length, without and with the backward that it has: a kernel may take either alone.

    Block patterns are the slowest to make, so all kernels share them."""
    short = suite.changed(seqlens=(SAMPLE_LENGTH,), passes=(Pass.FWD,), seeds=suite.seed_list[:1], dense=())
    masks = [(cell, cell.problem.build_mask()) for cell in make_cells(short, [""], device)]
    backwards = sorted({False, any(pass_ is not Pass.FWD for pass_ in suite.passes)})
    return [(mask, replace(cell.case(mask), backward=backward)) for backward in backwards for cell, mask in masks]
