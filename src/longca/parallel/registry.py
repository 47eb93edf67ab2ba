"""Finding methods: every module of `methods/`, every plugin file, every installed entry point. None of it imports torch."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from longca.errors import BadInput, LongcaError, unknown
from longca.kernels.base import Case
from longca.masks import AnyMask
from longca.parallel import methods
from longca.parallel.grid import Grid
from longca.parallel.method import KERNEL, RANKS_PER_NODE, Method, Plan, make_plan

_plugins: dict[str, type[Method]] = {}


@cache
def _own() -> dict[str, type[Method]]:
    found: dict[str, type[Method]] = {}
    for module in pkgutil.iter_modules(methods.__path__):
        found |= _methods_in(importlib.import_module(f"longca.parallel.methods.{module.name}"))
    return found


@cache
def _installed() -> dict[str, type[Method]]:
    found: dict[str, type[Method]] = {}
    for entry in entry_points(group="longca.methods"):
        loaded = entry.load()
        found |= {loaded.name: loaded} if isinstance(loaded, type) and issubclass(loaded, Method) else _methods_in(loaded)
    return found


def _methods_in(module: Any) -> dict[str, type[Method]]:
    """The methods a module defines; those it only imports belong to another one."""
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Method)]
    return {found.name: found for found in classes if found.name and found.__module__ == module.__name__}


def load_plugin(path: str | Path) -> list[str]:
    """Take the methods of a user's file; returns their names."""
    path = Path(path).resolve()
    if not path.is_file():
        raise BadInput(f"there is no plugin file {path}; give the path of a Python file with a method in it.")
    spec = importlib.util.spec_from_file_location(f"longca_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except LongcaError:
        raise
    except Exception as error:
        raise BadInput(f"the plugin {path} fails when it is imported: {type(error).__name__}: {error}") from error
    found = _methods_in(module)
    for name in found:
        if name in _own():
            raise BadInput(f"the plugin {path} calls its method {name!r}, which is a method of LongCA; choose another name.")
    _plugins.update(found)
    return list(found)


def classes() -> dict[str, type[Method]]:
    return {**_own(), **_installed(), **_plugins}


def names() -> list[str]:
    order = ["ulysses", "ring_p2p", "ring_allgather", "usp", "loongtrain", "magi"]
    return sorted(classes(), key=lambda name: (order.index(name) if name in order else len(order), name))


def get(name: str) -> Method:
    if name not in classes():
        raise unknown("context parallel method", name, names())
    return classes()[name]()


def plan(
    name: str, mask: AnyMask, case: Case, ranks: int, grid: str = "", kernel: str = KERNEL, ranks_per_node: int = RANKS_PER_NODE
) -> Plan:
    """What the ranks will do, or a refusal with the reason and a suggestion. `grid` is UxR[xW]; empty: the method's default."""
    return make_plan(get(name), mask, case, ranks, Grid.parse(grid) if grid else None, kernel, ranks_per_node)


def listing() -> list[dict[str, Any]]:
    """For `longca ls cp`: every method, what it does and what it needs."""
    return [{"name": name, "about": classes()[name].about, "needs": classes()[name].needs} for name in names()]
