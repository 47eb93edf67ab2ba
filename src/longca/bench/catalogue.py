"""Which kernels a run is about: the asked-for ones, or all that can run here, and those of plugins.

Plugins are loaded by a worker, never by the run itself: importing one may do anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longca.bench.environment import file_version, kernel_versions
from longca.bench.suite import Limits
from longca.bench.supervisor import Gone, Worker
from longca.errors import BadInput
from longca.kernels import registry
from longca.kernels.base import No


@dataclass(frozen=True)
class Entry:
    """A kernel to measure. `failure` is (status, reason) where its plugin could not even be loaded."""

    label: str
    versions: dict[str, str]
    plugin: str | None = None
    failure: tuple[str, str] | None = None


@dataclass
class Catalogue:
    entries: dict[str, Entry] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # kernels that `all` does not cover here, and why

    def add(self, *entries: Entry) -> None:
        self.entries.update({entry.label: entry for entry in entries})

    @property
    def versions(self) -> dict[str, dict[str, str]]:
        return {label: entry.versions for label, entry in self.entries.items()}


def catalogue(asked: Sequence[str], plugins: Sequence[str], device: str, limits: Limits) -> Catalogue:
    offered, failed = _plugins(plugins, device, limits)
    found = Catalogue()
    for label in asked:
        name = label.partition(":")[0]
        if label == "all":
            _add_all(found, device)
        elif label in offered:
            found.add(offered[label])
        elif mine := [entry for entry in offered.values() if entry.label.partition(":")[0] == name and label == name]:
            found.add(*mine)
        elif failed and name not in registry.names():
            found.add(Entry(label, {}, failure=next(iter(failed.values())).failure))
        else:
            registry.get(label)  # refuses what nobody knows
            found.add(Entry(label, kernel_versions(label)))
    if "all" in asked:
        found.add(*offered.values(), *failed.values())
    return found


def _add_all(found: Catalogue, device: str) -> None:
    for name in registry.names():
        for label in registry.labels(name):
            answer = registry.available(registry.get(label), device)
            if isinstance(answer, No):
                found.left_out[label] = answer.reason
            else:
                found.add(Entry(label, kernel_versions(label)))


def _plugins(paths: Sequence[str], device: str, limits: Limits) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """The kernels of plugins by label, and an entry under the file's name for each plugin that fails."""
    offered: dict[str, Entry] = {}
    failed: dict[str, Entry] = {}
    for path in paths:
        if not Path(path).is_file():
            raise BadInput(f"there is no plugin file {path}; give the path of a Python file with a kernel in it.")
        versions = kernel_version_of(path)
        worker = Worker(limits, device, "", path)
        try:
            worker.wait_ready()
        except Gone as gone:
            failed[path] = Entry(Path(path).stem, versions, path, (gone.status, gone.reason))
        finally:
            worker.kill()
        offered |= {label: Entry(label, versions, path) for label in worker.labels}
    return offered, failed


def kernel_version_of(path: str) -> dict[str, str]:
    return {"torch": kernel_versions("torch")["torch"], **file_version(path)}
