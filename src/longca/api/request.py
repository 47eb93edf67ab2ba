"""From what `longca run` and `longca.run` are asked for to the suite that it means; refuses what makes no sense."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from longca import devices
from longca.bench.clock.telemetry import LEAST_S
from longca.bench.one_device import compiled_code
from longca.bench.plan import suite as suites
from longca.bench.plan.plugins import load_masks
from longca.bench.plan.request import LocalRequest, Number, Texts, check_suite, refuse_no_ranks, suite_of
from longca.bench.plan.suite import Suite
from longca.errors import BadInput, Unavailable, unknown
from longca.masks import has_blocks
from longca.results.record import LevelName

STEPS_SAY = ("masks", "seqlens", "seed", "seeds", "params", "documents", "distribution", "packing", "dense")  # as a workload does itself
CP_ONLY = ("methods", "nproc", "ranks_per_gpu", "pretend_nodes", "grid", "options", "trace")
SHAPES: dict[str, dict[str, Any]] = {  # of `verify`, and of `run` without a suite; up to 512 tokens the check compares every row
    "cpu": {"seqlens": ("509",), "heads": ("8:2",), "head_dims": ("64",), "dtypes": ("fp32",)},
    "cuda": {"seqlens": ("8K",), "heads": ("64:8",), "head_dims": ("128",), "dtypes": ("bf16",)},
}
FLAGS = {"params": "--set", "documents": "--lengths", "options": "--option"}  # of fields whose flag has another name
MOST_S = 1e7  # four months
LEVELS = ("kernel", "cp")


@dataclass(frozen=True)
class RunRequest(LocalRequest):
    """What to measure and how."""

    suite: str | Path | None = None
    _: KW_ONLY
    kernels: Any = None
    masks: Any = None
    seqlens: Texts | None = None
    passes: Texts | None = None
    seed: int | None = None  # that one seed
    seeds: Texts | None = None  # a number: how many, from 0 on; a list, or a text with a comma: which
    out: Any = None  # the folder of the journal
    progress: bool = True
    level: str | None = None
    methods: Texts | None = None
    nproc: int | None = None
    ranks_per_gpu: int | None = None  # NCCL ranks that share a GPU
    pretend_nodes: int | None = None  # that NCCL takes the ranks of this machine for
    grid: str | None = None
    options: Mapping[str, Number | Iterable[Number]] | None = None  # of the methods that have them
    trace: str | Path | None = None  # a folder for traces of the calls of ranks
    source: str | None = None
    dense: Texts | None = None
    deterministic: bool | None = None
    cudagraph: bool | None = None
    workload: str | Path | None = None
    retry: str | None = None
    full: bool = False
    shard: str | None = None
    budget: float | None = None
    energy: float | None = None
    clock: Mapping[str, Number] | None = None
    memory: str | None = None
    workers: str | None = None
    stop_after: float | None = None
    baseline: str | Path | None = None  # the name of the run that this one is compared with
    renew_baseline: bool = False
    threshold: float | str | None = None  # of that comparison


def usable_device(device: str | None) -> str:
    """The device that is asked for; raises where this machine lacks it. What is compiled for a GPU is kept on disk."""
    device = devices.require(device)
    if device == "cuda":
        compiled_code.keep_on_disk()
    return device


def resolve(request: RunRequest) -> Suite:
    """The suite that is asked for."""
    _refuse_values(request)
    level = LevelName(request.level) if request.level is not None else LevelName.CP if request.methods else None
    if request.suite is None and request.kernels is None and request.methods is None and not request.plugins and level is not LevelName.CP:
        raise BadInput(f"name a suite ({', '.join(suites.names())}, or a TOML file), or give --kernels.")
    load_masks(request.plugin_files)
    usual = SHAPES[devices.named(request.device)] if level is not LevelName.CP else {}
    suite = suites.find(str(request.suite)) if request.suite is not None else Suite(**usual)
    suite = suite_of(request, suite).changed(level=level)
    suite = suites.with_clock(suite, clock_settings(request))
    limits = {name: value for name, value in (("memory", request.memory), ("workers", request.workers)) if value is not None}
    suite = suite.changed(limits=replace(suite.limits, **limits).with_deadline(request.deadline))
    check_suite(request, suite)
    _refuse_conflicts(request, suite)
    _refuse_baseline(request)
    return suite


def _refuse_values(request: RunRequest) -> None:
    """Refuses words that argparse refuses on the command line, and numbers out of range; `takes` refuses other types."""
    for name, known in (("retry", ("failed",)), ("level", LEVELS)):
        value = getattr(request, name)
        if value is not None and value not in known:
            raise unknown(name, str(value), list(known))
    refuse_no_ranks(request.nproc)
    for name in ("budget", "energy", "deadline", "stop_after"):
        refuse_no_seconds(name, getattr(request, name))


def refuse_no_seconds(name: str, value: float | None) -> None:
    if value is not None and not 0 < value <= MOST_S:
        raise BadInput(f"--{name.replace('_', '-')} must be a number of seconds over 0, not {value}; give {MOST_S:g} at most.")


def _refuse_conflicts(request: RunRequest, suite: Suite) -> None:
    """Refuses settings that would have no effect."""
    beside = _given(request, STEPS_SAY) if request.workload is not None else []
    if beside:
        raise BadInput(f"a workload has its own masks and lengths, so it takes no {' and no '.join(beside)}; leave out one or the other.")
    ranks = _given(request, CP_ONLY) if str(suite.level) != "cp" else []
    if ranks:
        verb, them = ("is", "it") if len(ranks) == 1 else ("are", "them")
        raise BadInput(f"{' and '.join(ranks)} {verb} for context parallelism; add --level cp, or leave {them} out.")
    if request.dense is not None and (suite.level == "cp" or not any(map(has_blocks, suite.mask_names))):
        raise BadInput("--dense is a baseline for block patterns on one device, and none is asked for; leave it out.")
    energy_s = clock_settings(request).get("energy_s")
    if energy_s and suite.level == "cp":
        raise BadInput("--energy is measured for kernels on one device, not for context parallelism; leave it out.")
    if suite.cudagraph and (suite.level == "cp" or devices.named(request.device) != "cuda"):
        raise BadInput("--cudagraph captures the calls of kernels on one GPU; leave it out.")
    if energy_s and energy_s < LEAST_S:
        raise BadInput(f"--energy must be {LEAST_S:g} second or more, not {energy_s:g}; energy is counted over that long at least.")


def _given(request: RunRequest, names: Iterable[str]) -> list[str]:
    """The flags of those fields that have a value."""
    return [FLAGS.get(name, f"--{name}") for name in names if getattr(request, name) not in (None, {})]


def _refuse_baseline(request: RunRequest) -> None:
    """Refuses settings of a baseline that is not there, and odd names, before anything is measured."""
    if request.baseline is not None:
        from longca.compare.baseline import baseline_folder

        baseline_folder(request.baseline)
    elif request.renew_baseline or request.threshold is not None:
        given = "--renew-baseline" if request.renew_baseline else "--threshold"
        raise BadInput(f"{given} is for a baseline; add --baseline NAME, or leave it out.")
    if request.threshold is not None:
        from longca.api.compare import parse_threshold

        parse_threshold(request.threshold)
    if request.baseline is not None and request.shard is not None:
        raise BadInput("a shard is a part of a run, so it is not compared with a baseline; leave out --shard or --baseline.")


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
