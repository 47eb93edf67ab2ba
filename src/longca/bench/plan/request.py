"""What a verb is asked for, in Python or on the command line, and the suite that it means.

Each verb has one dataclass, whose fields are the parameters of its Python function and have the names of the flags; None: not given.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

from longca.bench.plan.suite import MOST_SEEDS, Suite, check, refuse_without_documents, with_options, with_params
from longca.bench.plan.workload import with_model
from longca.errors import BadInput
from longca.masks.pattern import check_seed
from longca.results.problem import parse_pass
from longca.text import parse_list, short

Number = int | float
Texts = str | int | Iterable[Any]  # one entry, or several; a text may hold several between commas
LISTS = ("kernels", "masks", "dense", "seqlens", "heads", "head_dims", "dtypes", "methods")
VALUES = ("distribution", "packing", "deterministic", "source", "softcap", "sinks", "scale", "cudagraph")
RANKS = ("nproc", "ranks_per_gpu", "pretend_nodes", "grid")
DIGITS = 18  # of a seed
MOST_RANKS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class MaskSettings:
    """Parameters of masks, and where the lengths of their documents come from."""

    params: Mapping[str, Number | Iterable[Number]] | None = None  # of the masks that have them; verbs of one mask take one value each
    documents: str | Path | Sequence[int] | None = None  # lengths instead of drawn ones, or a file with them
    distribution: str | None = None
    packing: str | None = None


@dataclass(frozen=True, kw_only=True)
class Request(MaskSettings):
    """Parameters that several verbs share."""

    model: str | None = None
    softcap: float | None = None  # scores become softcap * tanh(score / softcap)
    sinks: bool | None = None  # a learned logit per query head
    scale: float | None = None  # of the scores, where it is not 1/sqrt(head size)
    plugins: Texts = ()

    @property
    def plugin_files(self) -> list[str]:
        return texts("plugins", self.plugins) if self.plugins else []


@dataclass(frozen=True, kw_only=True)
class LocalRequest(Request):
    """Parameters of verbs that run kernels or methods on this machine; None: the default of the device."""

    heads: Texts | None = None
    head_dims: Texts | None = None
    dtypes: Texts | None = None
    device: str | None = None
    deadline: float | None = None


def suite_of(request: Request, suite: Suite) -> Suite:
    """The suite with what a request gives: first the shape of its model, then the values that stand beside it."""
    given: dict[str, Any] = {name: value for name, value in vars(request).items() if value is not None}
    lists: dict[str, Any] = {name: tuple(texts(name, given[name])) for name in LISTS if name in given}
    if request.model:
        suite = with_model(suite, request.model, lists.get("masks", ()))
    if "passes" in given:
        lists["passes"] = tuple(map(parse_pass, texts("passes", given["passes"])))
    suite = suite.changed(**lists, **{name: given[name] for name in VALUES + RANKS if name in given})
    suite = suite.changed(seeds=seeds_of(given.get("seed"), given.get("seeds")), documents=document_lengths(request.documents))
    return with_options(with_params(suite, axes("params", request.params)), axes("options", given.get("options")))


def check_suite(request: Request, suite: Suite) -> None:
    """Refuses what no cell can be made of, and settings that would have no effect."""
    check(suite)
    for name in ("distribution", "packing"):
        if getattr(request, name):
            refuse_without_documents(f"a {name} is", suite.mask_names)


def seeds_of(seed: int | None, seeds: Texts | None) -> tuple[int, ...] | int | None:
    """Which seeds, or how many: `seed` is that one seed; `seeds` is how many if it is a number, and which if it is a list."""
    if seed is not None and seeds is not None:
        raise BadInput("--seed N is one seed, and --seeds are how many or which; give one of the two.")
    if seeds is None:
        return None if seed is None else (check_seed(seed),)
    text = seeds if isinstance(seeds, str) else str(seeds) if isinstance(seeds, int) else ",".join([*texts("seeds", seeds), ""])
    entries, shown = parse_list(text), short(text, 40)
    if not entries or not all(entry.isdecimal() for entry in entries):
        raise BadInput(f"--seeds {shown} is not a list of seeds; write their number, such as 3, or a list, such as 42,43.")
    if "," not in text and (len(text) > DIGITS or not 1 <= int(text) <= MOST_SEEDS):
        raise BadInput(f"--seeds {shown} is how many seeds, from 1 to {MOST_SEEDS}; --seed {shown} is that one seed.")
    if any(len(entry) > DIGITS for entry in entries):
        raise BadInput(f"--seeds {shown} is too large; seeds have up to {DIGITS} digits.")
    return tuple(map(int, entries)) if "," in text else int(text)


def texts(name: str, value: Texts) -> list[str]:
    """The entries of a value as texts; raises BadInput where there is none."""
    if isinstance(value, str):
        entries = parse_list(value)
    elif isinstance(value, int | float | os.PathLike) and not isinstance(value, bool):
        entries = [str(value)]
    elif isinstance(value, Iterable) and not isinstance(value, Mapping | bytes):
        entries = [_entry(name, entry) for entry in value]
    else:
        raise BadInput(f"{name} must be a text, a number or a list of them, not {value!r}.")
    if not entries:
        raise BadInput(f"{name} is empty; give a value, or leave it out.")
    return entries


def _entry(name: str, entry: object) -> str:
    """A text of one entry; a pair such as (64, 8) is written 64:8."""
    if isinstance(entry, tuple) and len(entry) == 2 and all(isinstance(number, int) for number in entry):
        return f"{entry[0]}:{entry[1]}"
    if not isinstance(entry, str | int | float | os.PathLike) or isinstance(entry, bool) or not str(entry).strip():
        raise BadInput(f"{name} must be a text, a number or a list of them, and one entry is {entry!r}.")
    return str(entry).strip()


def axes(name: str, value: Mapping[str, Number | Iterable[Number]] | None) -> dict[str, list[Number]]:
    """Parameters with one or more values each."""
    if value is not None and not isinstance(value, Mapping):
        raise BadInput(f"{name} must be a dictionary such as {{'w': 512}}, not {value!r}.")
    named = dict[str, list[Number]]()
    for key, numbers in (value or {}).items():
        entries: list[Any] = list(numbers) if isinstance(numbers, list | tuple) else [numbers]
        if not entries or any(isinstance(number, bool) or not isinstance(number, int | float) for number in entries):
            raise BadInput(f"{name}[{key!r}] must be a number, or a list of some, not {numbers!r}.")
        named[key] = entries
    return named


def refuse_several_values(params: Mapping[str, Any] | None) -> None:
    """Refuses parameters with several values, of which `verify` takes one."""
    for name, values in axes("params", params).items():
        if len(values) > 1:
            given = ",".join(map(str, values))
            raise BadInput(f"verify takes one value per parameter, not {name}={given}; run it once per value, or use `longca run`.")


def refuse_no_ranks(ranks: object) -> None:
    if ranks is not None and not (isinstance(ranks, int) and 1 <= ranks <= MOST_RANKS):
        raise BadInput(f"--nproc must be 1 rank or more, not {ranks}; leave it out for one per GPU.")


def document_lengths(value: str | os.PathLike[str] | Iterable[int] | None) -> str | tuple[int, ...] | None:
    """The name of a file with lengths, or lengths."""
    if value is None or isinstance(value, str | os.PathLike):
        return None if value is None else os.fspath(value)
    lengths: list[Any] = list(value) if isinstance(value, Iterable) and not isinstance(value, Mapping | bytes) else []
    if not lengths or any(isinstance(length, bool) or not isinstance(length, Integral) or length < 1 for length in lengths):
        raise BadInput(f"documents must be a file, or a list of lengths of 1 token or more, not {value!r}.")
    return tuple(map(int, lengths))
