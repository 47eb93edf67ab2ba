"""One kernel as `longca.ab` and `longca.profile` take it: a name, a file, a file at a git revision, or a Python object."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from longca import devices
from longca.api.masks import name_masks
from longca.api.request import RunRequest, resolve, usable_device
from longca.bench.one_device import workers as one_device
from longca.bench.one_device.in_process import InProcess
from longca.bench.one_device.level import offered_by
from longca.bench.one_device.messages import WorkerJob
from longca.bench.one_device.workers import Start, Workers
from longca.bench.plan.catalogue import make_catalogue
from longca.bench.plan.cells import make_cells, plan
from longca.bench.plan.jobs import Job, make_jobs
from longca.bench.plan.request import Request, Texts
from longca.bench.plan.suite import Suite
from longca.errors import BadInput, unknown
from longca.kernels import registry
from longca.kernels.base import Kernel

FILE = re.compile(r"(?:(?P<revision>[^:]+):)?(?P<file>[^:]+\.py)(?::(?P<kernel>.+))?")
ARCHIVE_S = 60.0
OWN = ("threshold", "out", "progress")  # fields that `run` has too, with another meaning


@dataclass(frozen=True)
class Side:
    """A kernel: its name, or the file that has it, as it is or as it was at a revision; or an object."""

    title: str
    kernel: str = ""  # empty: the one that the file has
    file: Path | None = None
    revision: str = ""
    value: Kernel | type[Kernel] | None = None

    def checked_out(self, folder: Path) -> str | None:
        """The path of the file; of a revision, it is in this folder, with what was beside it."""
        if self.file is None or not self.revision:
            return None if self.file is None else str(self.file)
        home, name = self.file.resolve().parent, self.file.name
        if _git(home, "rev-parse", "--verify", "--quiet", f"{self.revision}^{{commit}}") is None:
            if _git(home, "rev-parse", "--git-dir") is None:
                raise BadInput(f"{self.file} is not in a git repository, so it has no revision {self.revision!r}; give a file.")
            raise BadInput(f"{self.revision!r} is not a revision of the git repository of {self.file}; `git log` lists them.")
        packed = _git(home, "archive", "--format=tar", self.revision) or b""
        folder.mkdir()
        with suppress(tarfile.ReadError), tarfile.open(fileobj=io.BytesIO(packed)) as members:
            members.extractall(folder, filter="data")
        if not (folder / name).is_file():
            raise BadInput(f"there is no {self.file} in the revision {self.revision}; give a file that git has there.")
        return str(folder / name)


def sides(old: Any, new: Any) -> tuple[Side, Side]:
    """The two sides. A text that is neither a kernel nor a file is a revision of the file of the other side."""
    a, b = _side(old), _side(new)
    return _resolved(a, b), _resolved(b, a)


def one(given: Any) -> Side:
    """A single kernel."""
    return _resolved(_side(given), "")


def _resolved(side: Side | str, other: Side | str) -> Side:
    if isinstance(side, Side):
        return side
    if isinstance(other, Side) and other.file is not None and not other.revision:
        return Side(f"{side}:{other.file}", other.kernel, other.file, side)
    raise unknown("kernel", side, registry.names())


def _side(given: Any) -> Side | str:
    """A side; a text that may be a revision stays a text."""
    if isinstance(given, PathLike):
        return Side(fspath(given), file=Path(given))
    if not isinstance(given, str):
        registry.refuse_no_kernel(given)
        return Side(registry.label_of(given), registry.label_of(given), value=given)
    if parts := FILE.fullmatch(given):
        return Side(given, parts["kernel"] or "", Path(parts["file"]), parts["revision"] or "")
    return Side(given, given) if given.partition(":")[0] in registry.names() else given


def suite_of(request: Request, masks: Any, seqlens: Texts | None, folder: Path) -> tuple[Suite, str]:
    """What to time, as a suite without kernels, and the device; Mask objects are written into the folder."""
    named = name_masks(masks, seqlens, folder)
    shared = {field.name: getattr(request, field.name) for field in fields(RunRequest) if hasattr(request, field.name)}
    shared |= {"masks": named.masks, "seqlens": named.seqlens, "kernels": "torch"}
    plain = RunRequest(**{name: value for name, value in shared.items() if name not in OWN})
    return resolve(plain), usable_device(plain.device)


@dataclass(frozen=True)
class Contender:
    """A kernel, its file, how its workers are made, and its jobs."""

    kernel: str
    file: str | None
    workers: Callable[[], Workers]
    jobs: list[Job]


def contender(side: Side, suite: Suite, device: str, folder: Path, in_process: bool, settings: WorkerJob) -> Contender:
    """The jobs of a kernel, and its workers, which have these settings."""
    start: Start = InProcess if in_process else one_device.start_worker
    file = side.checked_out(folder)
    offered = offered_by([file] if file else [], device, suite.limits, start)
    names = list(dict.fromkeys(entry.name for entry in offered.values()))
    if file and not names:
        raise BadInput(f"{side.title} has no kernel; give a file with a function that @longca.kernel decorates, or the name of a kernel.")
    if not side.kernel and len(names) != 1:
        raise BadInput(f"{side.title} has the kernels {', '.join(names)}; name one of them, as in {side.title}:{names[0]}.")
    if file and side.kernel and side.kernel.partition(":")[0] not in names:
        raise unknown(f"kernel of {side.title.removesuffix(side.kernel).rstrip(':')}", side.kernel, names)
    suite = suite.changed(kernels=(side.kernel or names[0],))
    catalogue = make_catalogue(suite, offered, device, only_named=True)
    jobs = make_jobs(plan(make_cells(suite, catalogue.for_all_masks, device), device, catalogue.versions))

    def workers() -> Workers:
        made = Workers(suite, catalogue, device, devices.model(device), folder.parent / "references", True, settings, start=start)
        made.start(jobs)
        return made

    return Contender(suite.kernels[0], file, workers, jobs)


def _git(folder: Path, *command: str) -> bytes | None:
    """What git prints; None where it fails."""
    try:
        answer = subprocess.run(["git", "-C", str(folder), *command], capture_output=True, timeout=ARCHIVE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None
