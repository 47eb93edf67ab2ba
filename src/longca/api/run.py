"""`longca.run`: measures kernels or methods and returns what came out; the command `longca run` prints the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from longca import devices, lengths
from longca.api.baseline import Against, hold_against
from longca.api.journals import folder_of
from longca.api.kernels import Asked, asked
from longca.api.masks import name_masks
from longca.api.progress import watcher
from longca.api.request import RunRequest, clock_settings, refuse_energy, resolve
from longca.api.shown import Part, Shown
from longca.api.values import Number, Texts, texts
from longca.bench.many_devices.level import ManyDevices
from longca.bench.one_device import compiled_code
from longca.bench.one_device.level import OneDevice
from longca.bench.plan import jobs
from longca.bench.plan.cells import Planned, equal_masks
from longca.bench.plan.suite import Suite
from longca.bench.plan.workload import read_workload
from longca.bench.run.campaign import Finished, Show, left_in_journal, measure, plan_level
from longca.bench.run.level import Level
from longca.bench.run.progress import progress as usual_progress
from longca.bench.run.runner import signals_restored
from longca.errors import Refused
from longca.kernels import registry
from longca.parallel import joining
from longca.processes.lost import PHASES
from longca.report.terminal import summary_tables
from longca.results.export import columns
from longca.results.ranking import PRACTICAL
from longca.results.reading import Results
from longca.results.record import AT_FAULT, LevelName, Record, Status
from longca.results.summary import counts, host_bound_note
from longca.text import format_duration, plural


class Run(Shown):
    """What a run measured: its records, and the journal that holds them."""

    def __init__(
        self, finished: Finished, folder: Path, own_kernels: Sequence[str] = (), notes: Sequence[str] = (), against: Against | None = None
    ) -> None:
        self.finished, self.folder, self.own_kernels, self.notes = finished, folder, list(own_kernels), list(notes)
        self.against = against  # the comparison with the baseline, where one was asked for

    @property
    def results(self) -> Results:
        return self.finished.results

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
        table = self._columns
        return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        return columns(self.results)

    def parts(self) -> list[Part]:
        parts: list[Part] = []
        for table in summary_tables(self.results, self.own_kernels):
            parts += ["", table]
        parts += ["", f"{plural(len(self.records), 'cell')}: {counts(self.records)}; written to {self.folder}/results.jsonl"]
        if note := host_bound_note(self.records):
            parts.append(note)
        if self.finished.measured:
            parts.append(where_the_time_went(self.finished.seconds, self.finished.by_phase))
        return [*parts, *(self.against.parts() if self.against else [])]


@dataclass(frozen=True)
class RunPlan:
    """What will be measured: the level, and its cells with the mask of each."""

    request: RunRequest
    level: Level
    planned: list[Planned]
    problems: int  # of all shards together

    @property
    def notes(self) -> list[str]:
        """Sentences on what is left out, on documents that are cut, and on masks that are equal."""
        equal = [f"note: {note}; each is measured" for note in equal_masks(self.planned)]
        suite = self.level.suite
        cut = lengths.cut_note(suite.document_lengths, suite.lengths) if suite.documents else []
        return [*self.left_out, *(f"note: {note}" for note in cut), *equal]

    @property
    def left_out(self) -> list[str]:
        """A sentence for each reason why kernels or plugin files are not measured here."""
        by_reason: dict[str, list[str]] = {}
        for label, reason in self.level.catalogue.left_out.items():
            by_reason.setdefault(reason, []).append(label)
        return [f"not measured: {', '.join(labels)} ({reason})" for reason, labels in by_reason.items()]

    @property
    def empty_shard(self) -> str:
        """Why a shard holds no cell; empty where it holds some."""
        if not self.request.shard or self.planned:
            return ""
        why = f"there is only {plural(self.problems, 'problem')} (mask, length, shape, seed) to share, and none is split"
        return f"shard {self.request.shard} holds no cell: {why}."

    def folder(self, out: str | Path | None = None) -> Path:
        """The folder of the journal."""
        return journal_folder(out, self.request.suite, many=self.level.suite.level is LevelName.CP)

    def left(self, out: str | Path | None = None) -> list[Planned]:
        """The cells that the journal does not hold yet; for a dry plan."""
        request = self.request
        return left_in_journal(self.level, self.planned, self.folder(out), retry=request.retry == "failed", full=request.full)

    def measure(self, out: str | Path | None = None, show: Show = usual_progress) -> Run:
        """Measures what the journal does not hold yet."""
        request, folder = self.request, self.folder(out)
        retry = request.retry == "failed"
        finished = measure(self.level, self.planned, folder, retry=retry, full=request.full, stop_after=request.stop_after, show=show)
        own = [*self.level.catalogue.plugin_kernels, *request.own_kernels]
        return Run(finished, folder, own, self.notes, self._against(finished, folder))

    def _against(self, finished: Finished, folder: Path) -> Against | None:
        request = self.request
        if request.baseline is None:
            return None
        threshold = PRACTICAL if request.threshold is None else request.threshold
        return hold_against(
            folder, finished.results.records, finished.left, request.baseline, renew=request.renew_baseline, threshold=threshold
        )


def run(
    suite: str | Path | None = None,
    *,
    kernels: Any = None,
    masks: Any = None,
    seqlens: Texts | None = None,
    heads: Texts | None = None,
    head_dims: Texts | None = None,
    dtypes: Texts | None = None,
    passes: Texts | None = None,
    seeds: Texts | None = None,
    params: Mapping[str, Number | Iterable[Number]] | None = None,
    out: str | Path | None = None,
    progress: bool = True,
    device: str | None = None,
    level: str | None = None,
    methods: Texts | None = None,
    nproc: int | None = None,
    grid: str | None = None,
    options: Mapping[str, Number | Iterable[Number]] | None = None,
    plugins: Texts = (),
    source: str | None = None,
    dense: Texts | None = None,
    documents: str | Path | Sequence[int] | None = None,
    distribution: str | None = None,
    packing: str | None = None,
    deterministic: bool | None = None,
    workload: str | Path | None = None,
    model: str | None = None,
    softcap: float | None = None,
    sinks: bool | None = None,
    scale: float | None = None,
    retry: str | None = None,
    full: bool = False,
    shard: str | None = None,
    budget: float | None = None,
    energy: float | None = None,
    clock: Mapping[str, Number] | None = None,
    memory: str | None = None,
    deadline: float | None = None,
    workers: str | None = None,
    stop_after: float | None = None,
    baseline: str | Path | None = None,
    renew_baseline: bool = False,
    threshold: float | str | None = None,
) -> Run:
    """Measures the cells of a suite, or those that the arguments describe, and returns their records.

    The arguments are those of the command `longca run`: a text such as "1K,8K", a number, or a list. `kernels` takes names, paths of plugin
    files, functions decorated with @longca.kernel, and classes derived from longca.Kernel. Kernels run in separate processes. If one of
    them is a Python object, all run in this process, without deadlines and memory limits. `masks` takes names, files, expressions, patterns
    and Mask objects; Mask objects are written to files next to the journal.

    `baseline` is the name of a stored run. The first run is stored under this name, and later runs are compared with it (`.against`).
    `renew_baseline` replaces it.

    An existing journal in `out` is resumed: cells that it contains are not measured again. Ctrl-C stops the run at once and
    raises KeyboardInterrupt; the same call continues the run later.

    >>> longca.run(kernels=["torch", "sdpa"], masks=["causal", "share_question"], seqlens="1K", heads="8:2", dtypes="fp32")
    """
    given = asked(kernels) if kernels is not None else Asked()
    given.refuse_limits(deadline=deadline, memory=memory, workers=workers)
    files = [*given.files, *(texts("plugins", plugins) if plugins else [])]
    folder = journal_folder(out, suite, many=methods is not None or level == LevelName.CP)
    named = name_masks(masks, seqlens, folder / "masks")
    request = RunRequest(
        suite=suite, kernels=given.labels or None, plugins=files, only_named=not given.files, own_kernels=given.own, masks=named.masks,
        seqlens=named.seqlens, heads=heads, head_dims=head_dims, dtypes=dtypes, passes=passes, seeds=seeds, params=params, device=device,
        level=level, methods=methods, nproc=nproc, grid=grid, options=options, source=source, dense=dense,
        documents=documents, distribution=distribution, packing=packing,
        deterministic=deterministic, workload=workload, model=model, softcap=softcap, sinks=sinks, scale=scale,
        retry=retry, full=full, shard=shard, budget=budget, energy=energy,
        clock=clock, memory=memory, deadline=deadline, workers=workers, stop_after=stop_after, baseline=baseline,
        renew_baseline=renew_baseline, threshold=threshold,
    )  # fmt: skip
    return _measure(request, given, folder, progress)


def _measure(request: RunRequest, given: Asked, folder: Path, progress: bool) -> Run:
    """Measures a request; raises KeyboardInterrupt after an interrupt, when the journal is closed and handlers are restored."""
    settings, device = settle(request)
    if settings.level is LevelName.CP and joining.launched() is not None:
        raise Refused("this process is a rank of a launched job; there use the command, `torchrun ... -m longca run --level cp`.")
    if given.files and not given.labels:
        settings = settings.changed(kernels=())  # only those of the files
    with registry.lent(given.objects):
        plan = plan_run(request, make_level(request, settings, device, in_process=bool(given.objects)))
        with signals_restored():
            done = plan.measure(folder, watcher(progress))
    if done.finished.interrupted:
        raise KeyboardInterrupt(f"stopped with {plural(done.left, 'cell')} left; the same call continues.")
    return done


def journal_folder(out: Any, suite: str | Path | None, *, many: bool) -> Path:
    """The folder of the journal: the one given, or one below out/ that is named after the suite; `many` devices have their own."""
    if out is not None:
        return Path(folder_of(out))
    return Path("out") / (Path(str(suite)).stem if suite is not None else "run-cp" if many else "run")


def settle(request: RunRequest) -> tuple[Suite, str]:
    """The suite and the device of a request; raises where this machine cannot do it."""
    suite = resolve(request)
    device = request.device or devices.kind()
    devices.require(device)
    if clock_settings(request).get("energy_s"):
        refuse_energy(device)
    if device == "cuda":
        compiled_code.keep_on_disk()
    return suite, device


def make_level(request: RunRequest, suite: Suite, device: str, *, in_process: bool = False) -> Level:
    """One device or many."""
    if suite.level is not LevelName.CP:
        named = request.only_named and request.kernels is not None
        return OneDevice(suite, device, request.plugins, only_named=named, in_process=in_process)
    if in_process:
        raise Refused("ranks are separate processes, and a Python object exists only in this process; give the kernel's file.")
    methods_named = request.methods not in (None, "all")
    return ManyDevices(suite, device, request.plugins, nproc=request.nproc, grid=request.grid, methods_named=methods_named)


def plan_run(request: RunRequest, level: Level, *, dry: bool = False) -> RunPlan:
    """The cells of a request; a dry plan is for counting them."""
    planned = plan_level(level, read_workload(request.workload) if request.workload else [], dry=dry)
    problems = len({entry.cell.problem.every_pass for entry in planned}) if request.shard else 0
    return RunPlan(request, level, jobs.shard(planned, request.shard) if request.shard else planned, problems)


def where_the_time_went(all_s: float, by_phase: Mapping[str, float]) -> str:
    """One line, the largest part first; what no phase counts is mostly keeping the journal."""
    titles = PHASES | {"build": "building and compiling", "reference": "references"}
    parts = {titles.get(phase, phase): seconds for phase, seconds in by_phase.items()}
    parts["the rest"] = max(0.0, all_s - sum(by_phase.values()))
    shown = [f"{title} {seconds:.0f} s" for title, seconds in sorted(parts.items(), key=lambda part: -part[1]) if seconds >= 0.5]
    return f"it took {format_duration(all_s)}" + (f": {', '.join(shown)}" if shown else "")
