"""What a pattern is: a function from (Shape, parameters) to bands, and the decorator that makes it a named mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import numpy as np

from longca import lengths
from longca.errors import BadInput
from longca.masks.bands import Bands, Ints
from longca.masks.handle import constant
from longca.masks.mask import Mask


class Shape(NamedTuple):
    """What every pattern gets: the sequence length and, where it has documents, their lengths and prefix sums; and the seed."""

    seqlen: int
    lengths: tuple[int, ...]
    cu: Ints
    seed: int


class Draw(NamedTuple):
    """What a parameter may be drawn from: its own generator, the shape, and the parameters known so far."""

    rng: Random
    shape: Shape
    params: Mapping[str, int]


MORE = "more"  # the group of masks beyond the paper's
LONGEST = 1 << 61
LARGEST_SEED = 1 << 62
LARGEST = (1 << 63) - 1  # what a parameter may be: records hold 64-bit numbers

DRAWING = ("documents", "distribution", "packing")  # options of masks with documents: their lengths, or how these are drawn
Default = float | Callable[[Draw], int]
Lengths = Callable[[int, int, Mapping[str, Any]], Sequence[int]]


@dataclass(frozen=True)
class Pattern:
    """A static mask by name. Call it: `causal_document(32768, seed=0)`."""

    name: str
    group: str
    about: str
    bands: Callable[..., Bands]
    defaults: Mapping[str, Default]
    has_documents: bool
    own_lengths: Lengths | None
    module: str  # that defines it

    @constant
    def __call__(
        self,
        seqlen: int,
        *,
        seed: int = 0,
        documents: Sequence[int] | None = None,
        distribution: lengths.Distribution | str | None = None,
        packing: str | None = None,
        **params: int,
    ) -> Mask:
        """The mask over `seqlen` tokens. `documents` gives the lengths instead of drawing them; a parameter that is not given takes
        its default or is drawn from the seed."""
        seqlen, seed = check_seqlen(seqlen), check_seed(seed)
        self.check(params)
        params = {name: int(value) if value % 1 == 0 else value for name, value in params.items()}
        given: tuple[int, ...] = ()
        if self.has_documents:
            given = tuple(self._lengths(seqlen, seed, documents, distribution, packing, params))
        else:
            refuse_documents(self.name, documents, distribution, packing)
        shape = Shape(seqlen, given, np.append(0, np.cumsum(given, dtype=np.int64)), seed)
        known = self._known(shape, seed, params)
        about: dict[str, Any] = {"name": self.name, "params": known, "seed": seed, "documents": given if self.has_documents else None}
        return Mask.of(seqlen, seqlen, self.bands(shape, **known), **about)

    def check(self, params: Mapping[str, Any]) -> None:
        """Refuse parameters this mask does not have."""
        check_params(self.name, params, list(self.defaults))

    def _lengths(
        self,
        seqlen: int,
        seed: int,
        documents: Sequence[int] | None,
        distribution: lengths.Distribution | str | None,
        packing: str | None,
        params: Mapping[str, int],
    ) -> Sequence[int]:
        if documents is not None:
            if distribution is not None or packing is not None:
                raise BadInput(f"{self.name}: give document lengths, or a distribution and a packing to draw them, not both.")
            return lengths.fit(documents, seqlen)
        if self.own_lengths is not None and distribution is None and packing is None:
            fixed = {name: value for name, value in self.defaults.items() if not callable(value)}
            return self.own_lengths(seqlen, seed, {**fixed, **params})
        chosen = lengths.find(distribution) if isinstance(distribution, str) else distribution
        return lengths.pack(seqlen, seed, packing or "draw", chosen)

    def _known(self, shape: Shape, seed: int, given: Mapping[str, int]) -> dict[str, Any]:
        rng = Random(f"{self.name}/{seed}")
        known: dict[str, Any] = dict(given)
        for name, default in self.defaults.items():
            if name not in known:
                known[name] = default(Draw(rng, shape, known)) if callable(default) else default
        return {name: known[name] for name in self.defaults}


PATTERNS: dict[str, Pattern] = {}


def pattern(
    group: str, about: str, *, documents: bool = False, own_lengths: Lengths | None = None, **defaults: Default
) -> Callable[[Callable[..., Bands]], Pattern]:
    """Make a function a mask: its name is the mask's name, `defaults` its parameters (a number, or a function that draws one)."""

    def register(function: Callable[..., Bands]) -> Pattern:
        made = Pattern(
            function.__name__, group, about, function, defaults, documents or own_lengths is not None, own_lengths, function.__module__
        )
        PATTERNS[made.name] = made
        return made

    return register


def check_params(mask: str, given: Mapping[str, Any], known: list[str]) -> None:
    """Refuse parameters that a mask does not have, and values that are no 64-bit numbers."""
    for name, value in given.items():
        if name not in known:
            if name == "lengths":
                raise BadInput(f"{mask}: the lengths of documents are called documents, such as documents=[512, 512], not lengths.")
            there = f"it has {', '.join(known)}." if known else "it has none."
            raise BadInput(f"{mask} has no parameter {name!r}; {there}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value in (math.inf, -math.inf) or value != value:
            raise BadInput(f"{mask}: {name} must be a number, not {value!r}.")
        if abs(value) > LARGEST:
            raise BadInput(
                f"{mask}: {name} must be at most {LARGEST}, not {value!r}; a window or block longer than the sequence is all of it."
            )


def check_seqlen(seqlen: Any) -> int:
    """The sequence length as an int; refuses what is none."""
    if not isinstance(seqlen, int | float | np.integer) or not 1 <= seqlen < math.inf or seqlen % 1:
        raise BadInput(f"the sequence length must be a whole number of 1 or more, not {seqlen!r}.")
    if seqlen > LONGEST:
        raise BadInput(f"the sequence length must be at most {LONGEST}, which 64-bit numbers can hold twice, not {seqlen}.")
    return int(seqlen)


def check_seed(seed: Any) -> int:
    """The seed as an int; refuses what is none, and numbers that records do not take."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed <= LARGEST_SEED:
        raise BadInput(f"the seed (--seed) must be a whole number from 0 to {LARGEST_SEED}, not {seed!r}.")
    return int(seed)


def refuse_documents(mask: str, *given: object) -> None:
    """Refuse lengths, a distribution or a packing for a mask without documents: they would have no effect."""
    if any(item is not None for item in given):
        raise BadInput(f"{mask} has no documents, so it takes no lengths, no distribution and no packing.")


def without_documents(mask: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters among the options of a mask without documents."""
    refuse_documents(mask, *map(options.get, DRAWING))
    return {name: value for name, value in options.items() if name not in DRAWING}


def at_least(mask: str, name: str, value: float, least: int, most: int | None = None) -> None:
    """Refuse a parameter outside its range."""
    if value < least or (most is not None and value > most) or value % 1 != 0:
        wanted = f"a whole number from {least} to {most}" if most is not None else f"a whole number of {least} or more"
        raise BadInput(f"{mask}: {name} must be {wanted}, not {value}.")
