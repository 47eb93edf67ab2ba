"""Finding methods: every module of `methods/`, every plugin file, every installed entry point. None of it imports torch."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from longca.errors import unknown
from longca.kernels.base import Case
from longca.masks import AnyMask
from longca.parallel import methods
from longca.parallel.grid import Grid
from longca.parallel.method import KERNEL, RANKS_PER_NODE, Method, Plan, make_plan
from longca.plugins import defined_in, import_file, refuse_taken, refuse_twice

_plugins: dict[str, type[Method]] = {}


@cache
def _own() -> dict[str, type[Method]]:
    found: dict[str, type[Method]] = {}
    for module in pkgutil.iter_modules(methods.__path__):
        found |= defined_in(importlib.import_module(f"longca.parallel.methods.{module.name}"), Method)
    return found


@cache
def _installed() -> dict[str, type[Method]]:
    found: dict[str, type[Method]] = {}
    for entry in entry_points(group="longca.methods"):
        found |= defined_in(entry.load(), Method)
    return found


def load_plugin(path: str | Path) -> list[str]:
    """Take the methods of a user's file; returns their names."""
    found = defined_in(import_file(path, "method"), Method)
    refuse_taken(found, _own(), path, "method")
    refuse_twice(found, _plugins, path, "method")
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
    """For `longca ls cp`: every method, what it does, what it needs, and whether it takes block patterns."""
    found = ((name, classes()[name]) for name in names())
    return [{"name": name, "about": of.about, "needs": of.needs, "blocks": "no" if of.no_blocks else "yes"} for name, of in found]
