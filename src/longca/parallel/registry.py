"""The list of methods: those of `methods/`, of plugin files and of installed entry points. Nothing here imports torch."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from longca.code_version import module_path, of_module, recording_imports
from longca.errors import unknown
from longca.kernels.base import Case, No
from longca.masks import AnyMask
from longca.parallel import methods
from longca.parallel.grid import Grid
from longca.parallel.method import KERNEL, RANKS_PER_NODE, Method, Plan, make_plan
from longca.parallel.options import Options
from longca.plugins import defined_in, files_of, import_file, refuse_taken, refuse_twice

FRAMEWORK = True

TRANSPORT = "longca.parallel.comm.distributed"  # the one that is timed
_plugins: dict[str, type[Method]] = {}


@cache
def _own() -> dict[str, type[Method]]:
    """Returns the methods of LongCA: every module of `methods/` is searched."""
    own: dict[str, type[Method]] = {}
    for module in pkgutil.iter_modules(methods.__path__):
        own |= defined_in(importlib.import_module(f"longca.parallel.methods.{module.name}"), Method)
    return own


@cache
def _installed() -> dict[str, type[Method]]:
    """Returns the methods of installed packages."""
    installed: dict[str, type[Method]] = {}
    for entry in entry_points(group="longca.methods"):
        with recording_imports(entry.value.partition(":")[0]):
            installed |= defined_in(entry.load(), Method)
    return installed


def load_plugin(path: str | Path) -> list[str]:
    """Adds the methods of a user's file and returns their names."""
    defined = defined_in(import_file(path, "method"), Method)
    refuse_taken(defined, _own(), path, "method")
    refuse_twice(defined, files_of(_plugins), path, "method")
    _plugins.update(defined)
    return list(defined)


def classes() -> dict[str, type[Method]]:
    """Returns all methods by name."""
    return {**_own(), **_installed(), **_plugins}


def names() -> list[str]:
    """Returns the names of the methods in the order of listings: by `Method.order`, then by name; without those of other projects."""
    return _in_order(peers=False)


def peers() -> list[str]:
    """Returns the names of other projects' methods, in the order of listings."""
    return _in_order(peers=True)


def _in_order(peers: bool) -> list[str]:
    chosen = [name for name, method in classes().items() if (method.peer or method.balancer) == peers]
    return sorted(chosen, key=lambda name: (classes()[name].order, name))


def get(name: str) -> Method:
    if name not in classes():
        raise unknown("context parallel method", name, names() + peers())
    return classes()[name]()


def code_version(name: str) -> str:
    """Returns the version of a method's code: its file, what it imports of primitives, sharding and schedules, and the transport."""
    module, transport = classes()[name].__module__, module_path(TRANSPORT)
    assert transport is not None
    return of_module(Path(str(sys.modules[module].__file__)), module, modules=[transport])


def plan(
    name: str,
    mask: AnyMask,
    case: Case,
    ranks: int,
    grid: str = "",
    kernel: str = KERNEL,
    ranks_per_node: int = RANKS_PER_NODE,
    options: Options | None = None,
) -> Plan:
    """Returns what the ranks will do, or raises Refused with the reason and a suggestion. `grid` is UxR[xW]; empty: the method's
    default. `options` are those of the method, such as {"stages": 4}."""
    return make_plan(get(name), mask, case, ranks, Grid.parse(grid) if grid else None, kernel, ranks_per_node, options=options)


def listing() -> list[dict[str, Any]]:
    """Returns for `longca ls cp` what each method does, what it needs, its options, whether it is installed, and whether it takes block
    patterns."""
    ordered = ((name, classes()[name]) for name in names() + peers())
    return [
        {
            "name": name,
            "about": method.about,
            "needs": method.needs,
            "blocks": "no" if method.no_blocks else "yes",
            "options": ", ".join(option.name if option.default is None else f"{option.name}={option.default}" for option in method.options),
            "here": here.reason if isinstance(here := method().available(), No) else "yes",
        }
        for name, method in ordered
    ]
