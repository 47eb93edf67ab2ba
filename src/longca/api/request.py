"""From what `longca run` and `longca.run` are asked for to the suite that it means; refuses what makes no sense."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from longca import devices
from longca.api.baseline import baseline_folder
from longca.api.compare import parse_threshold
from longca.api.values import Number, Texts, axes, document_lengths, texts
from longca.bench.clock.telemetry import LEAST_S
from longca.bench.plan import suite as suites
from longca.bench.plan.mask_plugins import load_masks
from longca.bench.plan.suite import MOST_SEEDS, Suite
from longca.bench.plan.workload import with_model
from longca.errors import BadInput, Unavailable, unknown
from longca.masks import has_blocks
from longca.results.problem import parse_pass
from longca.results.record import LevelName
from longca.text import parse_list, short

STEPS_SAY = ("masks", "seqlens", "seeds", "params", "documents", "distribution", "packing", "dense")  # what a workload says itself
CP_ONLY = ("methods", "nproc", "grid", "options")
SHAPES = {  # the defaults of `verify`, and of `run` without a suite, by device; up to 512 tokens the check compares every row
    "cpu": {"seqlens": ["509"], "heads": ["8:2"], "head_dims": ["64"], "dtypes": ["fp32"]},
    "cuda": {"seqlens": ["8K"], "heads": ["64:8"], "head_dims": ["128"], "dtypes": ["bf16"]},
}
FLAGS = {"params": "--set", "documents": "--lengths", "options": "--option"}  # of fields whose flag has another name
MOST_S = 1e7  # seconds: four months
MOST_RANKS = 1 << 20
DIGITS = 18  # of a seed
DEVICES = ("cpu", "cuda")
LEVELS = ("kernel", "cp")
LISTS = ("kernels", "masks", "dense", "seqlens", "heads", "head_dims", "dtypes", "passes", "methods")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What to measure and how; None: not given. Fields are named as the flags of `longca run` are."""

    suite: str | Path | None = None
    kernels: Texts | None = None
    plugins: Sequence[str] = ()
    only_named: bool = True  # kernels of plugins are measured only where `kernels` names them
    own_kernels: Sequence[str] = ()  # names of kernels that were given as objects: the user's own, as those of plugins are
    level: str | None = None
    methods: Texts | None = None
    nproc: int | None = None
    grid: str | None = None
    options: Mapping[str, Number | Iterable[Number]] | None = None  # of the methods that have them
    masks: Texts | None = None
    source: str | None = None
    dense: Texts | None = None
    seqlens: Texts | None = None
    heads: Texts | None = None
    head_dims: Texts | None = None
    dtypes: Texts | None = None
    passes: Texts | None = None
    seeds: Texts | None = None  # a number: how many; a list, or a text with a comma: which
    params: Mapping[str, Number | Iterable[Number]] | None = None
    documents: str | Path | Sequence[int] | None = None  # lengths instead of drawn ones, or a file with them
    distribution: str | None = None
    packing: str | None = None
    deterministic: bool | None = None
    workload: str | Path | None = None
    model: str | None = None
    softcap: float | None = None  # scores become softcap * tanh(score / softcap)
    sinks: bool | None = None  # a learned logit per query head
    scale: float | None = None  # of the scores, where it is not 1/sqrt(head size)
    device: str | None = None
    retry: str | None = None
    full: bool = False
    shard: str | None = None
    budget: float | None = None
    energy: float | None = None
    clock: Mapping[str, Number] | None = None
    memory: str | None = None
    deadline: float | None = None
    workers: str | None = None
    stop_after: float | None = None
    baseline: str | Path | None = None  # the name of the run that this one is compared with
    renew_baseline: bool = False
    threshold: float | str | None = None  # of that comparison


def resolve(request: RunRequest) -> Suite:
    """The suite that is asked for."""
    _refuse_words(request)
    level = _level(request)
    if request.suite is None and request.kernels is None and request.methods is None and not request.plugins and level is not LevelName.CP:
        raise BadInput(f"name a suite ({', '.join(suites.names())}, or a TOML file), or give --kernels.")
    load_masks(request.plugins)
    suite = suites.find(str(request.suite)) if request.suite is not None else Suite(**_usual_shape(request, level))
    lists: dict[str, Any] = {name: tuple(texts(name, getattr(request, name))) for name in LISTS if getattr(request, name) is not None}
    if request.model:
        suite = with_model(suite, request.model, lists.get("masks", ()))
    if "passes" in lists:
        lists["passes"] = tuple(map(parse_pass, lists["passes"]))
    suite = suite.changed(**lists, seeds=_seeds(request.seeds), distribution=request.distribution, packing=request.packing)
    suite = suite.changed(deterministic=request.deterministic, level=level, nproc=request.nproc, grid=request.grid, source=request.source)
    suite = suite.changed(documents=document_lengths(request.documents))
    suite = suite.changed(softcap=request.softcap, sinks=request.sinks, scale=request.scale)
    suite = suites.with_params(suite, axes("params", request.params))
    suite = suites.with_options(suite, axes("options", request.options))
    if request.nproc is not None and not isinstance(request.nproc, int):
        raise BadInput(f"--nproc must be a whole number, not {request.nproc!r}.")
    if request.nproc is not None and not 1 <= request.nproc <= MOST_RANKS:
        bound = "1 rank or more" if request.nproc < 1 else f"{MOST_RANKS} ranks or fewer"
        raise BadInput(f"--nproc must be {bound}, not {request.nproc}; leave it out for one per GPU.")
    for flag in ("budget", "energy", "deadline", "stop_after"):
        _refuse_no_seconds(flag, getattr(request, flag))
    suite = suites.with_clock(suite, clock_settings(request))
    limits = {name: value for name, value in (("memory", request.memory), ("workers", request.workers)) if value is not None}
    suite = suite.changed(limits=replace(suite.limits, **limits).with_deadline(request.deadline))
    suites.check(suite)
    for name in ("distribution", "packing"):
        if getattr(request, name):
            suites.refuse_without_documents(f"a {name} is", suite.mask_names)
    _refuse_conflicts(request, suite)
    _refuse_baseline(request)
    return suite


def _refuse_words(request: RunRequest) -> None:
    """Refuses what argparse refuses on the command line."""
    for name, known in (("device", DEVICES), ("retry", ("failed",))):
        value = getattr(request, name)
        if value is not None and value not in known:
            raise unknown(name, str(value), list(known))
    if request.shard is not None and not isinstance(request.shard, str):
        raise BadInput(f"{request.shard!r} is not a shard; write one such as '3/8', from '1/8' to '8/8'.")


def _refuse_baseline(request: RunRequest) -> None:
    """Refuses settings of a baseline that is not there, and odd names, before anything is measured."""
    if request.baseline is not None:
        baseline_folder(request.baseline)
    elif request.renew_baseline or request.threshold is not None:
        given = "--renew-baseline" if request.renew_baseline else "--threshold"
        raise BadInput(f"{given} is for a baseline; add --baseline NAME, or leave it out.")
    if request.threshold is not None:
        parse_threshold(request.threshold)
    if request.baseline is not None and request.shard is not None:
        raise BadInput("a shard is a part of a run, so it is not compared with a baseline; leave out --shard or --baseline.")


def _usual_shape(request: RunRequest, level: LevelName | None) -> dict[str, Any]:
    """Returns lengths and shape of kernels without a suite: smaller on a CPU, the same as in `verify`."""
    shape = SHAPES.get(request.device or devices.kind(), {}) if level is not LevelName.CP else {}
    return {name: tuple(values) for name, values in shape.items()}


def _level(request: RunRequest) -> LevelName | None:
    if request.level is None:
        return LevelName.CP if request.methods else None
    if request.level not in LEVELS:
        raise unknown("level", str(request.level), list(LEVELS))
    return LevelName(request.level)


def _refuse_conflicts(request: RunRequest, suite: Suite) -> None:
    """Refuses settings that would have no effect."""
    given = [name for name in STEPS_SAY if getattr(request, name) not in (None, {})]
    beside = [FLAGS.get(name, f"--{name}") for name in given if request.workload is not None]
    if beside:
        raise BadInput(f"a workload has its own masks and lengths, so it takes no {' and no '.join(beside)}; leave out one or the other.")
    unused = [name for name in CP_ONLY if str(suite.level) != "cp" and getattr(request, name) not in (None, {})]
    ranks = [FLAGS.get(name, f"--{name}") for name in unused]
    if ranks:
        verb, them = ("is", "it") if len(ranks) == 1 else ("are", "them")
        raise BadInput(f"{' and '.join(ranks)} {verb} for context parallelism; add --level cp, or leave {them} out.")
    if request.dense is not None and (suite.level == "cp" or not any(map(has_blocks, suite.mask_names))):
        raise BadInput("--dense is a baseline for block patterns on one device, and none is asked for; leave it out.")
    energy_s = clock_settings(request).get("energy_s")
    if energy_s and suite.level == "cp":
        raise BadInput("--energy is measured for kernels on one device, not for context parallelism; leave it out.")
    if energy_s and energy_s < LEAST_S:
        raise BadInput(f"--energy must be {LEAST_S:g} second or more, not {energy_s:g}; energy is counted over that long at least.")


def refuse_energy(device: str) -> None:
    if device == "cpu":
        raise BadInput("--energy is read from a GPU, and this run is on the CPU; leave it out.")
    if find_spec("pynvml") is None:
        raise Unavailable("--energy is read with pynvml, which is missing: pip install nvidia-ml-py.")


def clock_settings(request: RunRequest) -> dict[str, Number]:
    """Settings of the clock that were given, by --clock or by a flag of their own."""
    settings = dict(request.clock or {})
    for flag, name in (("budget", "budget_s"), ("energy", "energy_s")):
        if getattr(request, flag) is not None:
            if name in settings:
                raise BadInput(f"{name} is set twice, by --{flag} and by --clock; give it once.")
            settings[name] = getattr(request, flag)
    return settings


def _refuse_no_seconds(flag: str, value: float | None) -> None:
    name = f"--{flag.replace('_', '-')}"
    if value is not None and not isinstance(value, int | float):
        raise BadInput(f"{name} must be a number of seconds over 0, not {value!r}.")
    if value is not None and not 0 < value <= MOST_S:
        raise BadInput(f"{name} must be a number of seconds over 0, not {value:g}; give {MOST_S:g} at most.")


def _seeds(seeds: Texts | None) -> tuple[int, ...] | int | None:
    """Which seeds, or how many."""
    if seeds is None:
        return None
    text = seeds if isinstance(seeds, str) else str(seeds) if isinstance(seeds, int) else ",".join([*texts("seeds", seeds), ""])
    entries = parse_list(text)
    if not entries or not all(entry.isdecimal() for entry in entries):
        raise BadInput(f"--seeds {short(text, 40)} is not a list of seeds; write their number, such as 3, or a list, such as 42,43.")
    if "," not in text and (len(entries[0]) > DIGITS or int(entries[0]) > MOST_SEEDS):
        raise BadInput(
            f"--seeds {short(text, 40)} asks for too many seeds; ask for {MOST_SEEDS} at most, or for one of them: {short(text, 40)},"
        )
    if any(len(entry) > DIGITS for entry in entries):
        raise BadInput(f"--seeds {short(text, 40)} is too large; seeds have up to {DIGITS} digits.")
    return tuple(map(int, entries)) if "," in text else int(text)
