"""`longca.numerics`: how far kernels and context-parallel methods are from fp64, and whether their bits repeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import product
from typing import Any

from longca import devices, masks
from longca.api.takes import takes
from longca.bench.plan.request import Number, Texts, texts
from longca.bench.run.retry import say_nothing
from longca.errors import BadInput, unknown
from longca.kernels import registry as kernels
from longca.kernels.base import Case
from longca.kernels.inputs import DTYPES
from longca.masks import Mask, own_params
from longca.numerics import words
from longca.numerics.measure import Measured, measure
from longca.parallel import registry as methods
from longca.results.shown import Part, Shown
from longca.text import format_size, parse_dims, parse_heads, parse_size, write_over

MOST_TOKENS = {"cpu": 1 << 15, "cuda": 1 << 17}  # fp64 of all rows takes minutes beyond
MOST_RANKS = 64


@dataclass(frozen=True)
class NumericsRequest:
    """What to compare with fp64."""

    kernels: Texts | None = None  # all that run here; methods run the first one
    masks: Texts = "causal,sliding_window_causal"
    seqlens: Texts = "512,1K,2K"
    dtypes: Texts = "bf16"
    _: KW_ONLY
    methods: Texts | None = None  # context-parallel methods, or all
    ranks: Texts = "2,8"
    heads: str = "8:2"
    head_dim: str | int = 64
    seed: int = 0
    params: Mapping[str, Number] | None = None
    device: str | None = None
    progress: bool = True


@dataclass(frozen=True, repr=False)
class Numerics(Shown):
    """Errors, one row per kernel or method and mask."""

    measured: tuple[Measured, ...]

    @property
    def ok(self) -> bool:
        """Whether anything was measured."""
        return any(row.errors for row in self.measured)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [words.as_row(row) for row in self.measured]

    def parts(self) -> list[Part]:
        return words.parts(self.measured)


@takes(NumericsRequest)
def numerics(request: NumericsRequest) -> Numerics:
    """Computes attention, forward and backward, with kernels and with methods on ranks, and compares all elements with fp64 and with a
    second call. Ranks are threads of this process, so results are those of real ranks, and nothing is timed.

    >>> longca.numerics("torch:chunked", "causal", "256,512", methods="ring_p2p", ranks="2,4")
    """
    device = devices.require(request.device)
    lengths = _lengths(request, device)
    dtypes = texts("dtypes", request.dtypes)
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise unknown("dtype", dtype, list(DTYPES))
    asked = _kernels(request, device)
    split = _split(request)
    named = masks.expand(texts("masks", request.masks))
    if foreign := [name for name in request.params or {} if not any(name in masks.find(mask).defaults for mask in named)]:
        raise BadInput(f"none of these masks has a parameter {foreign[0]!r}; `longca ls masks` shows which they have.")
    heads, dims = parse_heads(str(request.heads)), parse_dims(str(request.head_dim))
    found, show = list[Measured](), write_over if request.progress else say_nothing
    for dtype, seqlen in product(dtypes, lengths):
        case = Case(seqlen, seqlen, *heads, *dims, dtype, device)
        built = [(name, _mask(name, seqlen, request)) for name in named]
        for row in measure(built, case, asked, split, request.seed):
            found.append(row)
            show(f"[{len(found)}] {row.method or row.kernel} {row.mask} {format_size(seqlen)} {dtype}")
    show("")
    return Numerics(tuple(found))


def _lengths(request: NumericsRequest, device: str) -> list[int]:
    lengths = [parse_size(text) for text in texts("seqlens", request.seqlens)]
    most, longest = MOST_TOKENS[device], max(lengths)
    if longest > most:
        raise BadInput(f"numerics compares every element with fp64, for {format_size(most)} tokens at most, not {format_size(longest)}.")
    return lengths


def _kernels(request: NumericsRequest, device: str) -> list[str]:
    if request.kernels is None:
        return [kernels.default_for_methods(device)] if request.methods else kernels.available_labels(device)
    asked = texts("kernels", request.kernels)
    for kernel in asked:
        kernels.choices(kernel)  # an unknown name is refused here
    return asked


def _split(request: NumericsRequest) -> list[tuple[str, int]]:
    counts = [int(text) if text.isdecimal() else 0 for text in texts("ranks", request.ranks)]
    if not all(1 <= count <= MOST_RANKS for count in counts):
        raise BadInput(f"ranks must be numbers from 1 to {MOST_RANKS}, not {request.ranks}.")
    if request.methods is None:
        return []
    named = [name for text in texts("methods", request.methods) for name in (methods.names() if text == "all" else [text])]
    return [(methods.get(name).name, count) for name, count in product(named, counts)]


def _mask(name: str, seqlen: int, request: NumericsRequest) -> Mask:
    if masks.has_blocks(name):
        raise BadInput(f"{name} is a block pattern; numerics takes masks of bands.")
    built = masks.build(name, seqlen, seed=request.seed, **own_params(name, request.params or {}))
    assert isinstance(built, Mask)
    return built
