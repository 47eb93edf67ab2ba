"""Options of methods: whole numbers by name, such as stages=4, beside the grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from longca.errors import Refused
from longca.parallel.grid import Grid, divisors

if TYPE_CHECKING:
    from longca.parallel.method import Method

FRAMEWORK = True

Options = Mapping[str, int]
MOST = 1 << 16


@dataclass(frozen=True)
class Option:
    """A whole number from `least` on. `default` is None where the grid says it; `choices` are the values that a search for the best
    tries."""

    name: str
    default: int | None
    about: str
    choices: tuple[int, ...] = ()
    least: int = 1


WINDOWS = Option("windows", None, "windows of the ring, the third number of the grid")
STAGES = Option(
    "stages",
    2,
    "parts in which remote keys come, each beside the attention over the part before; 0: one call over all keys, unless relays are needed",
    (0, 1, 2, 4),
    least=0,
)
NODE = Option("node", 1, "neighbouring ranks that share a node; keys of another node come to it once, and a relay passes them on")
NODE_OF_SUMS = replace(NODE, about="neighbouring ranks that share a node; on GPUs sums over several nodes travel in fp32, 1: as they are")


def settle(method: Method, grid: Grid, given: Options) -> tuple[Grid, dict[str, int]]:
    """The grid with the windows that were given as an option, and the other options of the method with their defaults."""
    known = {option.name: option for option in method.options}
    for name, value in given.items():
        if name not in known:
            own = f"use {', '.join(sorted(known))}" if known else "leave it out"
            raise Refused(f"{method.name} cannot do this: it has no option {name!r}; {own}.")
        least = known[name].least
        if type(value) is not int or not least <= value <= MOST:
            about = known[name].about
            raise Refused(f"{method.name} cannot do this: {name} ({about}) is {value!r}; use a whole number from {least} to {MOST}.")
    if "windows" in given:
        grid = _with_windows(method, grid, given["windows"])
    return grid, {option.name: given.get(option.name, option.default) for option in method.options if option.default is not None}


def _with_windows(method: Method, grid: Grid, windows: int) -> Grid:
    if grid.ring % windows:
        fitting = " or ".join(map(str, divisors(grid.ring)))
        longer = [ring for ring in divisors(grid.ranks) if ring % windows == 0] if method.has_columns else []
        fitting += f", or grid {grid.ranks // longer[0]}x{longer[0]}" if longer else ""
        raise Refused(f"{method.name} cannot do this: {windows} windows do not divide a ring of {grid.ring}; use windows={fitting}.")
    return Grid(grid.heads, grid.ring, windows)


def text_of(method: Method, options: Options) -> str:
    """The options that differ from the method's defaults: stages=4. Windows are left out, as the grid says them."""
    usual = {option.name: option.default for option in method.options}
    return ",".join(f"{name}={value}" for name, value in sorted(options.items()) if name != "windows" and value != usual.get(name))


def parse(text: str) -> dict[str, int]:
    """The options of a text that `text_of` made."""
    return {name: int(value) for name, _, value in (entry.partition("=") for entry in text.split(",") if entry)}
