"""helion, tilelang and flex_flash: stand-ins follow the rules of these libraries. Helion's runs the kernel itself, a tile at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.stand_ins import attention, checked, stand_in
from longca import masks
from longca.kernels import registry, shared
from longca.kernels.backends.flex import _attention as flex
from longca.kernels.base import Case, No, Yes
from longca.masks import Mask

S = 301
GAP = Mask(S, S, [(0, 80, 0, 0, 80, 0), (120, S, 120, 0, S, 0)])  # rows without keys
MASKS = [*(masks.build(name, S, seed=3) for name in masks.names()), masks.full(256), masks.causal(S).cols([(100, 250)]), GAP]
NAMES = [*masks.names(), "whole tiles", "fewer keys", "rows without keys"]


def case_of(mask: Mask, **more: Any) -> Case:
    return Case(mask.seqlen_q, mask.seqlen_k, 4, 2, 64, 64, "bf16", backward=False, **more)


# ---- Helion: loops over tiles, whose sizes need not divide the lengths


class Tile(Tensor):
    """Positions as an index; `begin` is the first one."""

    @property
    def index(self) -> Tensor:
        return self.as_subclass(Tensor)

    @property
    def begin(self) -> int:
        return int(self.index[0])


SIZES = {"queries": 64, "keys": 96}


def tiles(begin: Any, end: Any = None, *, block_size: Any = None) -> Iterator[Any]:
    if isinstance(begin, list):
        axes = [tiles(0, length, block_size=size or SIZES["queries"]) for length, size in zip(begin, block_size, strict=True)]
        yield from product(*axes)
        return
    low, high, size = int(begin), int(end), block_size or SIZES["keys"]
    for first in range(low, high, size):
        yield torch.arange(first, min(first + size, high)).as_subclass(Tile)


def sizes(shape: list[Any]) -> list[int]:
    return [len(size) if isinstance(size, Tensor) else size for size in shape]


def dot(one: Tensor, other: Tensor, acc: Tensor | None = None) -> Tensor:
    product_ = one.float() @ other.float()
    return product_ if acc is None else acc + product_


@pytest.fixture
def helion(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(*, static_shapes: bool, config: dict[str, Any]) -> Callable[[Any], Any]:
        assert static_shapes
        assert len(config["block_sizes"]) == 2
        return lambda function: function

    stand_in(
        monkeypatch, "helion.language", tile=tiles, dot=dot, specialize=int, static_range=range,
        full=lambda shape, value, dtype: torch.full(sizes(shape), value, dtype=dtype),
        zeros=lambda shape, dtype: torch.zeros(sizes(shape), dtype=dtype),
    )  # fmt: skip
    library: Any = sys.modules["helion"]
    library.kernel, library.Config = kernel, dict


# ---- TileLang: a compiled program gets its tables, and returns the tensors at `out_idx`


class Language:
    """tilelang.language while a program is defined: only its parameters are read."""

    Tensor = staticmethod(lambda shape, dtype: (shape, dtype))
    prim_func = staticmethod(lambda function: function)


@pytest.fixture
def tilelang(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(program: Any, *, out_idx: list[int], target: str) -> Callable[..., tuple[Tensor, Tensor]]:
        parameters = {name: kind for name, kind in program.__annotations__.items() if name != "return"}
        assert [list(parameters)[place] for place in out_idx] == ["out", "lse"]
        factor, intervals = (cell.cell_contents for cell in _cells(program, "factor", "intervals"))

        def call(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, ends: Tensor, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
            given = (q, k, v, starts, ends, first, last)
            assert [tuple(x.shape) for x in given] == [shape for shape, _ in list(parameters.values())[:7]]
            key, row = torch.arange(len(k)), torch.arange(len(q))
            visited = (key // 128 >= first[row // 128, None]) & (key // 128 < last[row // 128, None])
            rows = (starts[:, : len(q), None] <= key) & (key < ends[:, : len(q), None])
            seen = rows.any(0) if intervals else torch.ones(len(q), len(k), dtype=torch.bool)
            assert not (seen & ~visited).any(), "a visible key is in no visited tile"
            return attention(q, k, v, seen, factor / 1.4426950408889634)

        return call

    stand_in(monkeypatch, "tilelang.language", **{name: getattr(Language, name) for name in ("Tensor", "prim_func")})
    monkeypatch.setattr(sys.modules["tilelang"], "compile", compiled, raising=False)


def _cells(program: Any, *names: str) -> Iterator[Any]:
    scaled = dict(zip(program.__code__.co_freevars, program.__closure__, strict=True))["scaled"].cell_contents
    known = dict(zip(scaled.__code__.co_freevars, scaled.__closure__, strict=True))
    return (known[name] for name in names)


@pytest.mark.parametrize("label", ["helion", "tilelang"])
@pytest.mark.parametrize("mask", MASKS, ids=NAMES)
def test_right_on_every_mask(mask: Mask, label: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(label)
    assert set(checked(label, mask, case_of(mask, scale=0.3)).errors) == {"out", "lse"}


@pytest.mark.parametrize("label", ["helion", "tilelang"])
def test_both_are_forwards_of_band_masks(label: str) -> None:
    kernel, causal, blocks = registry.get(label), masks.causal(256), masks.uniform_block(256)
    assert registry.supports(kernel, blocks, case_of(blocks)) == No("takes masks made of bands, not block patterns")
    assert registry.supports(kernel, causal, replace(case_of(causal), backward=True)) == No("has no backward")


@pytest.mark.parametrize(
    ("torch_number", "number", "works"), [("2.11.0", "1.5.1", False), ("2.11.0", "1.5.0", True), ("2.13.0", "1.5.1", True)]
)
def test_helion_names_the_version_that_an_older_torch_takes(
    torch_number: str, number: str, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "version", {"torch": torch_number, "helion": number}.__getitem__)
    answer = registry.get("helion").present()
    assert answer == (
        Yes()
        if works
        else No("needs torch 2.13 or newer from its version 1.5.1 on, and torch 2.11.0 is installed; pip install helion==1.5.0")
    )


# ---- FlexAttention with FLASH: whole blocks of 128, and torch 2.13


def test_flex_flash_asks_for_its_backend_and_gives_full_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(q: Tensor, k: Tensor, v: Tensor, *, block_mask: Any, scale: float, kernel_options: Any, **options: Any) -> Any:
        assert kernel_options == {"BACKEND": "FLASH"}
        assert block_mask.BLOCK_SIZE == (128, 128)
        assert block_mask.full_kv_num_blocks is not None
        row, key = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
        seen = block_mask.mask_mod(torch.tensor(0), torch.tensor(0), row, key)
        out, lse = attention(*(x[0].transpose(0, 1) for x in (q, k, v)), seen, scale)
        assert "score_mod" not in options
        return (out.transpose(0, 1)[None], lse[None]) if options["return_lse"] else out.transpose(0, 1)[None]

    monkeypatch.setattr(flex, "_compiled", lambda: call)
    mask = masks.share_question(S, documents=[100, 101, 100])
    case = Case(S, S, 4, 2, 128, 128, "bf16", backward=False)
    assert set(checked("flex_flash", mask, case).errors) == {"out"}  # the compiled call gives no lse on a CPU


@pytest.mark.parametrize(("number", "works"), [("2.12.1", False), ("2.13.0+cu130", True)])
def test_flex_flash_needs_a_torch_that_has_the_backend(number: str, works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "version", lambda package: number)
    assert bool(registry.get("flex_flash").present()) == works
