"""`longca.verify`: checks kernels against an fp64 reference and returns what was found; the command `longca verify` prints the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from longca import devices, lengths, masks
from longca.api.kernels import Asked, asked
from longca.api.masks import NamedMasks, name_masks
from longca.api.progress import ChecksShown, say_line
from longca.api.request import DEVICES, SHAPES
from longca.api.shown import Part, Shown
from longca.api.values import Number, Texts, axes, document_lengths, texts
from longca.bench.one_device import compiled_code
from longca.bench.one_device import verify as checks
from longca.bench.one_device.level import OneDevice
from longca.bench.one_device.verify import FAILED, CaseCount, Finding, make_step, refuse_too_long
from longca.bench.plan.cells import Planned, equal_masks, plan
from longca.bench.plan.mask_plugins import load_masks
from longca.bench.plan.suite import Suite, check, refuse_without_documents
from longca.bench.plan.workload import Model
from longca.bench.plan.workload import model as find_model
from longca.bench.run.environment import device_model
from longca.bench.run.retry import say_nothing
from longca.errors import BadInput, unknown
from longca.kernels import registry
from longca.kernels.base import Case
from longca.masks.pattern import check_seed
from longca.processes import host_memory
from longca.results.problem import TENSORS, Pass
from longca.results.record import TensorError
from longca.results.tables import Table
from longca.text import format_extras, parse_dims, parse_heads, parse_size

REPORTED = ("wrong", "error", "timeout", "oom", "unavailable", "unsupported", "skipped")  # statuses with a sentence below the table


@dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """What to check; None: the default of the device. Fields are named as the flags of `longca verify` are."""

    kernels: Texts | None = None
    plugins: Sequence[str] = ()
    only_named: bool = True  # kernels of plugins are checked only where `kernels` names them
    masks: Texts | None = None
    seqlens: Texts | None = None
    heads: Texts | None = None
    head_dims: Texts | None = None
    dtypes: Texts | None = None
    source: str = "random"
    seed: int = 0
    params: Mapping[str, Number] | None = None
    documents: str | Path | Sequence[int] | None = None
    distribution: str | None = None
    packing: str | None = None
    model: str | None = None
    softcap: float | None = None
    sinks: bool | None = None
    scale: float | None = None
    deterministic: bool = False
    repeat: int = 1
    device: str | None = None
    deadline: float | None = None


class Verification(Shown):
    """What was found: one finding for each kernel on each mask, and for each trial."""

    def __init__(self, findings: Sequence[Finding], named: Sequence[str], title: str, notes: Sequence[str]) -> None:
        """`named` are the kernels that were asked for by name, of which each must be checked."""
        self.findings, self.title, self.notes, self._named = list(findings), title, list(notes), named

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
        checked = {finding.kernel for finding in self.findings if finding.checked}
        if not checked:
            return "nothing was checked: no kernel supports any of this here."
        known = checked | {kernel.partition(":")[0] for kernel in checked}
        missing = [label for label in self._named if label not in known and label != "all"]
        return (
            f"no case of {' and '.join(missing)} was checked (the reason is above); remove it from --kernels, or fix the reason."
            if missing
            else ""
        )

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [_row(finding) for finding in self.findings]

    def parts(self) -> list[Part]:
        checked = [finding for finding in self.findings if finding.errors]
        columns = ["kernel", "mask", "seqlen", *self._varying, "status", *self._tensors, "note"]
        rows = [self._cells(finding) for finding in checked]
        table: list[Part] = [Table("error/allowed of the worst token:", columns, rows)] if rows else []
        counts = Counter(finding.status for finding in self.findings)
        return [*table, *self.reasons(), ", ".join(f"{count} {status}" for status, count in counts.items())]

    def reasons(self) -> list[str]:
        """A sentence for each kernel and reason why it is wrong, failed or was not checked."""
        sentences = []
        for status in REPORTED:
            places: dict[tuple[str, str], list[str]] = {}
            for finding in self.findings:
                if finding.status == status:
                    places.setdefault((finding.kernel, finding.reason), []).append(self._place(finding))
            sentences += [f"{status}: {kernel} on {', '.join(dict.fromkeys(where))}: {why}" for (kernel, why), where in places.items()]
        return sentences

    @property
    def _varying(self) -> list[str]:
        """The parts of the shape in which findings differ."""
        return [name for name in ("heads", "head_dim", "dtype") if len({getattr(finding, name) for finding in self.findings}) > 1]

    @property
    def _tensors(self) -> list[str]:
        """The tensors that were checked, dsinks only where there were sinks."""
        return [tensor for tensor in TENSORS if tensor != "dsinks" or any(tensor in finding.errors for finding in self.findings)]

    def _place(self, finding: Finding) -> str:
        shape = " ".join(getattr(finding, name) for name in self._varying)
        return f"{finding.mask} ({shape})" if shape else finding.mask

    def _cells(self, finding: Finding) -> list[str]:
        shape = [getattr(finding, name) for name in self._varying]
        note = finding.reason if finding.status == "ok" else ""  # why something is wrong stands below the table
        errors = [_error(finding.errors.get(tensor)) for tensor in self._tensors]
        return [finding.kernel, finding.mask, str(finding.seqlen), *shape, finding.status.value, *errors, note]


def _row(finding: Finding) -> dict[str, Any]:
    row: dict[str, Any] = to_builtins(finding)
    errors = row.pop("errors")
    for tensor in TENSORS:
        row |= {f"{tensor}_{name}": errors.get(tensor, {}).get(name) for name in ("error", "allowed")}
    return row


def _error(error: TensorError | None) -> str:
    if error is None:
        return "-"
    value, allowed = (math.inf if number is None else number for number in (error.error, error.allowed))
    pairs = ((f"{value:.{digits}e}", f"{allowed:.{digits}e}") for digits in range(1, 6))
    return "/".join(next((pair for pair in pairs if pair[0] != pair[1]), (f"{value:.1e}", f"{allowed:.1e}")))


@dataclass(frozen=True)
class VerifyPlan:
    """What will be checked."""

    level: OneDevice
    planned: list[Planned]
    named: list[str]
    repeat: int
    seed: int
    trials: bool = True

    @property
    def title(self) -> str:
        """The device, the shapes and the seed."""
        suite = self.level.suite
        heads, dims, dtypes = (", ".join(map(str, values)) for values in (suite.heads, suite.head_dims, suite.dtypes))
        extras = "".join(f", {words}" for words in format_extras(asdict(suite)))
        return f"{device_model(self.level.device)}, {heads} heads of {dims}, {dtypes}{extras}, seed {self.seed}"

    @property
    def notes(self) -> list[str]:
        suite = self.level.suite
        cut = lengths.cut_note(suite.document_lengths, suite.lengths) if suite.documents else []
        return [*cut, *(f"{note}; checked once" for note in equal_masks(self.planned))]

    def count(self) -> CaseCount:
        """Counts the cases while they are checked."""
        return CaseCount(self.planned, self.level.suite, self.level.device, self.trials)

    def findings(
        self, show_output: Callable[[str, str], None] | None = None, say: Callable[[str], None] = say_nothing
    ) -> Generator[Finding, None, None]:
        """Findings as they come. `show_output` gets the name of a kernel of a plugin, and what it printed; `say` gets a sentence for a
        kernel that is silent for long."""
        level, planned = self.level, self.planned
        return checks.verify(planned, level.suite, level.catalogue, level.device, self.repeat, show_output, level.start, self.trials, say)

    def verification(self, findings: Sequence[Finding], masks: NamedMasks | None = None) -> Verification:
        """What was found; Mask objects are called by their names, not by their files."""
        if masks is not None:
            findings = [replace(finding, mask=masks.title(finding.mask), reason=masks.title(finding.reason)) for finding in findings]
        return Verification(findings, self.named, self.title, self.notes)


def plan_verify(request: VerifyRequest, *, in_process: bool = False, trials: bool = True) -> VerifyPlan:
    """What a request asks to check; raises where that makes no sense or a plugin cannot be loaded."""
    device = request.device or devices.kind()
    if device not in DEVICES:
        raise unknown("device", str(device), list(DEVICES))
    devices.require(device)
    if device == "cuda":
        compiled_code.keep_on_disk()
    suite, settings = _suite(request, device)
    named = texts("kernels", request.kernels) if request.kernels is not None else []
    labels = named or ([] if request.plugins else registry.available_labels(device))
    only_named = request.only_named and bool(named)
    level = OneDevice(suite.changed(kernels=tuple(labels)), device, request.plugins, only_named, in_process)
    if not level.catalogue.entries and not named:  # the plugins have masks only
        level = OneDevice(suite.changed(kernels=tuple(registry.available_labels(device))), device)
    for entry in level.catalogue.entries.values():
        if entry.failure:
            file = "" if str(entry.plugin) in entry.failure.reason else f"{entry.plugin}: "
            raise BadInput(f"{file}{entry.failure.reason.rstrip('.')}.")
    model = None if request.model is None else find_model(request.model)
    windows = {name: model.params_of(name) if model else {} for name in suite.masks}
    steps = [
        make_step(name, length, request.seed, windows[name] | settings, documents)
        for length in map(parse_size, map(str, suite.seqlens))
        for documents in [suite.documents_at(length)]
        for name in suite.masks
    ]
    planned = plan(level.cells(steps), device, level.catalogue.versions)
    return VerifyPlan(level, planned, named, request.repeat, request.seed, trials)


def _suite(request: VerifyRequest, device: str) -> tuple[Suite, dict[str, Number]]:
    """What to check, as a suite without kernels, and the parameters of its masks."""
    model = None if request.model is None else find_model(request.model)
    usual = SHAPES[device] | ({} if model is None else {"heads": [model.heads], "head_dims": [model.head_dim]})
    shape = usual | {name: texts(name, value) for name in SHAPES[device] if (value := getattr(request, name)) is not None}
    settings = mask_settings(request.params)
    load_masks(request.plugins)
    wanted = masks.expand(texts("masks", request.masks) if request.masks is not None else ["all"])
    for name in settings:
        if not any(name in masks.find(mask).defaults for mask in wanted):
            raise BadInput(f"none of these masks has a parameter {name!r}; `longca ls masks` shows which they have.")
    _refuse_numbers(request)
    seqlens = shape["seqlens"]
    longest, most_heads = max(map(parse_size, seqlens)), max(parse_heads(heads)[0] for heads in shape["heads"])
    suite = Suite(
        masks=tuple(wanted),
        seqlens=tuple(seqlens),
        heads=tuple(shape["heads"]),
        head_dims=tuple(shape["head_dims"]),
        dtypes=tuple(shape["dtypes"]),
        passes=(Pass.FWD, Pass.BWD),
        seeds=(request.seed,),
        deterministic=request.deterministic,
        source=request.source,
        documents=document_lengths(request.documents) or "",
        distribution=request.distribution or "",
        packing=request.packing or "",
        **_extras(request, model),
        limits=checks.limits(request.deadline, device, longest, most_heads),
    )
    check(suite)
    for name in ("distribution", "packing"):
        if getattr(request, name):
            refuse_without_documents(f"a {name} is", suite.masks)
    memory = devices.memory(device) or host_memory.limit(suite.limits.memory)
    for length, heads, dims, dtype in product(seqlens, *(shape[name] for name in ("heads", "head_dims", "dtypes"))):
        refuse_too_long(parse_size(length), Case(0, 0, *parse_heads(heads), *parse_dims(dims), dtype), memory)
    return suite, settings


def _extras(request: VerifyRequest, model: Model | None) -> dict[str, Any]:
    """Softcap, sinks and scale: the given ones, else those of the model."""
    names = ("softcap", "sinks", "scale")
    given = {name: value for name in names if (value := getattr(request, name)) is not None}
    return ({} if model is None else {name: getattr(model, name) for name in names}) | given


def _refuse_numbers(request: VerifyRequest) -> None:
    check_seed(request.seed)
    if not isinstance(request.repeat, int) or request.repeat < 1:
        raise BadInput(f"--repeat must be 1 or more, not {request.repeat}.")
    deadline = request.deadline
    if deadline is not None and not (isinstance(deadline, int | float) and 0 < deadline < math.inf):
        raise BadInput(f"--deadline must be a number of seconds over 0, not {deadline}.")


def mask_settings(params: Mapping[str, Any] | None) -> dict[str, Number]:
    """Parameters of masks, of which each has one value."""
    settings = axes("params", params)
    for name, values in settings.items():
        if len(values) > 1:
            given = ",".join(map(str, values))
            raise BadInput(f"verify takes one value per parameter, not {name}={given}; run it once per value, or use `longca run`.")
    return {name: values[0] for name, values in settings.items()}


def verify(
    kernel: Any = None,
    masks: Any = "all",
    seqlens: Texts | None = None,
    dtypes: Texts | None = None,
    heads: Texts | None = None,
    head_dims: Texts | None = None,
    *,
    params: Mapping[str, Number] | None = None,
    documents: str | Path | Sequence[int] | None = None,
    distribution: str | None = None,
    packing: str | None = None,
    model: str | None = None,
    softcap: float | None = None,
    sinks: bool | None = None,
    scale: float | None = None,
    plugins: Texts = (),
    source: str = "random",
    seed: int = 0,
    deterministic: bool = False,
    repeat: int = 1,
    device: str | None = None,
    deadline: float | None = None,
    progress: bool = True,
) -> Verification:
    """Checks kernels on masks and returns one finding per kernel and mask. out, lse, dq, dk and dv are compared with fp64, and the trials
    of `longca verify` are run.

    `kernel` is a name, the path of a plugin file, a function decorated with @longca.kernel, a class derived from longca.Kernel or an object
    of it, or a list of these. The default is all kernels that run here. Names and files are checked in separate processes, so they may
    crash or hang. Python objects are checked in this process, without deadlines and memory limits. `masks` takes names, files, expressions,
    patterns such as longca.masks.causal, and Mask objects.

    >>> longca.verify("sdpa", masks=["causal", "share_question"], seqlens=[509, "1K"], dtypes="fp32").ok
    """
    given = asked(kernel) if kernel is not None else Asked()
    given.refuse_limits(deadline=deadline)
    labels = given.labels
    files = [*given.files, *(texts("plugins", plugins) if plugins else [])]
    with TemporaryDirectory(prefix="longca-masks-") as folder, registry.lent(given.objects):
        named = name_masks(masks, seqlens, Path(folder))
        request = VerifyRequest(
            kernels=labels or None, plugins=files, only_named=not given.files, masks=named.masks, seqlens=named.seqlens, heads=heads,
            head_dims=head_dims, dtypes=dtypes, source=source, seed=seed, params=params, documents=documents, distribution=distribution,
            packing=packing, model=model, softcap=softcap, sinks=sinks, scale=scale, deterministic=deterministic, repeat=repeat,
            device=device, deadline=deadline,
        )  # fmt: skip
        planned = plan_verify(request, in_process=bool(given.objects))
        with closing(planned.findings(say=say_line if progress else say_nothing)) as coming:
            return planned.verification(list(ChecksShown(coming, planned.count(), progress)), named)
