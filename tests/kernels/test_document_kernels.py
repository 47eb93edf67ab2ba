"""Kernels that know documents and windows: what they refuse, and what they hand to a library that counts as FlashAttention does.

No GPU is here, so a stand-in takes FlashAttention's arguments and answers with a dense softmax of the windows they describe.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from forms import pairs_of_varlen
from kernels.stand_ins import attention, gradients, small_mask
from longca import masks
from longca.kernels.backends import fa3
from longca.kernels.backends.cudnn.graph import Cudnn
from longca.kernels.backends.fa2 import Fa2
from longca.kernels.backends.fa3 import Fa3
from longca.kernels.backends.fa4.kernel import Fa4
from longca.kernels.base import Case
from longca.masks import Mask
from strategies import PAPER, REGULAR

DOCUMENTS = (9, 20, 1, 23)
SEQLEN = sum(DOCUMENTS)


def build(name):
    return small_mask(name, DOCUMENTS)


def case_of(mask, dims=(128, 128), device="cuda", **more):
    return Case(mask.seqlen_q, mask.seqlen_k, 4, 2, *dims, device=device, **more)


@pytest.mark.parametrize("kernel", [Fa2("torch"), Fa2("package"), Fa3(), Cudnn()], ids=lambda kernel: kernel.label)
def test_the_six_regular_masks_and_no_other(kernel):
    for name in PAPER:
        mask = build(name)
        answer = kernel.supports(mask, case_of(mask))
        assert bool(answer) == (name in REGULAR), (name, answer)
    block = masks.build("uniform_block", 512, b=64, ratio=0.5, heads=2)
    assert "block patterns" in kernel.supports(block, case_of(block)).reason


@pytest.mark.parametrize(
    ("kernel", "dims", "more", "reason"),
    [
        *((Fa2("torch"), (size, size), {}, "") for size in (64, 128, 256)),
        *((kernel, dims, {}, "") for kernel in (Fa3(), Cudnn()) for dims in ((64, 64), (128, 128), (192, 128), (256, 256))),
        *((kernel, (128, 128), {"dtype": "fp16"}, "") for kernel in (Fa2("torch"), Fa3(), Cudnn())),
        *((kernel, (128, 128), {"dtype": "fp32"}, "fp32") for kernel in (Fa2("torch"), Fa3(), Cudnn(), Fa4("native"), Fa4("bands"))),
        (Fa2("torch"), (192, 128), {}, "head size"),
        *((kernel, (128, 64), {}, "only as 192/128, not 128/64") for kernel in (Fa3(), Fa4("native"), Fa4("bands"))),
        (Fa3(), (128, 128), {"deterministic": True}, ""),
        (Fa3(), (256, 256), {"deterministic": True}, "deterministic"),
    ],
)
def test_head_sizes_and_dtypes(kernel, dims, more, reason):
    answer = kernel.supports(build("causal"), case_of(build("causal"), dims, **more))
    assert bool(answer) == (not reason)
    assert not reason or reason in answer.reason


def test_cudnn_refuses_windows_over_documents_with_more_queries_than_keys():
    cut = build("causal").cols([(20, SEQLEN)])
    assert Fa3().supports(cut, case_of(cut))
    assert "no more queries than keys" in Cudnn().supports(cut, case_of(cut)).reason


def seen_by(q, k, cu_q, cu_k, left, right):
    return torch.from_numpy(pairs_of_varlen([0, len(q)] if cu_q is None else cu_q, [0, len(k)] if cu_k is None else cu_k, left, right))


def unpacked(tensors, packed):
    return tensors if packed else tuple(t.squeeze(0) for t in tensors)


def stand_in_forward(q, k, v, cu_seqlens_q=None, cu_seqlens_k=None, window_size_left=-1, window_size_right=-1, softmax_scale=1.0, **_):
    packed = cu_seqlens_q is not None
    q, k, v = unpacked((q, k, v), packed)
    seen = seen_by(q, k, cu_seqlens_q, cu_seqlens_k, window_size_left, window_size_right)
    out, lse = attention(q, k, v, seen, softmax_scale, blind=float("inf"))  # as FlashAttention-2
    return (out, lse, None, None) if packed else (out[None], lse[None], None, None)


def stand_in_backward(*tensors, cu_seqlens_q=None, cu_seqlens_k=None, window_size_left=-1, window_size_right=-1, softmax_scale=1.0, **_):
    packed = cu_seqlens_q is not None
    dout, q, k, v, out, lse = unpacked(tensors[:6], packed)
    seen = seen_by(q, k, cu_seqlens_q, cu_seqlens_k, window_size_left, window_size_right)
    grads = gradients(dout, q, k, v, out, lse, seen, softmax_scale)
    for buffer, grad in zip(tensors[6:], grads, strict=bool(tensors[6:])):
        buffer.copy_(grad if packed else grad[None])
    return (*(grads if packed else tuple(grad[None] for grad in grads)), None)


@pytest.fixture
def libraries(monkeypatch):
    package = ModuleType("flash_attn")
    package.flash_attn_interface = SimpleNamespace(
        _flash_attn_forward=stand_in_forward,
        _flash_attn_varlen_forward=stand_in_forward,
        _flash_attn_backward=stand_in_backward,
        _flash_attn_varlen_backward=stand_in_backward,
    )
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    monkeypatch.setattr(fa3, "operators", lambda: SimpleNamespace(fwd=stand_in_forward, bwd=stand_in_backward))


DOCUMENTS_MASK = build("causal_document")
HANDED_OVER = [
    *map(build, REGULAR),
    DOCUMENTS_MASK.rows([(5, SEQLEN)]),
    DOCUMENTS_MASK.cols([(12, SEQLEN)]),
    build("causal").cols([(20, SEQLEN)]),
    Mask.of(7, 31, [(0, 7, 0, 0, 31, 0)]),
]


@pytest.mark.parametrize("kernel", [Fa2("package"), Fa3()], ids=lambda kernel: kernel.label)
@pytest.mark.usefixtures("libraries")
def test_what_is_handed_over_describes_the_mask(kernel):
    for mask in HANDED_OVER:
        case = case_of(mask, dims=(8, 8), device="cpu")
        shapes = ((mask.seqlen_q, 4, 8), (mask.seqlen_k, 2, 8), (mask.seqlen_k, 2, 8), (mask.seqlen_q, 4, 8))
        q, k, v, dout = (torch.randn(shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64) for shape in shapes)
        prepared = kernel.prepare(mask, case)
        out, lse = prepared.forward(q, k, v)
        seen = torch.from_numpy(mask.dense())
        wanted_out, wanted_lse = attention(q, k, v, seen, case.softmax_scale)
        torch.testing.assert_close(out, wanted_out)
        torch.testing.assert_close(lse, wanted_lse)  # -inf, not +inf, for rows that see nothing
        wanted = gradients(dout, q, k, v, wanted_out, wanted_lse, seen, case.softmax_scale)
        for got, right in zip(prepared.backward(dout, q, k, v, out, lse), wanted, strict=True):
            torch.testing.assert_close(got, right)
