"""longca.attention as models call it: batches, lse, autocast, torch.compile, checkpointing, torch.func."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

import longca
from kernels.stand_ins import assert_same
from longca import masks
from longca.errors import BadInput, Refused
from longca.kernels import batches
from longca.masks import Mask
from longca.masks.handle import mask_of

L, HEADS, KV_HEADS, D = 48, 4, 2, 16
MASKS = [masks.causal(L), masks.sliding_window_causal(L, w=5), masks.causal_document(L, documents=[7, 30, 11])]


def tensors(batch: int = 3, dtype: torch.dtype = torch.float64, keys: int = L) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (L, HEADS), (keys, KV_HEADS), (keys, KV_HEADS)
    return [torch.randn(batch, *shape, D, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.fixture(autouse=True)
def _no_compiled_code() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("kernel", [None, "torch:chunked", "sdpa:math"])
def test_a_batch_is_its_entries_one_by_one(kernel: str | None) -> None:
    q, k, v = tensors()
    sinks = torch.randn(HEADS, dtype=torch.float64, requires_grad=True) if kernel != "sdpa:math" else None
    out = longca.attention(q, k, v, MASKS, kernel=kernel, sinks=sinks)
    alone = torch.stack([longca.attention(q[i], k[i], v[i], mask, kernel=kernel, sinks=sinks) for i, mask in enumerate(MASKS)])
    leaves = [q, k, v, *([] if sinks is None else [sinks])]
    assert_same((out, *leaves), (alone, *leaves), torch.randn_like(out))


@pytest.mark.parametrize("source", ["a pattern", "an expression", "masks from outside"])
def test_masks_built_in_a_compiled_function_are_constants(source: str) -> None:
    """They are built once, while the function is traced, and break no graph."""
    lengths = (L - 20, 20)
    causal, near = masks.causal_document(L, documents=lengths), masks.sliding_window(L, w=8)
    wanted = causal if source == "a pattern" else causal & near
    counter = CompileCounterWithBackend("eager")
    make = {
        "a pattern": lambda: masks.causal_document(L, documents=lengths),
        "an expression": lambda: masks.build("causal_document & sliding_window(w=8)", L, documents=lengths),
        "masks from outside": lambda: causal & near,
    }[source]

    @torch.compile(fullgraph=True, backend=counter)
    def layer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return longca.attention(q, k, v, make(), kernel="torch:chunked")  # type: ignore[no-any-return]

    for _ in range(3):
        q, k, v = (x[0].detach() for x in tensors())
        torch.testing.assert_close(layer(q, k, v), longca.attention(q, k, v, wanted, kernel="torch:chunked"))
    assert counter.frame_count == 1


def test_one_mask_for_all_entries_and_other_lengths_of_keys() -> None:
    mask = masks.full(64).rows([(0, L)])
    q, k, v = tensors(keys=64)
    out, lse = longca.attention(q, k, v, mask, return_lse=True)
    assert (out.shape, lse.shape) == ((3, L, HEADS, D), (3, HEADS, L))
    for i in range(3):
        torch.testing.assert_close((out[i], lse[i]), longca.attention(q[i], k[i], v[i], mask, return_lse=True))


def test_a_batch_of_causal_masks_is_documents_to_a_kernel() -> None:
    joined = batches.joined((masks.causal(8),) * 3)
    assert joined == masks.causal_document(24, documents=[8, 8, 8])
    assert isinstance(joined, Mask)
    assert joined.varlen().cu_q.tolist() == [0, 8, 16, 24]
    assert batches.joined((masks.causal(8),)) == masks.causal(8)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda q, k, v: (q, k, v, MASKS[:2]), "there are 2 masks for a batch of 3; give one for all entries, or one per entry"),
        (lambda q, k, v: (q[0], k[0], v[0], MASKS[:1]), r"a list of 1 masks is for a batch \[B, L, H, D\]"),
        (lambda q, k, v: (q, k[:2], v[:2], MASKS[0]), "or all with a batch in front, not q"),
        (lambda q, k, v: (q, k, v, [*MASKS[:2], "causal"]), "the mask must be one of longca.masks"),
        (lambda q, k, v: (q, k, v, [*MASKS[:2], masks.causal(9)]), "the mask is for 9 queries and 9 keys, the tensors have 48 and 48"),
        (lambda q, k, v: (q, k, v, masks.build("uniform_block", L)), "a batch takes masks made of bands, not block patterns"),
    ],
)
def test_bad_batches_are_one_sentence(change: Any, sentence: str) -> None:
    with pytest.raises((BadInput, Refused), match=sentence):
        longca.attention(*change(*tensors()))


def test_the_lse_has_no_gradient_and_is_refused_where_there_is_none() -> None:
    q, k, v = tensors()
    out, lse = longca.attention(q, k, v, MASKS, return_lse=True)
    assert out.requires_grad
    assert not lse.requires_grad
    scores = torch.einsum("bihd,bjhd->bhij", q, k.repeat_interleave(2, 2)) / D**0.5
    hidden = ~torch.stack([torch.from_numpy(mask.dense()) for mask in MASKS])[:, None]
    torch.testing.assert_close(lse, scores.masked_fill(hidden, -torch.inf).logsumexp(-1).detach())
    with pytest.raises(Refused, match="sdpa:math gives no lse here; take another kernel, or leave out return_lse"):
        longca.attention(q, k, v, MASKS, kernel="sdpa:math", return_lse=True)


@pytest.mark.parametrize("kernel", ["torch:plain", "sdpa:flash"])
def test_autocast_casts_as_torch_does_and_not_inside_kernels(kernel: str) -> None:
    q, k, v = tensors(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = longca.attention(q, k, v, MASKS, kernel=kernel)
        other = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), enable_gqa=True)
        assert out.dtype == other.dtype == torch.bfloat16
        dq, *_ = torch.autograd.grad(out.float().square().sum(), (q, k, v))  # a backward inside the region
        assert dq.dtype == torch.float32
        assert longca.attention(q.double(), k.double(), v.double(), MASKS).dtype == torch.float64
    cast = [x.detach().bfloat16().requires_grad_() for x in (q, k, v)]
    outside = longca.attention(*cast, MASKS, kernel=kernel)
    assert torch.equal(out, outside)
    assert torch.equal(dq.bfloat16(), torch.autograd.grad(outside.float().square().sum(), cast)[0])


def block(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, sinks: torch.Tensor | None = None) -> torch.Tensor:
    out, lse = longca.attention(q.sin(), k, v, mask, sinks=sinks, softcap=2.0, return_lse=True)
    return out.cos() * lse.mT[..., None].detach().tanh()


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("batched", [True, False])
def test_compiled_in_one_graph_it_gives_the_same(backend: str, batched: bool) -> None:
    given: list[Any] = [x if batched else x[0].detach().requires_grad_() for x in tensors()]
    sinks = torch.randn(HEADS, requires_grad=True)
    mask = MASKS if batched else MASKS[1]
    compiled = torch.compile(block, fullgraph=True, backend=backend)
    out, right = (function(*given, mask, sinks) for function in (compiled, block))
    assert_same((out, *given, sinks), (right, *given, sinks), torch.randn_like(out))
    with torch.no_grad():
        torch.testing.assert_close(compiled(*given, mask, sinks), right.detach())


def test_other_masks_of_one_length_do_not_compile_again() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(block, fullgraph=True, backend=counter)
    q, k, v = (x[0].detach().requires_grad_() for x in tensors())
    for w in range(1, 8):
        mask = masks.sliding_window_causal(L, w=w)
        torch.testing.assert_close(compiled(q, k, v, mask), block(q, k, v, mask))
    assert counter.frame_count <= 2


def test_compiled_calls_refuse_in_a_sentence() -> None:
    q, k, v = tensors()

    @longca.kernel
    def mine(q: Any, k: Any, v: Any, mask: Any, scale: float) -> torch.Tensor:
        raise AssertionError

    def call(*given: Any, **options: Any) -> None:
        torch.compile(longca.attention, fullgraph=True, backend="aot_eager")(*given, **options)

    with pytest.raises(Exception, match=r"the backward of sdpa:math is torch's autograd, which a call inside torch\.compile cannot use"):
        call(q, k, v, MASKS, kernel="sdpa:math")
    with pytest.raises(Exception, match=r"inside torch\.compile a kernel is given by name"):
        call(q, k, v, MASKS, kernel=mine)
    with pytest.raises(Exception, match="there are 2 masks for a batch of 3"):
        call(q, k, v, MASKS[:2])
    with torch.no_grad(), pytest.raises(Refused, match="sdpa:math gives no lse here"):
        call(q, k, v, MASKS, kernel="sdpa:math", return_lse=True)
    with pytest.raises(Exception, match=r"sinks must be one logit per query head"):
        call(q, k, v, MASKS, sinks=torch.zeros(3))


@pytest.mark.parametrize("kernel", [None, "sdpa:math"])
def test_checkpointing_gives_the_same_gradients(kernel: str | None) -> None:
    q, k, v = tensors()

    def layer(*given: torch.Tensor) -> torch.Tensor:
        return longca.attention(*given, MASKS, kernel=kernel).sin()

    right = torch.autograd.grad(layer(q, k, v).sum(), (q, k, v))
    for reentrant in (False, True):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        checkpoint(layer, *leaves, use_reentrant=reentrant).sum().backward()
        torch.testing.assert_close(tuple(x.grad for x in leaves), right)


def test_torch_func() -> None:
    q, k, v = (x.detach() for x in tensors())

    def loss(q: torch.Tensor, k: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
        return longca.attention(q, k, v, MASKS, sinks=sinks).sin().sum()

    sinks = torch.randn(HEADS, dtype=torch.float64)
    got = torch.func.grad(loss, argnums=(0, 1, 2))(q, k, sinks)
    leaves = [x.clone().requires_grad_() for x in (q, k, sinks)]
    torch.testing.assert_close(got, torch.autograd.grad(loss(*leaves), leaves))
    with pytest.raises(Refused, match=r"does not run under torch\.vmap; give it a batch \[B, L, H, D\]"):
        torch.func.vmap(lambda q, k, v: longca.attention(q, k, v, MASKS[0]))(q, k, v)
    with pytest.raises(Refused, match="no forward-mode derivative"):
        torch.func.jvp(lambda q: longca.attention(q, k, v, MASKS), (q,), (q,))
    with pytest.raises(Refused, match="no second derivative"):
        torch.func.grad(lambda q: torch.func.grad(loss)(q, k, sinks).sum())(q)


def test_a_handle_is_of_this_process_and_of_one_mask() -> None:
    mask = masks.causal(9)
    others = [pickle.loads(pickle.dumps(mask)), copy.copy(mask), copy.deepcopy(mask), mask.rows([(0, 9)]), masks.causal(9)]
    assert all(other == mask for other in others)
    assert len({mask.handle, *(other.handle for other in others)}) == 6
    assert mask_of(mask.handle) is mask
    gone = masks.causal(10).handle
    gc.collect()
    with pytest.raises(KeyError):
        mask_of(gone)
