"""Which kernels a run is about: the asked-for ones, or all that can run here, and those of plugins.

Plugins are loaded by a worker, never by the run itself: importing one may do anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from longca.bench.environment import kernel_versions, plugin_version
from longca.bench.plan import cells
from longca.bench.suite import Limits, Suite
from longca.bench.worker import Versions, Worker
from longca.errors import BadInput, unknown
from longca.kernels import registry
from longca.kernels.base import No
from longca.processes.lost import ChildLost

MINIATURE = 2048  # tokens: long enough for several documents and a window that hides something


@dataclass(frozen=True)
class Entry:
    """A kernel to measure. `failure` is (status, reason) where its plugin could not even be loaded."""

    label: str
    versions: dict[str, str]
    plugin: str | None = None
    failure: tuple[str, str] | None = None
    dense_only: bool = False  # it is there for the dense mask beside block patterns alone


@dataclass
class Catalogue:
    entries: dict[str, Entry] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # what is not measured here, and why: of `all`, and files that cannot be loaded
    plugins: tuple[str, ...] = ()  # files that every process loads, where entries do not say it

    def add(self, *entries: Entry) -> None:
        self.entries.update({entry.label: entry for entry in entries})

    @property
    def for_all_masks(self) -> list[str]:
        return [label for label, entry in self.entries.items() if not entry.dense_only]

    @property
    def versions(self) -> dict[str, dict[str, str]]:
        return {label: entry.versions for label, entry in self.entries.items()}


def catalogue(suite: Suite, plugins: Sequence[str], device: str, only_named: bool = False) -> Catalogue:
    """The kernels of a suite and, unless only named ones are wanted, all kernels of the plugins."""
    offered, failed = _plugins(plugins, device, suite.limits)
    found = Catalogue()
    for label in suite.kernels:
        if label == "all":
            _add_all(found, suite, device)
        else:
            found.add(_named(label, offered, failed))
    if not only_named:
        found.add(*offered.values(), *failed.values())
    for label, entry in failed.items():
        if label not in found.entries and entry.failure is not None:
            found.left_out[label] = entry.failure[1]
    _add_dense(found, suite, offered, failed)
    return found


def _add_dense(found: Catalogue, suite: Suite, offered: Mapping[str, Entry], failed: Mapping[str, Entry]) -> None:
    for label in suite.dense:
        if label not in found.entries:
            entry = _named(label, offered, failed)
            found.add(replace(entry, dense_only=True))


def _named(label: str, offered: Mapping[str, Entry], failed: Mapping[str, Entry]) -> Entry:
    if plugin := _of_plugin(label, offered, failed):
        return replace(plugin, label=label)
    if (name := label.partition(":")[0]) not in registry.names():
        raise unknown("kernel", name, _known(offered))
    registry.get(label)  # refuses a variant that nobody knows
    return Entry(label, kernel_versions(label))


def _known(offered: Mapping[str, Entry]) -> list[str]:
    return [*dict.fromkeys(label.partition(":")[0] for label in offered), *registry.names()]


def _of_plugin(label: str, offered: Mapping[str, Entry], failed: Mapping[str, Entry]) -> Entry | None:
    """The plugin's entry for a label; None: it is not a plugin's. A name that nobody offers and that is like no other may be one of a
    plugin that cannot be loaded: that is told by its record."""
    name, _, variant = label.partition(":")
    own = {known: entry for known, entry in offered.items() if known.partition(":")[0] == name}
    if own:
        if variant and label not in own:
            raise unknown(f"variant of {name}", variant, [known.partition(":")[2] for known in own if ":" in known])
        return own.get(label) or next(iter(own.values()))
    if not failed or name in registry.names():
        return None
    if entry := next((entry for entry in failed.values() if entry.label == name), None):
        return entry
    names = [*_known(offered), *(entry.label for entry in failed.values())]
    if get_close_matches(name, names, n=1, cutoff=0.5):
        raise unknown("kernel", name, names)
    return next(iter(failed.values()))


def _add_all(found: Catalogue, suite: Suite, device: str) -> None:
    for name in registry.names():
        for label in registry.labels(name):
            reason = "the suite leaves it out" if label in suite.without or name in suite.without else _obstacle(label, suite, device)
            if reason:
                found.left_out[label] = reason
            else:
                found.add(Entry(label, kernel_versions(label)))


def _obstacle(label: str, suite: Suite, device: str) -> str:
    """Why a kernel can do no cell of a suite: it is not installed, or refuses all of its masks in miniature. Empty: it can."""
    kernel = registry.get(label)
    answer = registry.available(kernel, device)
    if isinstance(answer, No):
        return answer.reason
    trial = suite.changed(seqlens=(str(MINIATURE),), passes=("fwd",), seeds=suite.seeds[:1], dense=())
    refusals = []
    for cell in cells(trial, [label], device):
        mask = cell.build_mask()
        try:
            answer = registry.supports(kernel, mask, cell.case(mask))
        except Exception:  # a kernel that cannot even answer is asked again by its worker, which records what it says
            return ""
        if not isinstance(answer, No):
            return ""
        refusals.append(answer.reason)
    return refusals[0]


def _plugins(paths: Sequence[str], device: str, limits: Limits) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """The kernels of plugins by label, and by path an entry for each plugin that cannot be loaded."""
    offered: dict[str, Entry] = {}
    failed: dict[str, Entry] = {}
    for path in paths:
        if not Path(path).is_file():
            raise BadInput(f"there is no plugin file {path}; give the path of a Python file with a kernel in it.")
        torch = {"torch": kernel_versions("torch")["torch"]}
        versions: Versions = {}
        try:
            with Worker(limits, device, "", path) as worker:
                versions = worker.wait_ready()
        except ChildLost as lost:
            taken = [*registry.names(), *(entry.label for entry in failed.values())]
            label = path if Path(path).stem in taken else Path(path).stem
            failed[path] = Entry(label, torch | plugin_version(path), path, (lost.status, lost.reason))
        offered |= {label: Entry(label, torch | own, path) for label, own in versions.items()}
    return offered, failed
