"""`longca.run`: measures kernels or methods and returns what came out; the command `longca run` prints the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longca.api.journals import folder_of
from longca.api.kernels import Asked, asked
from longca.api.masks import name_masks
from longca.api.request import RunRequest, clock_settings, refuse_energy, resolve, usable_device
from longca.api.takes import takes
from longca.bench.one_device.level import OneDevice
from longca.bench.plan import jobs
from longca.bench.plan.cells import Planned
from longca.bench.plan.workload import Step, read_workload
from longca.bench.run import words
from longca.bench.run.campaign import Finished, left_in_journal, measure, plan_level
from longca.bench.run.level import Level
from longca.bench.run.progress import Progress, Show, Silent
from longca.bench.run.runner import signals_restored
from longca.compare.verdicts import PRACTICAL
from longca.errors import Refused
from longca.kernels import registry
from longca.parallel import joining
from longca.report.terminal import summary_parts
from longca.results.export import as_rows
from longca.results.record import AT_FAULT, LevelName, Record, Status
from longca.results.shown import Part, Shown
from longca.results.summary import host_bound_note
from longca.text import plural

if TYPE_CHECKING:
    from longca.compare.baseline import Against


@dataclass(frozen=True, repr=False)
class Run(Shown):
    """What a run measured: its records, and the journal that holds them."""

    finished: Finished
    folder: Path
    own_kernels: list[str]
    notes: list[str]
    against: Against | None  # the comparison with the baseline, where one was asked for

    @property
    def records(self) -> list[Record]:
        """The records of the cells that were asked for, also of those that the journal had before."""
        return self.finished.results.records

    @property
    def left(self) -> int:
        """How many cells are not measured yet."""
        return self.finished.left

    @property
    def statuses(self) -> dict[Status, int]:
        return dict(Counter(record.status for record in self.records))

    @property
    def ok(self) -> bool:
        """Whether all cells were tried, none is wrong, invalid or doubtful, failed or timed out, and none is slower than the baseline."""
        sound = not self.left and not any(record.status in AT_FAULT for record in self.records)
        return sound and (self.against is None or self.against.ok)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per cell with every field of its record; docs/results.md explains them."""
        return as_rows(self.finished.results)

    def parts(self) -> list[Part]:
        *tables, count = summary_parts(self.finished.results, self.own_kernels)
        parts: list[Part] = ["", *tables, f"{count}; written to {self.folder}/results.jsonl"]
        if note := host_bound_note(self.records):
            parts.append(note)
        if self.finished.measured:
            parts.append(words.where_the_time_went(self.finished.seconds, self.finished.by_phase))
        return [*parts, *(self.against.parts() if self.against else [])]


@dataclass(frozen=True)
class RunPlan:
    """What will be measured: a request in plain texts, the level, and its cells with the mask of each."""

    request: RunRequest
    level: Level
    planned: list[Planned]
    own_kernels: list[str]
    problems: int  # of all shards together
    steps: list[Step]  # of a workload

    @cached_property
    def notes(self) -> list[str]:
        """Sentences on an empty shard, on what is left out, on documents that are cut, and on masks that are equal."""
        shard = [words.empty_shard(self.request.shard, self.problems)] if self.request.shard and not self.planned else []
        return [*shard, *words.left_out(self.level), *words.about_masks(self.level.suite, self.planned, self.steps)]

    @property
    def folder(self) -> Path:
        """The folder of the journal."""
        return journal_folder(self.request, many=self.level.suite.level is LevelName.CP)

    def left(self) -> list[Planned]:
        """The cells that the journal does not hold yet; for a dry plan."""
        retry = self.request.retry == "failed"
        return left_in_journal(self.level, self.planned, self.folder, retry=retry, full=self.request.full)

    def measure(self, show: Show = Progress) -> Run:
        """Measures what the journal does not hold yet."""
        request, folder = self.request, self.folder
        retry = request.retry == "failed"
        finished = measure(self.level, self.planned, folder, retry=retry, full=request.full, stop_after=request.stop_after, show=show)
        return Run(finished, folder, self.own_kernels, self.notes, self._against(finished))

    def _against(self, finished: Finished) -> Against | None:
        request = self.request
        if request.baseline is None:
            return None
        from longca.api.compare import parse_threshold
        from longca.compare.baseline import hold_against

        limit, renew = parse_threshold(PRACTICAL if request.threshold is None else request.threshold), request.renew_baseline
        return hold_against(self.folder, finished.results.records, finished.left, request.baseline, renew=renew, threshold=limit)


@takes(RunRequest)
def run(request: RunRequest) -> Run:
    """Measures the cells of a suite, or those that the arguments describe, and returns their records.

    The arguments are those of the command `longca run`: a text such as "1K,8K", a number, or a list. `kernels` takes names, paths of plugin
    files, functions decorated with @longca.kernel, and classes derived from longca.Kernel. Kernels run in separate processes. If one of
    them is a Python object, all run in this process, without deadlines and memory limits. `masks` takes names, files, expressions, patterns
    and Mask objects; Mask objects are written to files next to the journal. `seed` is one seed; `seeds` is how many, or a list of them.

    `baseline` is the name of a stored run. The first run is stored under this name, and later runs are compared with it (`.against`).
    `renew_baseline` replaces it.

    An existing journal in `out` is resumed: cells that it contains are not measured again. Ctrl-C stops the run at once and
    raises KeyboardInterrupt; the same call continues the run later.

    >>> longca.run(kernels=["torch", "sdpa"], masks=["causal", "share_question"], seqlens="1K", heads="8:2", dtypes="fp32")
    """
    given, plain = as_texts(request)
    with registry.lent(given.objects):
        level = make_level(plain, given)
        if level.suite.level is LevelName.CP and joining.launched() is not None:
            raise Refused("this process is a rank of a launched job; there use the command, `torchrun ... -m longca run --level cp`.")
        plan = plan_run(plain, level, own_kernels=given.own)
        with signals_restored():
            done = plan.measure(Progress if request.progress else Silent)
    if done.finished.interrupted:
        raise KeyboardInterrupt(f"stopped with {plural(done.left, 'cell')} left; the same call continues.")
    return done


def as_texts(request: RunRequest) -> tuple[Asked, RunRequest]:
    """The kernels of a request by their kind, and the request with the names of kernels and masks; Mask objects are written into files."""
    given = asked(request.kernels) if request.kernels is not None else Asked()
    given.refuse_limits(deadline=request.deadline, memory=request.memory, workers=request.workers)
    folder = journal_folder(request, many=request.methods is not None or request.level == LevelName.CP)
    named = name_masks(request.masks, request.seqlens, folder / "masks")
    files = [*given.files, *request.plugin_files]
    return given, replace(request, kernels=given.labels or None, masks=named.masks, seqlens=named.seqlens, plugins=files)


def journal_folder(request: RunRequest, *, many: bool) -> Path:
    """The folder of the journal: the one given, or one below out/ that is named after the suite; `many` devices have their own."""
    if request.out is not None:
        return Path(folder_of(request.out))
    return Path("out") / (Path(str(request.suite)).stem if request.suite is not None else "run-cp" if many else "run")


def make_level(request: RunRequest, given: Asked) -> Level:
    """One device or many; raises where this machine cannot do it."""
    suite, device = resolve(request), usable_device(request.device)
    if clock_settings(request).get("energy_s"):
        refuse_energy(device)
    if given.files and not given.labels:
        suite = suite.changed(kernels=())  # only those of the files
    if suite.level is not LevelName.CP:
        named = request.kernels is not None and not given.files
        return OneDevice(suite, device, request.plugin_files, only_named=named, in_process=bool(given.objects))
    if given.objects:
        raise Refused("ranks are separate processes, and a Python object exists only in this process; give the kernel's file.")
    from longca.bench.many_devices.level import ManyDevices

    return ManyDevices(suite, device, request.plugin_files, nproc=request.nproc, grid=request.grid, trace=request.trace)


def plan_run(request: RunRequest, level: Level, *, own_kernels: Sequence[str] = (), dry: bool = False) -> RunPlan:
    """The cells of a request; a dry plan is for counting them. `own_kernels` are those of Python objects, the user's own as plugins are."""
    steps = read_workload(request.workload) if request.workload else []
    planned = plan_level(level, steps, dry=dry)
    problems = len({entry.cell.problem.every_pass for entry in planned}) if request.shard else 0
    own = [*level.catalogue.plugin_kernels, *own_kernels]
    return RunPlan(request, level, jobs.shard(planned, request.shard) if request.shard else planned, own, problems, steps)
