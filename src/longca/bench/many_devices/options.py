"""Which options each method gets: those of the suite that it has."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from longca.bench.plan.suite import Suite
from longca.errors import BadInput, Refused
from longca.kernels.base import Case
from longca.parallel import options, registry
from longca.parallel.grid import Grid
from longca.parallel.method import Method
from longca.text import parse_list


def refuse_options(suite: Suite, methods: Sequence[str]) -> None:
    """Refuses an option that none of the methods has, and windows that the grid says as well."""
    if "windows" in suite.options and any(Grid.parse(text).windows > 1 for text in parse_list(suite.grid)):
        raise BadInput(f"the grid {suite.grid} and the option windows both say the windows; give one of them.")
    known = {option.name for name in methods for option in registry.get(name).options}
    for name in suite.options:
        if name not in known:
            own = f"they have {', '.join(sorted(known))}" if known else "they have none"
            raise BadInput(f"none of these methods has an option {name!r}; {own}, and `longca ls cp` shows those of all methods.")


def options_of(method: Method, case: Case, grid: Grid, suite: Suite, ranks_per_node: int) -> list[tuple[str, str]]:
    """The grid and the options of each combination of values that the suite has for this method, each once. What the suite does not say
    may follow from heads and nodes."""
    usual = method.default_options(case.group, grid.ranks, ranks_per_node)
    own = {option.name for option in method.options}
    axes = [[(name, value) for value in _values(values)] for name, values in suite.options.items() if name in own]
    return list(dict.fromkeys(_settled(method, grid, usual | dict(chosen)) for chosen in itertools.product(*axes)))


def _settled(method: Method, grid: Grid, chosen: dict[str, int]) -> tuple[str, str]:
    try:
        with_windows, _ = options.settle(method, grid, chosen)
    except Refused:  # as it will be again when the cell is planned, beside others that can be measured
        return str(Grid(grid.heads, grid.ring)), ",".join(f"{name}={value}" for name, value in sorted(chosen.items()))
    return str(with_windows), options.text_of(method, chosen)


def _values(given: int | list[int]) -> list[int]:
    return given if isinstance(given, list) else [given]
