"""What a user asks for: a suite from a TOML file, changed by flags, checked, and written back as TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from longca.bench.clock import Settings
from longca.bench.levels import LEVELS
from longca.errors import BadInput, unknown
from longca.parallel.grid import Grid
from longca.text import parse_dims, parse_heads, parse_size

DTYPES = ("bf16", "fp16", "fp32", "fp64")
PASSES = ("fwd", "bwd", "fwd+bwd")
WORKERS = ("kernel", "one")


@dataclass(frozen=True)
class Limits:
    """Seconds that a step of a cell may take before its worker is killed, and what else is bounded."""

    start_s: float = 120.0
    build_s: float = 300.0
    check_s: float = 180.0
    time_s: float = 120.0
    memory: str = ""  # of the host, per worker, such as 16G; empty: most of what is free
    quadratic: str = "8K"  # longest sequence for what needs memory in O(S²); --full lifts it
    workers: str = "kernel"  # a process per kernel, or "one" for all: faster where references are large, as they stay in its memory


@dataclass(frozen=True)
class Suite:
    """A grid of cells: every kernel, mask, length, shape, dtype, pass and seed with every other."""

    about: str = ""
    kernels: tuple[str, ...] = ("all",)
    without: tuple[str, ...] = ()  # what `all` leaves out
    masks: tuple[str, ...] = ("all",)
    seqlens: tuple[str, ...] = ("1K",)
    heads: tuple[str, ...] = ("64:8",)
    head_dims: tuple[str, ...] = ("128",)
    dtypes: tuple[str, ...] = ("bf16",)
    passes: tuple[str, ...] = ("fwd", "bwd")
    seeds: tuple[int, ...] = (0,)
    deterministic: bool = False
    distribution: str = ""
    packing: str = ""
    level: str = "kernel"
    methods: tuple[str, ...] = ("all",)  # of the level cp, like the next three
    nproc: int = 0  # ranks; 0: one per GPU, or as many as the job has that this is part of
    grid: str = ""  # UxR or UxRxW; empty: each method's own
    per_rank: bool = False  # whether seqlens are tokens of each rank
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # per mask; a list of values is one more axis
    clock: Settings = field(default_factory=Settings)
    limits: Limits = field(default_factory=Limits)

    def changed(self, **given: Any) -> Suite:
        """With the values that are not None."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


def folder(kind: str) -> Path:
    """Where the package keeps its suites and models."""
    return Path(str(resources.files("longca"))) / kind


def names(kind: str = "suites") -> list[str]:
    return sorted(path.stem for path in folder(kind).glob("*.toml"))


def find(name: str) -> Suite:
    """A suite of the package by name, or a user's file by path."""
    if name in names():
        return read(folder("suites") / f"{name}.toml")
    if name.endswith(".toml") or "/" in name:
        return read(Path(name))
    raise unknown("suite", name, names())


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not a text file'}.") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not TOML: {error}.") from error


def read(path: Path) -> Suite:
    given = read_toml(path)
    return from_table(given, str(path))


def from_table(given: Mapping[str, Any], where: str) -> Suite:
    known = [entry.name for entry in fields(Suite)]
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise unknown(f"setting in {where}:", name, known)
        values[name] = _value(name, value, where)
    suite = Suite(**values)
    check(suite)
    return suite


def _value(name: str, value: Any, where: str) -> Any:
    if name in ("clock", "limits"):
        kind = Settings if name == "clock" else Limits
        known = {entry.name: entry.default for entry in fields(kind)}
        for setting, given in _table(name, value, where).items():
            if setting not in known:
                raise unknown(f"{name} setting in {where}:", setting, list(known))
            text = isinstance(known[setting], str)
            if isinstance(given, bool) or not isinstance(given, str if text else (int, float)):
                raise BadInput(f"{where}: {name}.{setting} must be a {'text' if text else 'number'}, not {given!r}.")
        return kind(**value)
    if name == "params":
        return {mask: dict(_table(f"params.{mask}", settings, where)) for mask, settings in _table(name, value, where).items()}
    if name == "seeds":
        return tuple(range(value)) if isinstance(value, int) else tuple(value)
    if name in ("about", "distribution", "packing", "level", "deterministic", "nproc", "grid", "per_rank"):
        return value
    if not isinstance(value, list):
        raise BadInput(f"{where}: {name} must be a list, not {value!r}.")
    return tuple(str(entry) for entry in value)


def _table(name: str, value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{where}: {name} must be a table, not {value!r}.")
    return value


def check(suite: Suite) -> None:
    """Refuse what no cell can be made of, before anything is measured."""
    from longca import masks

    if suite.level not in LEVELS:
        raise unknown("level", suite.level, list(LEVELS))
    for axis in ("kernels", "masks", "seqlens", "heads", "head_dims", "dtypes", "passes", "seeds", "methods"):
        if not getattr(suite, axis):
            raise BadInput(f"the suite has no {axis}; give at least one.")
    for name in suite.masks:
        if name != "all":
            masks.find(name)
    for name, settings in suite.params.items():
        for setting, value in settings.items():
            for one in value if isinstance(value, (list, tuple)) else [value]:
                masks.find(name).check({setting: one})
    for name, known, values in (("dtype", DTYPES, suite.dtypes), ("pass", PASSES, suite.passes)):
        for value in values:
            if value not in known:
                raise unknown(name, value, list(known))
    for seed in suite.seeds:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise BadInput(f"a seed must be a whole number of 0 or more, not {seed!r}.")
    for size in suite.seqlens:
        if parse_size(size) < 1:
            raise BadInput(f"a sequence length must be 1 or more, not {size}.")
    for text in suite.heads:
        parse_heads(text)
    for text in suite.head_dims:
        parse_dims(text)
    if isinstance(suite.nproc, bool) or not isinstance(suite.nproc, int) or suite.nproc < 0:
        raise BadInput(f"nproc must be a whole number of ranks, not {suite.nproc!r}.")
    if suite.grid:
        Grid.parse(suite.grid)
    if suite.limits.memory:
        parse_size(suite.limits.memory)
    parse_size(suite.limits.quadratic)
    if suite.limits.workers not in WORKERS:
        raise unknown("kind of workers", suite.limits.workers, list(WORKERS))
    if suite.clock.least < 1 or suite.clock.most < suite.clock.least:
        raise BadInput(f"the clock needs 1 <= least <= most, not least={suite.clock.least} and most={suite.clock.most}.")


def to_toml(suite: Suite) -> str:
    """The suite as a file that `longca run FILE` takes."""
    settings = asdict(suite)
    tables = {name: settings.pop(name) for name in ("clock", "limits")}
    tables |= {f"params.{mask}": values for mask, values in settings.pop("params").items()}
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{setting} = {json.dumps(value)}" for setting, value in table.items())]
    return "\n".join(lines) + "\n"
