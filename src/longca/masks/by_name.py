"""Masks by what a user types: a name of LongCA's or of a plugin, a file, or an expression of such masks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from longca.errors import BadInput, LongcaError, unknown
from longca.lengths import Distribution
from longca.masks import own
from longca.masks.blocks import BlockMask
from longca.masks.expression import EXAMPLE, Expression, Leaf, parse
from longca.masks.files import SUFFIX, MaskFile, mask_file
from longca.masks.handle import constant
from longca.masks.mask import Mask
from longca.masks.pattern import MORE, PATTERNS, Pattern
from longca.masks.random_blocks import BLOCK_PATTERNS, BlockPattern
from longca.text import parse_size

SIGNS = set("&|~^()'\"")  # which only expressions hold
AnyMask = Mask | BlockMask
Named = Pattern | BlockPattern | MaskFile | Expression


def names() -> list[str]:
    """The paper's twelve static masks: what `all` means."""
    return [name for name, pattern in PATTERNS.items() if pattern.group != MORE]


def more_names() -> list[str]:
    """The static masks beyond the paper."""
    return [name for name, pattern in PATTERNS.items() if pattern.group == MORE]


def block_names() -> list[str]:
    """The dynamic masks."""
    return list(BLOCK_PATTERNS)


def own_names() -> list[str]:
    """The masks of loaded plugins and of installed packages."""
    own.load_installed()
    return list(own.OWN)


def expand(given: Iterable[str]) -> list[str]:
    """The masks that some names ask for, each under its standard name: `all` are the paper's twelve, `every` all static ones."""
    expanded = list[str]()
    for text in given:
        more = more_names() + own_names() if text == "every" else []
        expanded += [*names(), *more] if text in own.WORDS else [find(text).name]
    return expanded


def find(text: str) -> Named:
    """The mask that a text names."""
    if not isinstance(text, str):
        raise BadInput(f"a mask is named by a text, such as {EXAMPLE!r}, not by {type(text).__name__}.")
    if text in PATTERNS or text in BLOCK_PATTERNS or text in own.OWN:
        return _plain(text)
    if text.endswith(SUFFIX) and (Path(text).is_file() or not set(text) & SIGNS):
        return mask_file(text)
    if not set(text) & {*SIGNS, *"-+*/, "}:  # signs of arithmetic and words apart are refused as expressions
        return _plain(text)
    return parse(text, _part)


def _part(name: str) -> Pattern | BlockPattern | MaskFile:
    return mask_file(name) if name.endswith(SUFFIX) else _plain(name)


def _plain(name: str) -> Pattern | BlockPattern:
    known: dict[str, Pattern | BlockPattern] = {**PATTERNS, **BLOCK_PATTERNS, **own.OWN}
    if name not in known:
        own.load_installed()
        known |= own.OWN
    if name in known:
        return known[name]
    for package, why in own.broken.items():
        raise BadInput(f"unknown mask {name!r}, and the masks of the installed package {package} cannot be loaded: {why}.")
    raise unknown("mask", name, list(known))


@constant
def build(
    name: str,
    seqlen: int | str,
    *,
    seed: int = 0,
    documents: Sequence[int] | None = None,
    distribution: Distribution | str | None = None,
    packing: str | None = None,
    **params: Any,
) -> AnyMask:
    """A mask by its name, its file or an expression. The length is a number, or a text such as "32K"."""
    length = parse_size(seqlen) if isinstance(seqlen, str) else seqlen
    return find(name)(length, seed=seed, documents=documents, distribution=distribution, packing=packing, **params)


def files_in(name: str) -> list[MaskFile]:
    """The files that a mask is made of."""
    mask = find(name)
    parts = [leaf.part for leaf in mask.leaves.values()] if isinstance(mask, Expression) else [mask]
    return [part for part in parts if isinstance(part, MaskFile)]


def has_blocks(name: str) -> bool:
    """Whether a mask is a block pattern, or an expression with one. It may be the name of anything, as records have it."""
    return name in BLOCK_PATTERNS or (bool(words_in(name) & BLOCK_PATTERNS.keys()) and _has_blocks(name, len(own.OWN)))


@lru_cache(maxsize=4096)
def _has_blocks(name: str, plugins: int) -> bool:
    """`plugins` are how many masks of users there are, as that may change the answer."""
    try:
        return blocks_of(name) is not None
    except LongcaError:  # a mask of a plugin or a file that is not here
        return False


def blocks_of(name: str, params: Mapping[str, Any] | None = None) -> tuple[BlockPattern, dict[str, Any]] | None:
    """The block pattern of a mask, with its parameters among `params` and those that an expression fixes; None where it has none."""
    mask = find(name)
    leaf = mask.blocks if isinstance(mask, Expression) else Leaf(mask, {})
    if leaf is None or not isinstance(leaf.part, BlockPattern):
        return None
    return leaf.part, {key: value for key, value in (params or {}).items() if key in leaf.part.defaults} | dict(leaf.fixed)


def plugins_of(name: str) -> list[str]:
    """The loaded plugin files whose masks a name or an expression holds, as they were typed."""
    return [path for path, names in own.files().items() if words_in(name) & set(names)]


@lru_cache(maxsize=4096)
def words_in(name: str) -> frozenset[str]:
    """The words of a name or an expression, masks among them, also where these are not known here."""
    return frozenset(re.findall(r"[^\W\d]\w*", name))


def dense_of(source: str) -> str:
    """The mask that block patterns of this source are a part of."""
    return "full" if source == "random" else "causal"


def own_params(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the settings that this mask has as parameters."""
    return {key: value for key, value in settings.items() if key in find(name).defaults}
