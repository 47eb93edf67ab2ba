"""Kernels that know documents and windows: what they refuse, and what they hand to a library that counts as FlashAttention does.

No GPU is here, so a stand-in takes FlashAttention's arguments and answers with a dense softmax of the windows they describe.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from kernels.stand_ins import attention, gradients
from longca import masks
from longca.kernels.backends import fa3
from longca.kernels.backends.cudnn.graph import Cudnn
from longca.kernels.backends.fa2 import Fa2
from longca.kernels.backends.fa3 import Fa3
from longca.kernels.backends.fa4.kernel import Fa4
from longca.kernels.base import Case
from longca.masks import Mask
from strategies import PAPER, REGULAR

SEQLEN = 53
DOCUMENTS = (9, 20, 1, 23)


def build(name):
    documents = DOCUMENTS if "document" in name or name in ("share_question", "causal_blockwise") else None
    params = {"sliding_window": {"w": 6}, "sliding_window_causal": {"w": 6}, "block_causal_document": {"B": 8}}
    return masks.build(name, SEQLEN, seed=1, documents=documents, **params.get(name, {}))


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


def test_head_sizes_and_dtypes():
    mask = build("causal")
    for dims, fa2_answer, others in (((64, 64), True, True), ((128, 128), True, True), ((192, 128), False, True), ((256, 256), True, True)):
        assert bool(Fa2("torch").supports(mask, case_of(mask, dims))) == fa2_answer
        assert bool(Fa3().supports(mask, case_of(mask, dims))) == others
        assert bool(Cudnn().supports(mask, case_of(mask, dims))) == others
    for kernel in (Fa2("torch"), Fa3(), Cudnn()):
        assert kernel.supports(mask, case_of(mask, dtype="fp16"))
        assert "fp32" in kernel.supports(mask, case_of(mask, dtype="fp32")).reason
    for kernel in (Fa3(), Fa4("native"), Fa4("bands")):
        assert "only as 192/128, not 128/64" in kernel.supports(mask, case_of(mask, (128, 64))).reason
        assert "fp32" in kernel.supports(mask, case_of(mask, dtype="fp32")).reason
    assert "deterministic" in Fa3().supports(mask, case_of(mask, (256, 256), deterministic=True)).reason
    assert Fa3().supports(mask, case_of(mask, deterministic=True))


def test_cudnn_refuses_windows_over_documents_with_more_queries_than_keys():
    cut = build("causal").cols([(20, SEQLEN)])
    assert Fa3().supports(cut, case_of(cut))
    assert "no more queries than keys" in Cudnn().supports(cut, case_of(cut)).reason


def windows(length_q, length_k, left, right):
    """The pairs of one document as FlashAttention counts them: the last query and the last key lie on the diagonal."""
    row, key = torch.arange(length_q)[:, None], torch.arange(length_k)
    ahead = key - (row + length_k - length_q)
    return (ahead <= right if right >= 0 else ahead == ahead) & (-ahead <= left if left >= 0 else ahead == ahead)


def seen_by(q, k, cu_q, cu_k, left, right):
    if cu_q is None:
        return windows(len(q), len(k), left, right)
    seen = torch.zeros(len(q), len(k), dtype=torch.bool)
    for q0, q1, k0, k1 in zip(cu_q, cu_q[1:], cu_k, cu_k[1:], strict=False):
        seen[q0:q1, k0:k1] = windows(int(q1 - q0), int(k1 - k0), left, right)
    return seen


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


def masks_to_hand_over():
    for name in REGULAR:
        yield build(name)
    documents = build("causal_document")
    yield documents.rows([(5, SEQLEN)])
    yield documents.cols([(12, SEQLEN)])
    yield build("causal").cols([(20, SEQLEN)])
    yield Mask.of(7, 31, [(0, 7, 0, 0, 31, 0)])


@pytest.mark.parametrize("kernel", [Fa2("package"), Fa3()], ids=lambda kernel: kernel.label)
@pytest.mark.usefixtures("libraries")
def test_what_is_handed_over_describes_the_mask(kernel):
    for mask in masks_to_hand_over():
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
