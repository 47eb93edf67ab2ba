"""What a user asks for: a suite from a TOML file, changed by flags, checked, and written back as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from longca import lengths, masks
from longca.errors import BadInput, unknown
from longca.lengths.packers import PACKERS
from longca.masks.pattern import LARGEST_SEED
from longca.parallel.grid import Grid
from longca.results.metrics import DTYPES
from longca.results.problem import Pass
from longca.results.record import LevelName
from longca.results.settings import ClockSettings, Limits
from longca.text import parse_dims, parse_heads, parse_size

WORKERS = ("kernel", "one")
LEAST_MEMORY = 1 << 30  # torch alone takes a good part of it
MOST_SEEDS = 10_000
Seed = Annotated[int, Meta(ge=0, le=LARGEST_SEED)]
Number = int | float
T = TypeVar("T")


class Suite(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A grid of cells: every kernel, mask, length, shape, dtype, pass and seed with every other."""

    about: str = ""
    kernels: tuple[str, ...] = ("all",)
    without: tuple[str, ...] = ()  # what `all` leaves out
    masks: tuple[str, ...] = ("all",)
    dense: tuple[str, ...] = ()  # kernels that run the dense mask beside block patterns, to show from which ratio on sparse wins
    seqlens: tuple[str | int, ...] = ("1K",)
    heads: tuple[str | int, ...] = ("64:8",)
    head_dims: tuple[str | int, ...] = ("128",)
    dtypes: tuple[str, ...] = ("bf16",)
    passes: tuple[Pass, ...] = (Pass.FWD, Pass.BWD)
    seeds: tuple[Seed, ...] | Annotated[int, Meta(ge=1, le=MOST_SEEDS)] = (0,)  # which, or how many
    deterministic: bool = False
    softcap: Annotated[float, Meta(ge=0, le=1e6)] = 0.0  # scores s become softcap * tanh(s / softcap); 0: they stay
    sinks: bool = False  # one learned logit per query head in the softmax's denominator
    scale: Annotated[float, Meta(ge=-1e6, le=1e6)] = 0.0  # of scores; 0: 1/sqrt(head size)
    cudagraph: bool = False  # on one GPU, calls are captured in a CUDA graph, and its replay is timed
    distribution: str = ""
    packing: str = ""
    documents: str | tuple[Annotated[int, Meta(ge=1)], ...] = ""  # lengths instead of drawn ones, or a file with them
    source: str = "random"  # of block patterns: random scores, or a rule that selects blocks by q and k
    level: LevelName = LevelName.KERNEL
    methods: tuple[str, ...] = ("all",)  # of the level cp, like the next six
    nproc: Annotated[int, Meta(ge=0, le=1 << 20)] = 0  # ranks; 0: one per GPU, or as many as the launched job has
    ranks_per_gpu: Annotated[int, Meta(ge=1, le=16)] = 1  # NCCL ranks that share a GPU
    pretend_nodes: Annotated[int, Meta(ge=1, le=1 << 10)] = 1  # that NCCL takes the ranks of this machine for
    grid: str = ""  # UxR or UxRxW, or both with a comma between; empty: each method's own
    options: dict[str, int | list[int]] = {}  # of the methods that have them; a list of values is one more axis
    per_rank: bool = False  # whether seqlens are tokens of each rank
    params: dict[str, dict[str, Number | list[Number]]] = {}  # per mask; a list of values is one more axis
    clock: ClockSettings = ClockSettings()
    limits: Limits = Limits()

    def changed(self, **given: Any) -> Suite:
        """The suite with the values that are not None."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    @property
    def seed_list(self) -> tuple[int, ...]:
        return self.seeds if isinstance(self.seeds, tuple) else tuple(range(self.seeds))

    @property
    def mask_names(self) -> list[str]:
        return masks.expand(self.masks)

    @property
    def document_lengths(self) -> tuple[int, ...]:
        return tuple(lengths.read_lengths(self.documents)) if isinstance(self.documents, str) else self.documents

    def params_of(self, mask: str) -> dict[str, Number | list[Number]]:
        """The parameters of a mask; an expression may be written in several ways."""
        return {setting: value for name, given in self.params.items() if masks.find(name).name == mask for setting, value in given.items()}

    @property
    def lengths(self) -> list[int]:
        return sorted(parse_size(str(size)) for size in self.seqlens)

    @property
    def quadratic_length(self) -> int:
        return parse_size(self.limits.quadratic)


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


def read(path: Path) -> Suite:
    suite = read_toml(path, Suite)
    try:
        check(suite)
    except BadInput as error:  # the message about a value does not name the file
        raise BadInput(f"{path}: {error}") from error
    return suite


def read_toml(path: Path, kind: type[T]) -> T:
    """A TOML file as a struct; an error names the file, the field and what it may be."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not a text file'}.") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{path} is not TOML: {error}.") from error
    return convert(values, kind, str(path))


def with_params(suite: Suite, given: Mapping[str, Sequence[Number]]) -> Suite:
    """The suite with these parameters for all of its masks that have them."""
    params = {mask: dict(values) for mask, values in suite.params.items()}
    for name, values in given.items():
        owners = [mask for mask in suite.mask_names if name in masks.find(mask).defaults]
        if not owners:
            raise BadInput(f"none of these masks has a parameter {name!r}; `longca ls masks` shows which they have.")
        for mask in owners:
            params.setdefault(mask, {})[name] = list(values) if len(values) > 1 else values[0]
    return suite.changed(params=params)


def with_options(suite: Suite, given: Mapping[str, Sequence[Number]]) -> Suite:
    """The suite with these options of methods, as a user typed them."""
    for name, values in given.items():
        for value in values:
            if not isinstance(value, int):
                raise BadInput(f"the option {name} must be a whole number, not {value}.")
    options = {name: list(values) if len(values) > 1 else values[0] for name, values in given.items()}
    return suite.changed(options=suite.options | options)


def with_clock(suite: Suite, given: Mapping[str, Number]) -> Suite:
    """The suite with these clock settings, as a user typed them."""
    return suite.changed(clock=convert(asdict(suite.clock) | dict(given), ClockSettings, "--clock"))


def check(suite: Suite) -> None:
    """Refuses what no cell can be made of, before anything is measured."""
    convert(msgspec.to_builtins(suite), Suite)  # flags have changed single values
    if suite.source not in masks.SOURCES:
        raise unknown("source of block patterns", suite.source, list(masks.SOURCES))
    for axis in ("kernels", "masks", "seqlens", "heads", "head_dims", "dtypes", "passes", "seeds", "methods"):
        if not getattr(suite, axis):
            raise BadInput(f"the suite has no {axis}; give at least one.")
    expanded = suite.mask_names
    _check_params(suite)
    _check_documents(suite, expanded)
    for dtype in suite.dtypes:
        if dtype not in DTYPES:
            raise unknown("dtype", dtype, list(DTYPES))
    for size in suite.seqlens:
        if parse_size(str(size)) < 1:
            raise BadInput(f"a sequence length must be 1 or more, not {size}.")
    for text in suite.heads:
        parse_heads(str(text))
    for text in suite.head_dims:
        parse_dims(str(text))
    _check_grids(suite.grid)
    for name, values in suite.options.items():
        if values == []:
            raise BadInput(f"options: {name} has no values; give one, or a list of some.")
    if suite.distribution:
        lengths.find(suite.distribution)
    if suite.packing and suite.packing not in PACKERS:
        raise unknown("packing", suite.packing, list(PACKERS))
    if suite.limits.memory and parse_size(suite.limits.memory) < LEAST_MEMORY:
        raise BadInput(f"a worker needs 1G of memory or more, not {suite.limits.memory}.")
    parse_size(suite.limits.quadratic)
    if suite.limits.workers not in WORKERS:
        raise unknown("kind of workers", suite.limits.workers, list(WORKERS))


def _check_params(suite: Suite) -> None:
    for name, settings in suite.params.items():
        for setting, value in settings.items():
            values = value if isinstance(value, list) else [value]
            if not values:
                raise BadInput(f"params.{name}: {setting} has no values; give one, or a list of some.")
            for number in values:
                masks.find(name).check({setting: number})


def refuse_without_documents(what: str, names: Sequence[str]) -> None:
    """Raises BadInput where something about documents is given, and no mask has any."""
    if not any(masks.find(name).has_documents for name in names):
        raise BadInput(f"{what} given, and none of these masks has documents; leave {'them' if what.endswith('are') else 'it'} out.")


def _check_documents(suite: Suite, names: Sequence[str]) -> None:
    if not suite.documents:
        return
    if suite.distribution or suite.packing:
        raise BadInput("document lengths are given, or drawn by a distribution and a packing, not both; leave out one of them.")
    refuse_without_documents("document lengths are", names)
    lengths.fit(suite.document_lengths, max(suite.lengths))


def _check_grids(text: str) -> None:
    grids = text.split(",") if text else []
    for grid in grids:
        Grid.parse(grid)
    if len({grid.count("x") for grid in grids}) < len(grids):
        raise BadInput(f"the grid {text} names several of a kind; give one, or one UxR and one UxRxW.")


def to_toml(suite: Suite) -> str:
    """The suite as a file that `longca run FILE` takes."""
    settings = msgspec.to_builtins(suite)
    tables = {name: settings.pop(name) for name in ("clock", "limits", "options")}
    tables |= {f"params.{_key(mask)}": values for mask, values in settings.pop("params").items()}
    lines = [f"{name} = {_toml(value)}" for name, value in settings.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{setting} = {_toml(value)}" for setting, value in table.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    """A name as a key of TOML: an expression needs quotes."""
    return name if name.isidentifier() and name.isascii() else _toml(name)


def _toml(value: Any) -> str:
    """JSON is TOML for these values: texts, numbers, booleans and lists of them."""
    return msgspec.json.encode(value).decode()


def convert(values: Any, kind: type[T], where: str = "") -> T:
    """The values as a struct; raises BadInput with the place, the field, and what msgspec says of it. Flags that a user
    typed have no place."""
    if isinstance(values, Mapping):
        _refuse_unknown(values, kind, where)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$.")
        field = place.rstrip("`")
        given = values.get(field) if isinstance(values, Mapping) else None
        words += f", not {given!r}" if isinstance(given, str | int | float) and "got" not in words else ""
        raise BadInput(": ".join(part for part in (where, field, f"{words}.") if part)) from error


def _refuse_unknown(values: Mapping[str, Any], kind: type[Any], where: str) -> None:
    """Refuses names that the struct, or a struct in it, does not have."""
    known = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in values.items():
        if name not in known:
            raise unknown(f"setting in {where}:", name, list(known))
        if isinstance(value, Mapping) and isinstance(known[name], type) and issubclass(known[name], msgspec.Struct):
            _refuse_unknown(value, known[name], f"[{name}] of {where}")
