"""What a user asks for: a suite from a TOML file, changed by flags, checked, and written back as TOML."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from longca.bench.clock import Settings
from longca.bench.levels import LEVELS
from longca.bench.metrics import PASSES
from longca.errors import BadInput, unknown
from longca.parallel.grid import Grid
from longca.text import parse_dims, parse_heads, parse_size

DTYPES = ("bf16", "fp16", "fp32", "fp64")
WORKERS = ("kernel", "one")
LEAST_MEMORY = 1 << 30  # torch alone takes a good part of it


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

    def with_deadline(self, seconds: float | None) -> Limits:
        """The same for every step; but to start a process and to import torch is no step of a kernel's, and is given its usual time."""
        if seconds is None:
            return self
        return replace(self, start_s=max(self.start_s, seconds), build_s=seconds, check_s=seconds, time_s=seconds)


@dataclass(frozen=True)
class Suite:
    """A grid of cells: every kernel, mask, length, shape, dtype, pass and seed with every other."""

    about: str = ""
    kernels: tuple[str, ...] = ("all",)
    without: tuple[str, ...] = ()  # what `all` leaves out
    masks: tuple[str, ...] = ("all",)
    dense: tuple[str, ...] = ()  # kernels that run the dense mask beside block patterns, so that one sees from which ratio on sparse wins
    seqlens: tuple[str, ...] = ("1K",)
    heads: tuple[str, ...] = ("64:8",)
    head_dims: tuple[str, ...] = ("128",)
    dtypes: tuple[str, ...] = ("bf16",)
    passes: tuple[str, ...] = ("fwd", "bwd")
    seeds: tuple[int, ...] = (0,)
    deterministic: bool = False
    distribution: str = ""
    packing: str = ""
    source: str = "random"  # of block patterns: random scores, or a rule that selects blocks by q and k
    level: str = "kernel"
    methods: tuple[str, ...] = ("all",)  # of the level cp, like the next three
    nproc: int = 0  # ranks; 0: one per GPU, or as many as the job has that this is part of
    grid: str = ""  # UxR or UxRxW, or both with a comma between; empty: each method's own
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
    try:
        check(suite)
    except BadInput as error:  # what is wrong with a value knows nothing of the file
        raise BadInput(f"{where}: {error}") from error
    return suite


def _value(name: str, value: Any, where: str) -> Any:
    if name in ("clock", "limits"):
        kind = Settings if name == "clock" else Limits
        known: dict[str, Any] = {entry.name: entry.default for entry in fields(kind)}
        for setting, given in _table(name, value, where).items():
            if setting not in known:
                raise unknown(f"{name} setting in {where}:", setting, list(known))
            _same_kind(f"{name}.{setting}", given, known[setting], where)
        return kind(**{setting: type(known[setting])(given) for setting, given in value.items()})  # 1 of seconds is 1.0
    if name == "params":
        return {mask: dict(_table(f"params.{mask}", settings, where)) for mask, settings in _table(name, value, where).items()}
    if name == "seeds":
        return _seeds(value, where)
    default = next(entry.default for entry in fields(Suite) if entry.name == name)
    if not isinstance(default, tuple):
        _same_kind(name, value, default, where)
        return value
    if not isinstance(value, list):
        raise BadInput(f"{where}: {name} must be a list, not {value!r}.")
    for entry in value:
        if isinstance(entry, bool) or not isinstance(entry, (str, int)):
            raise BadInput(f"{where}: {name} must be a list of texts, and {entry!r} is none.")
    return tuple(str(entry) for entry in value)


def _same_kind(name: str, value: Any, default: Any, where: str) -> None:
    """Refuse a setting that is not of its default's kind; a number may be written as a whole one."""
    kinds = {bool: "true or false", str: "a text", int: "a whole number", float: "a number"}
    wanted = (int, float) if isinstance(default, float) else type(default)
    if not isinstance(value, wanted) or isinstance(value, bool) != isinstance(default, bool):
        raise BadInput(f"{where}: {name} must be {kinds[type(default)]}, not {value!r}.")


def _seeds(value: Any, where: str) -> tuple[int, ...]:
    if type(value) is int:
        return tuple(range(value))
    if not isinstance(value, list):
        raise BadInput(f"{where}: seeds must be a whole number (how many) or a list (which), not {value!r}.")
    return tuple(value)


def _table(name: str, value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{where}: {name} must be a table, not {value!r}.")
    return value


def with_params(suite: Suite, given: Mapping[str, Sequence[int | float]]) -> Suite:
    """The suite with these parameters for all of its masks that have them."""
    from longca import masks

    wanted = [name for mask in suite.masks for name in (masks.names() if mask == "all" else [mask])]
    params = {mask: dict(values) for mask, values in suite.params.items()}
    for name, values in given.items():
        owners = [mask for mask in wanted if name in masks.find(mask).defaults]
        if not owners:
            raise BadInput(f"none of these masks has a parameter {name!r}; `longca ls masks` shows which they have.")
        for mask in owners:
            params.setdefault(mask, {})[name] = list(values) if len(values) > 1 else values[0]
    return suite.changed(params=params)


def with_clock(suite: Suite, given: Mapping[str, int | float]) -> Suite:
    """The suite with these settings of its clock, as a user typed them."""
    checked = asdict(_value("clock", given, "--clock"))
    return suite.changed(clock=replace(suite.clock, **{name: checked[name] for name in given}))


def check(suite: Suite) -> None:
    """Refuse what no cell can be made of, before anything is measured."""
    from longca import lengths, masks
    from longca.lengths.packers import PACKERS

    if suite.level not in LEVELS:
        raise unknown("level", suite.level, list(LEVELS))
    if suite.source not in masks.SOURCES:
        raise unknown("source of block patterns", suite.source, list(masks.SOURCES))
    for axis in ("kernels", "masks", "seqlens", "heads", "head_dims", "dtypes", "passes", "seeds", "methods"):
        if not getattr(suite, axis):
            raise BadInput(f"the suite has no {axis}; give at least one.")
    for name in suite.masks:
        if name != "all":
            masks.find(name)
    for name, settings in suite.params.items():
        for setting, value in settings.items():
            if isinstance(value, (list, tuple)) and not value:
                raise BadInput(f"params.{name}: {setting} has no values; give one, or a list of some.")
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
    grids = suite.grid.split(",") if suite.grid else []
    for text in grids:
        Grid.parse(text)
    if len({text.count("x") for text in grids}) < len(grids):
        raise BadInput(f"the grid {suite.grid} names several of a kind; give one, or one UxR and one UxRxW.")
    if suite.distribution:
        lengths.find(suite.distribution)
    if suite.packing and suite.packing not in PACKERS:
        raise unknown("packing", suite.packing, list(PACKERS))
    check_limits(suite)


def check_limits(suite: Suite) -> None:
    """Refuse seconds, counts and sizes with which no cell could be measured."""
    if suite.limits.memory and parse_size(suite.limits.memory) < LEAST_MEMORY:
        raise BadInput(f"a worker needs 1G of memory or more, not {suite.limits.memory}.")
    parse_size(suite.limits.quadratic)
    if suite.limits.workers not in WORKERS:
        raise unknown("kind of workers", suite.limits.workers, list(WORKERS))
    for table, optional in ((suite.limits, ()), (suite.clock, ("warmup_s", "energy_s"))):
        for entry in fields(table):
            value = getattr(table, entry.name)
            if isinstance(entry.default, float) and not (math.isfinite(value) and (value > 0 or (value == 0 and entry.name in optional))):
                raise BadInput(f"{entry.name} must be a finite number over 0, not {value}.")
    if suite.clock.least < 1 or suite.clock.most < suite.clock.least:
        raise BadInput(f"the clock needs 1 <= least <= most, not least={suite.clock.least} and most={suite.clock.most}.")


def to_toml(suite: Suite) -> str:
    """The suite as a file that `longca run FILE` takes."""
    settings = asdict(suite)
    tables = {name: settings.pop(name) for name in ("clock", "limits")}
    tables |= {f"params.{mask}": values for mask, values in settings.pop("params").items()}
    lines = [f"{name} = {_toml(value)}" for name, value in settings.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{setting} = {_toml(value)}" for setting, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """JSON is TOML for these values, but for its pairs of surrogates: what lies beyond ASCII is written as it is."""
    return json.dumps(value, ensure_ascii=False)
