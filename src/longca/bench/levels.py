"""The levels of measuring, and where the parts of each live. A new level is a new line here and the files it names."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Level:
    """Parts as module:name, imported when needed: a worker needs none of the parent's, and the parent nothing of torch."""

    catalogue: str  # (suite, plugins, device, only_named) -> Catalogue: what there is to measure
    executor: str  # (suite, catalogue, device, device_model, cache, full) -> Executor: who runs jobs
    measure: str = ""  # (cells, session) -> pairs of (pass, fields): one job, inside a worker, where the executor has such
    check: str = ""  # the same without timing, for `longca verify`
    cells: str = "longca.bench.plan:cells"  # (suite, kernels, device, steps) -> cells
    admit: str = "longca.bench.plan:admit"  # (planned, suite, device, only_named): raises where nothing can come of a run


ONE_DEVICE = Level(
    "longca.bench.catalogue:catalogue", "longca.bench.pool:Pool", "longca.bench.kernel_job:measure", "longca.bench.verify:check_job"
)
MANY_DEVICES = Level(
    "longca.bench.cp_catalogue:catalogue",
    "longca.bench.cp_executor:Ranks",
    cells="longca.bench.cp_catalogue:cells",
    admit="longca.bench.cp_catalogue:admit",
)
LEVELS = {"kernel": ONE_DEVICE, "sparse": ONE_DEVICE, "cp": MANY_DEVICES}


def part(level: str, name: str) -> Any:
    module, _, attribute = getattr(LEVELS[level], name).partition(":")
    return getattr(import_module(module), attribute)
