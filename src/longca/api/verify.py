"""`longca.verify`: checks kernels against an fp64 reference and returns what was found; the command `longca verify` prints the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import to_builtins

from longca import devices
from longca.api.kernels import Asked, asked
from longca.api.masks import NamedMasks, name_masks
from longca.api.request import SHAPES, refuse_no_seconds, usable_device
from longca.api.takes import takes
from longca.bench.one_device import verify as checks
from longca.bench.one_device import words
from longca.bench.one_device.level import OneDevice
from longca.bench.one_device.messages import WorkerJob
from longca.bench.one_device.verify import FAILED, Finding, case_count, make_step, refuse_too_long
from longca.bench.one_device.workers import Workers
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import Planned, plan
from longca.bench.plan.plugins import load_masks
from longca.bench.plan.request import Request, Texts, check_suite, refuse_several_values, suite_of
from longca.bench.plan.suite import Suite
from longca.bench.run.retry import say_nothing
from longca.errors import BadInput, unknown
from longca.kernels import discovery, registry
from longca.kernels.base import Case
from longca.masks import Mask
from longca.processes import host_memory
from longca.results.problem import TENSORS
from longca.results.shown import Part, Shown
from longca.text import parse_dims, parse_heads, parse_size, say, write_over

ROWS = ("sampled", "all")
ODD = re.compile(r"[^\w.-]+")
QUICK = "causal,share_question,global_sliding_window"  # one interval, two that begin at documents, and two that move


@dataclass(frozen=True)
class VerifyRequest(Request):
    """What to check; None: the default of the device."""

    kernel: Any = None
    masks: Any = "all"
    seqlens: Texts | None = None
    dtypes: Texts | None = None
    heads: Texts | None = None
    head_dims: Texts | None = None
    _: KW_ONLY
    source: str = "random"
    seed: int = 0
    deterministic: bool = False
    repeat: int = 1
    rows: str = "sampled"  # or "all": which are compared beyond 512 tokens
    device: str | None = None
    deadline: float | None = None
    quick: bool = False  # three masks, and no trials
    fail_fast: bool = False  # stop at the first failure
    trials: bool = True
    dump: str | Path | None = None  # a folder for the tensors of masks on which a kernel fails
    progress: bool = True


@dataclass(frozen=True, repr=False)
class Verification(Shown):
    """What was found: one finding for each kernel on each mask, and for each trial."""

    findings: list[Finding]
    named: Sequence[str] = ()  # the kernels that were asked for by name, of which each must be checked
    title: str = ""
    notes: list[str] = field(default_factory=list)
    stopped: bool = False  # by an interrupt
    dumped: list[Path] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing failed and all that was named was checked; what a kernel refuses may stay out, but not all of a named one."""
        return not self.failed and not self.unchecked

    @property
    def failed(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.status in FAILED]

    @property
    def unchecked(self) -> str:
        """A sentence on named kernels of which nothing was checked; empty where there is none."""
        return words.unchecked(self.findings, self.named)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [_row(finding) for finding in self.findings]

    def parts(self) -> list[Part]:
        return [*words.verification(self.findings), *map(words.dumped, self.dumped)]


def _row(finding: Finding) -> dict[str, Any]:
    row: dict[str, Any] = to_builtins(finding)
    errors = row.pop("errors")
    for tensor in TENSORS:
        row |= {f"{tensor}_{name}": errors.get(tensor, {}).get(name) for name in ("error", "allowed")}
    return row


@dataclass(frozen=True)
class VerifyPlan:
    """What will be checked."""

    level: OneDevice
    planned: list[Planned]
    named: list[str]
    masks: NamedMasks
    request: VerifyRequest

    @property
    def title(self) -> str:
        """The device, the shapes and the seed."""
        return words.title(self.level.suite, self.level.device)

    @property
    def notes(self) -> list[str]:
        return words.notes(self.level.suite, self.planned, sampled=self.request.rows == "sampled")

    def check(
        self,
        show: Callable[[str, Finding], None] = lambda count, finding: None,
        show_output: Callable[[str, str], None] | None = None,
        say: Callable[[str], None] = say_nothing,
    ) -> Verification:
        """Checks, and returns what was found until the end or an interrupt. `show` gets each finding with its number, `show_output` the
        name of a kernel of a plugin and what it printed, `say` a sentence for a kernel that is silent for long. Mask objects are called by
        their names, not by their files."""
        level, title, findings, stopped, dumped = self.level, self.masks.title, list[Finding](), False, list[Path]()

        def dump(cell: Cell, finding: Finding) -> None:
            if self.request.dump is not None and not cell.problem.is_pattern:
                plugin, every = level.catalogue.entries[cell.kernel].plugin, self.request.rows == "all"
                dumped.append(dump_failure(Path(self.request.dump), cell, plugin, finding, every))

        def workers(cache: Path) -> Workers:
            settings = WorkerJob(timed=False, repeats=self.request.repeat, all_rows=self.request.rows == "all")
            made = Workers(level.suite, level.catalogue, level.device, "", cache, True, settings, show_output, level.start)
            made.say = say
            return made

        coming = checks.verify(self.planned, level.suite.limits.workers, level.device, workers, trials=self.trials, failed_on=dump)
        with closing(coming):
            try:
                for finding in coming:
                    findings.append(replace(finding, mask=title(finding.mask), shown=title(finding.shown), reason=title(finding.reason)))
                    show(f"{len(findings)}/{self.total}", findings[-1])
                    if self.request.fail_fast and finding.status in FAILED:
                        break
            except KeyboardInterrupt:
                stopped = True
        return Verification(findings, self.named, self.title, self.notes, stopped, dumped)

    @property
    def trials(self) -> bool:
        return self.request.trials and not self.request.quick

    @cached_property
    def total(self) -> int:
        """How many cases there are."""
        return case_count(self.planned, self.level.suite.limits.workers, self.level.device, self.trials)


def plan_verify(request: VerifyRequest, folder: Path, seqlen: int | None = None, *, in_process: bool = False) -> VerifyPlan:
    """What a request asks to check; raises where that makes no sense or a plugin cannot be loaded. Mask objects are written into the
    folder; the others have `seqlen` tokens where no length is asked for. Kernels that are objects must be lent to the registry."""
    given = asked(request.kernel) if request.kernel is not None else Asked()
    given.refuse_limits(deadline=request.deadline)
    named = name_masks(QUICK if request.quick and request.masks == "all" else request.masks, request.seqlens, folder)
    seqlens = seqlen if named.seqlens is None else named.seqlens
    request = replace(request, masks=named.masks, seqlens=seqlens, plugins=[*given.files, *request.plugin_files])
    device = usable_device(request.device)
    suite = _suite(request, device)
    files, labels = request.plugin_files, given.labels
    usual = [] if files else registry.available_labels(device)
    only_named = not given.files and bool(labels)
    level = OneDevice(suite.changed(kernels=tuple(labels or usual)), device, files, only_named, in_process or bool(given.objects))
    if not level.catalogue.entries and not labels:  # the plugins have masks only
        level = OneDevice(suite.changed(kernels=tuple(registry.available_labels(device))), device)
    for name in ("dtypes", "head_dims") if level.catalogue.entries and request.model is None else ():
        if getattr(request, name) is None:  # the kernels decide
            level.suite = level.suite.changed(**{name: level.catalogue.declared(name, tuple(map(str, getattr(suite, name))))})
    steps = [make_step(name, length, request.seed, suite) for length in map(parse_size, map(str, suite.seqlens)) for name in suite.masks]
    planned = plan(level.cells(steps), device, level.catalogue.versions)
    if request.dump is not None:
        Path(request.dump).mkdir(parents=True, exist_ok=True)  # where it cannot be, this is said before anything is checked
    return VerifyPlan(level, planned, labels, named, request)


def _suite(request: VerifyRequest, device: str) -> Suite:
    """What to check, as a suite without kernels."""
    refuse_several_values(request.params)
    load_masks(request.plugin_files)
    if not isinstance(request.repeat, int) or request.repeat < 1:
        raise BadInput(f"--repeat must be 1 or more, not {request.repeat}.")
    if request.rows not in ROWS:
        raise unknown("choice of rows", str(request.rows), list(ROWS))
    refuse_no_seconds("deadline", request.deadline)
    suite = suite_of(request, Suite(**SHAPES[device]))
    heads = [parse_heads(str(text)) for text in suite.heads]
    limits = checks.limits(request.deadline, device, max(suite.lengths), max(query for query, _ in heads))
    suite = suite.changed(masks=tuple(suite.mask_names), limits=limits)
    check_suite(request, suite)
    memory = devices.memory(device) or host_memory.limit(suite.limits.memory)
    for length, (query, kv), dims, dtype in product(suite.lengths, heads, suite.head_dims, suite.dtypes):
        refuse_too_long(length, Case(0, 0, query, kv, *parse_dims(str(dims)), dtype), memory)
    return suite


def dump_failure(folder: Path, cell: Cell, plugin: str | None, finding: Finding, every: bool) -> Path:
    """Writes the tensors of a cell, of the rows that were compared, and a script that calls its kernel; returns the folder."""
    from longca.bench.check.example import dump

    problem = cell.problem
    parts = [finding.kernel, Path(problem.mask).stem, problem.seqlen, finding.heads, finding.head_dim, problem.dtype]
    own = folder / ODD.sub("-", "-".join(map(str, parts)))
    mask = problem.build_mask()
    assert isinstance(mask, Mask)
    is_object = plugin is None and discovery.is_lent(registry.get(cell.kernel))
    dump(own, mask, cell.case(mask), problem.seed, finding.kernel, plugin, f"{finding}: {finding.reason}", is_object, every)
    return own


@takes(VerifyRequest)
def verify(request: VerifyRequest) -> Verification:
    """Checks kernels on masks and returns one finding per kernel and mask. out, lse, dq, dk and dv are compared with fp64, and the trials
    of `longca verify` are run.

    `kernel` is a name, the path of a plugin file, a function decorated with @longca.kernel, a class derived from longca.Kernel or an object
    of it, or a list of these. The default is all kernels that run here. Names and files are checked in separate processes, so they may
    crash or hang. Python objects are checked in this process, without deadlines and memory limits. `masks` takes names, files, expressions,
    patterns such as longca.masks.causal, and Mask objects.

    >>> longca.verify("sdpa", masks=["causal", "share_question"], seqlens=[509, "1K"], dtypes="fp32").ok
    """

    objects = asked(request.kernel).objects if request.kernel is not None else ()
    over, told = (write_over, say) if request.progress else (say_nothing, say_nothing)
    with TemporaryDirectory(prefix="longca-masks-") as folder, registry.lent(objects):
        done = plan_verify(request, Path(folder)).check(lambda count, finding: over(f"[{count}] {finding}"), say=told)
    over("")
    if done.stopped:
        raise KeyboardInterrupt
    return done
