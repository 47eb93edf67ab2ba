"""ffa, fa2_sparse and flashmask: stand-ins follow the rules of these libraries and compute attention from their arguments alone."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from forms import pairs_of_columns, pairs_of_slices
from kernels.stand_ins import attention, checked, gradients, stand_in
from longca import masks
from longca.kernels import registry, shared
from longca.kernels.base import Case, No
from longca.masks import AnyMask

LENGTHS = (256, 301)
MASKS = [*((name, 301) for name in masks.names()), ("causal_document", 256), ("share_question", 256)]  # whole tiles, too
FLASH = float("inf")  # the lse that these libraries give to rows without keys


def case_of(length: int, heads: tuple[int, int] = (4, 2), size: int = 64, **more: Any) -> Case:
    return Case(length, length, *heads, size, size, **more)


def assert_right(label: str, mask: AnyMask, case: Case) -> None:
    verdict = checked(label, mask, case)
    wanted = {"out", "dq", "dk", "dv"} | ({"lse"} if registry.get(label).gives_lse else set())
    assert set(verdict.errors) == (wanted if case.backward else wanted - {"dq", "dk", "dv"})


# ---- MagiAttention


def flex_flash_attn_func(q: Any, k: Any, v: Any, q_ranges: Any, k_ranges: Any, types: Any, **options: Any) -> tuple[torch.Tensor, Any]:
    seen = torch.from_numpy(pairs_of_slices(q_ranges.tolist(), k_ranges.tolist(), types.tolist(), len(q), len(k)))
    assert seen.max() <= 1, "a pair that is in two slices counts twice"
    assert set(options) == {"softmax_scale", "deterministic", "disable_fwd_atomic_reduction"}
    out, lse = attention(q, k, v, seen > 0, options["softmax_scale"], FLASH)
    return out, SimpleNamespace(lse=lse.t().contiguous())


@pytest.fixture
def ffa(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "magi_attention.api", flex_flash_attn_func=flex_flash_attn_func)


@pytest.mark.parametrize(
    ("number", "works"), [("1.0.4", False), ("1.0.5", True), ("1.1.1", True), ("0.0.1.dev2", False), ("1.0.5.post1", True)]
)
def test_ffa_wants_a_release_whose_interface_it_knows(number: str, works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "version", lambda package: number)
    answer = registry.get("ffa").present()
    assert bool(answer) == works
    if isinstance(answer, No):
        assert answer.reason == f"needs MagiAttention 1.0.5 or newer, and {number} is installed; build a newer one"


# ---- Block-Sparse-Attention 0.0.2


def replace_ones_with_count(kinds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The library numbers the heads whose entry is 1, and leaves other entries as they are."""
    ones = kinds == 1
    return torch.where(ones, ones.cumsum(0).to(kinds.dtype), kinds), ones.sum()


def kept_last_first(kept: torch.Tensor, causal: bool) -> torch.Tensor:
    """Per row of [..., rows, columns] the kept columns from the last to the first, then -1."""
    lists = torch.full(kept.shape, -1, dtype=torch.int32)
    for place in torch.cartesian_prod(*(torch.arange(size) for size in kept.shape[:-1])).tolist():
        columns = torch.nonzero(kept[tuple(place)]).flatten().flip(0)
        lists[(*place, slice(len(columns)))] = columns.int()
    return lists


class BlockSparse:
    """The library's inner functions on [L, H, D]; lse has whole tiles of 128 rows."""

    conversions = 0

    def pattern(self, lists: torch.Tensor, kinds: torch.Tensor, lengths: tuple[int, int]) -> torch.Tensor:
        """[heads, L, L]: the pattern of a head is its number minus one, and there are as many patterns as numbered heads."""
        assert lists.shape[:2] == (1, int((kinds > 0).sum()))
        assert kinds.tolist() == list(range(1, len(kinds) + 1))
        columns = torch.zeros(*lists.shape[1:-1], lists.shape[-1] + 1, dtype=torch.bool).scatter(
            -1, lists[0].long() % (lists.shape[-1] + 1), True
        )
        blocks = columns[..., :-1][kinds.long() - 1]
        return blocks.repeat_interleave(128, 1).repeat_interleave(128, 2)[:, : lengths[0], : lengths[1]]

    def to_lists(self, kept: torch.Tensor, causal: bool = False) -> torch.Tensor:
        self.conversions += 1
        return kept_last_first(kept, causal)

    def to_column_lists(self, kept: torch.Tensor, causal: bool = False) -> torch.Tensor:
        self.conversions += 1
        return kept_last_first(kept.mT, causal)

    def forward(self, q: Any, k: Any, v: Any, *, row_blockmask: Any, **options: Any) -> tuple[torch.Tensor, ...]:
        assert (options["m_block_dim"], options["n_block_dim"], options["is_causal"], options["p_dropout"]) == (128, 128, False, 0.0)
        assert (options["exact_streaming"], options["return_softmax"]) == (False, False)
        lengths = (options["max_seqlen_q_"], options["max_seqlen_k_"])
        assert (options["cu_seqlens_q"].tolist(), options["cu_seqlens_k"].tolist()) == ([0, lengths[0]], [0, lengths[1]])
        visible = self.pattern(row_blockmask, options["head_mask_type"], lengths)
        out, lse = attention(q, k, v, visible, options["softmax_scale"], FLASH)
        padded = torch.nn.functional.pad(lse, (0, -len(q) % 128), value=float("nan"))
        return out, padded[None], torch.empty(0), torch.zeros(2, dtype=torch.int64)

    def backward(
        self, dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, dq: Any, dk: Any, dv: Any, *, col_blockmask: Any, **options: Any
    ) -> torch.Tensor:
        assert options["zero_tensors"] is True
        assert options["rng_state"].dtype == torch.int64
        visible = self.pattern(col_blockmask, options["head_mask_type"], (len(k), len(q))).mT
        for given, value in zip(
            (dq, dk, dv), gradients(dout, q, k, v, out, lse[0][:, : len(q)], visible, options["softmax_scale"]), strict=True
        ):
            given.copy_(value)
        return torch.empty(0)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("heads", [(8, 2), (4, 4), (4, 2)])
@pytest.mark.parametrize("patterns", ["one", "per KV head"])
def test_fa2_sparse_gives_every_query_head_a_pattern(
    patterns: str, heads: tuple[int, int], length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = BlockSparse()
    stand_in(
        monkeypatch,
        "block_sparse_attn.block_sparse_attn_interface",
        replace_ones_with_count=replace_ones_with_count,
        convert_blockmask_row_reverse=library.to_lists,
        convert_blockmask_col_reverse=library.to_column_lists,
        _block_sparse_attn_forward=library.forward,
        _block_sparse_attn_backward=library.backward,
    )
    mask = masks.build("uniform_block", length, heads=1 if patterns == "one" else heads[1], b=128, ratio=0.5, seed=4)
    assert_right("fa2_sparse", mask, case_of(length, heads))
    assert library.conversions == 2  # both when it is prepared, none in a call


# ---- FlashMask


def visible_of(rows: torch.Tensor, causal: bool, lengths: tuple[int, int], block_mask: torch.Tensor | None = None) -> torch.Tensor:
    """[mask heads, L, L] of indices [1, heads, keys, 1|2|4]."""
    assert rows.dtype == torch.int32
    seen = torch.stack([torch.from_numpy(pairs_of_columns(columns, causal, lengths[0])) for columns in rows[0].numpy()])
    if block_mask is None:
        return seen
    assert block_mask.dtype == torch.int32
    assert block_mask.shape == (1, rows.shape[1], *(-(-length // 128) for length in lengths))
    return seen & block_mask[0].bool().repeat_interleave(128, 1).repeat_interleave(128, 2)[:, : lengths[0], : lengths[1]]


GIVEN = ("startend_row_indices", "block_mask", "is_causal", "softmax_scale")


class Operators:
    """torch.ops.flashmask; every argument by its name."""

    def visible(self, q: torch.Tensor, k: torch.Tensor, rows: torch.Tensor, block_mask: Any, causal: bool) -> torch.Tensor:
        assert rows.shape[1] in (1, k.shape[2])
        pairs = visible_of(rows, causal, (q.shape[1], k.shape[1]), block_mask)
        return pairs.repeat_interleave(q.shape[2] // len(pairs), 0)

    def fwd(self, *, q: Any, k: Any, v: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        rows, blocks, causal, scale = (options.pop(name) for name in GIVEN)
        assert options == {"window_size_left": -1, "window_size_right": -1, "softcap": 0.0}
        out, lse = attention(q[0], k[0], v[0], self.visible(q, k, rows, blocks, causal), scale, FLASH)
        return out[None], lse[None]

    def bwd(self, *, dout: Any, q: Any, k: Any, v: Any, out: Any, softmax_lse: Any, **options: Any) -> list[torch.Tensor]:
        unused = ("dq", "dk", "dv", "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "max_seqlen_q", "max_seqlen_k")
        assert all(options.pop(name) is None for name in unused)
        rows, blocks, causal, scale = (options.pop(name) for name in GIVEN)
        assert options == {"window_size_left": -1, "window_size_right": -1, "softcap": 0.0, "deterministic": False, "sm_margin": 0}
        visible = self.visible(q, k, rows, blocks, causal)
        return [grad[None] for grad in gradients(dout[0], q[0], k[0], v[0], out[0], softmax_lse[0], visible, scale)]


@pytest.fixture
def flashmask_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "flashmask")
    monkeypatch.setattr(torch.ops, "flashmask", Operators(), raising=False)


@pytest.mark.usefixtures("flashmask_operators")
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("patterns", [1, 2])
def test_flashmask_of_torch_on_blocks_of_128(patterns: int, length: int) -> None:
    mask = masks.build("uniform_block", length, heads=patterns, b=128, ratio=0.5, seed=2)
    assert_right("flashmask:torch", mask, case_of(length, size=128))


@pytest.mark.parametrize(
    ("mask", "changes", "reason"),
    [
        (masks.build("uniform_block", 256, b=64), {"size": 128}, "takes blocks of 128 tokens, not of 64"),
        (masks.build("uniform_block", 256, b=128), {"size": 64}, "takes block patterns at head size 128, not 64"),
        (masks.causal(256), {"size": 96}, "cannot do head size 96/96"),
        (
            masks.Mask(256, 256, [(0, 80, 0, 0, 80, 0), (120, 256, 120, 0, 256, 0)]),
            {},
            "hangs on rows without visible keys, so it needs rows that all see a key",
        ),
        (masks.causal(256), {"size": 256, "deterministic": True}, "has no deterministic backward for head size 256"),
    ],
)
def test_flashmask_of_torch_refuses(mask: AnyMask, changes: dict[str, Any], reason: str) -> None:
    answer = registry.supports(registry.get("flashmask:torch"), mask, case_of(256, **changes))
    assert answer == No(reason)


def paddle_attention(
    q: Any, k: Any, v: Any, rows: Any, *, causal: bool, return_softmax_lse: bool, softmax_scale: float | None = None
) -> Any:
    """lse has whole tiles of 128 rows per head, and is written with a stride of the length; any scale is an error."""
    if softmax_scale is not None:
        raise ValueError("softmax_scale is not supported")
    assert return_softmax_lse
    length, heads, size = q.shape[1:]
    with torch.enable_grad():
        out, lse = attention(q[0], k[0], v[0], visible_of(rows, causal, (length, k.shape[1])), size**-0.5, FLASH)
        out = out[None]
    buffer = torch.full((1, heads, -(-length // 128) * 128), float("nan"))
    buffer.view(-1)[: heads * length] = lse.detach().flatten()
    return out, buffer


@pytest.fixture
def paddle(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_dlpack(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().requires_grad_(tensor.is_floating_point())

    stand_in(
        monkeypatch,
        "paddle",
        device=SimpleNamespace(synchronize=lambda: None),
        grad=lambda *given, **more: torch.autograd.grad(*given, **more),
    )
    library: Any = sys.modules["paddle"]
    library.utils = SimpleNamespace(dlpack=SimpleNamespace(from_dlpack=from_dlpack))
    library.nn = SimpleNamespace(functional=SimpleNamespace(flashmask_attention=paddle_attention))


@pytest.mark.parametrize(
    ("label", "library", "cases"),
    [
        ("ffa", "ffa", [{}]),
        ("flashmask:torch", "flashmask_operators", [{}, {"scale": 0.3, "backward": False}]),
        ("flashmask:paddle", "paddle", [{"scale": 64**-0.5}]),  # the default, as rings write it
    ],
)
@pytest.mark.parametrize(("name", "length"), MASKS)
def test_every_mask_that_they_take(
    label: str, library: str, cases: list[dict[str, Any]], name: str, length: int, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(library)
    mask = masks.build(name, length, seed=3)
    for more in cases:
        if registry.supports(registry.get(label), mask, case_of(length, **more)):
            assert_right(label, mask, case_of(length, **more))


def test_flashmask_of_paddle_refuses_other_scales_and_block_patterns() -> None:
    kernel = registry.get("flashmask:paddle")
    assert not registry.supports(kernel, masks.causal(256), case_of(256, scale=0.3))
    assert not registry.supports(kernel, masks.build("uniform_block", 256, b=128), case_of(256, size=128))
