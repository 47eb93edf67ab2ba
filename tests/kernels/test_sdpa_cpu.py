"""sdpa on a CPU against a softmax written out in fp64: every mask, grouped heads, unequal lengths, rows that see nothing."""

import numpy as np
import pytest
import torch

from longca import masks
from longca.kernels import registry
from longca.kernels.backends.sdpa import Sdpa
from longca.kernels.base import Case, Yes
from longca.masks import Mask

SEQLEN = 77
TOLERANCE = {"fp64": 1e-12, "fp32": 2e-5, "bf16": 6e-2, "fp16": 8e-3}  # of each tensor's largest entry
DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WINDOW = {"sliding_window": {"w": 9}, "sliding_window_causal": {"w": 9}, "block_causal_document": {"B": 8}}


def build(name):
    documents = (11, 30, 1, 35) if "document" in name or name in ("share_question", "causal_blockwise") else None
    return masks.build(name, SEQLEN, seed=3, documents=documents, **WINDOW.get(name, {}))


def case_of(mask, dtype, heads=(4, 2), dims=(16, 16), **more):
    return Case(mask.seqlen_q, mask.seqlen_k, *heads, *dims, dtype=dtype, **more)


def tensors(case, layout, seed=0):
    """q, k, v, dout in the memory order the kernel asks for."""
    random = np.random.default_rng(seed)
    shapes = [(case.seqlen_q, case.heads_q, case.head_dim), (case.seqlen_k, case.heads_kv, case.head_dim)]
    shapes += [(case.seqlen_k, case.heads_kv, case.head_dim_v), (case.seqlen_q, case.heads_q, case.head_dim_v)]
    made = [torch.from_numpy(random.standard_normal(shape)).to(DTYPES[case.dtype]) for shape in shapes]
    return [t.transpose(0, 1).contiguous().transpose(0, 1) for t in made] if layout == "HLD" else made


def reference(mask, case, q, k, v, dout):
    """out, lse, dq, dk, dv by the textbook's formulas; rows that see nothing are 0, their lse -inf."""
    seen = torch.from_numpy(mask.dense())
    q, k, v, dout = (t.double().transpose(0, 1) for t in (q, k, v, dout))
    k, v = (t.repeat_interleave(case.group, 0) for t in (k, v))
    scores = (q @ k.mT * case.softmax_scale).masked_fill(~seen, float("-inf"))
    lse = scores.logsumexp(-1)
    p = (scores - lse.masked_fill(lse.isinf(), 0.0)[..., None]).exp()
    out = p @ v
    dp = dout @ v.mT
    ds = p * (dp - (dout * out).sum(-1, keepdim=True)) * case.softmax_scale
    dk, dv = (t.unflatten(0, (-1, case.group)).sum(1) for t in (ds.mT @ q, p.mT @ dout))
    out, dq, dk, dv = (t.transpose(0, 1) for t in (out, ds @ k, dk, dv))
    return out, lse, dq, dk, dv


def agree(got, wanted, dtype, what):
    got = got.detach().double()
    assert torch.equal(got.isinf(), wanted.isinf()), what
    got, wanted = (t.masked_fill(wanted.isinf(), 0.0) for t in (got, wanted))
    worst, largest = float((got - wanted).abs().max()), float(wanted.abs().max())
    assert worst <= TOLERANCE[dtype] * max(1.0, largest), f"{what} is off by {worst}"


def check(variant, mask, case):
    kernel = Sdpa(variant)
    answer = kernel.supports(mask, case)
    assert answer, answer
    q, k, v, dout = tensors(case, kernel.layout)
    attention = kernel.prepare(mask, case)
    for tensor in (q, k, v):
        tensor.requires_grad_(kernel.backward == "autograd")
    out, lse = attention.forward(q, k, v)
    grads = attention.backward(dout, q, k, v, out, lse)
    wanted = reference(mask, case, *(t.detach() for t in (q, k, v, dout)))
    named = dict(zip(("out", "lse", "dq", "dk", "dv"), (out, lse, *grads), strict=True))
    for (name, tensor), right in zip(named.items(), wanted, strict=True):
        if tensor is None:
            assert name == "lse"
            assert not kernel.gives_lse
            continue
        assert tensor.shape == right.shape
        agree(tensor, right, case.dtype, f"{name} of {kernel.label}")
    return answer


@pytest.mark.parametrize("variant", ["flash", "math"])
@pytest.mark.parametrize("name", masks.names())
def test_every_mask(name, variant):
    mask = build(name)
    answer = check(variant, mask, case_of(mask, "fp32"))
    assert (answer.how == "native") == (name in ("full", "causal"))


@pytest.mark.parametrize("variant", ["flash", "math"])
@pytest.mark.parametrize("dtype", ["fp64", "bf16", "fp16"])
def test_every_dtype(dtype, variant):
    for name in ("causal", "share_question"):
        mask = build(name)
        check(variant, mask, case_of(mask, dtype))


@pytest.mark.parametrize("variant", ["flash", "math"])
@pytest.mark.parametrize("heads", [(3, 3), (6, 1), (6, 2)])
def test_grouped_heads(heads, variant):
    mask = build("prefix_lm_document")
    check(variant, mask, case_of(mask, "fp32", heads=heads))


def test_another_head_size_for_v():
    mask = build("causal")
    check("math", mask, case_of(mask, "fp32", dims=(24, 16)))
    assert not Sdpa("flash").supports(mask, case_of(mask, "fp32", dims=(24, 16)))


@pytest.mark.parametrize("variant", ["flash", "math"])
@pytest.mark.parametrize(("rows", "columns"), [((20, 77), (0, 77)), ((0, 77), (10, 50)), ((60, 77), (0, 30)), ((0, 40), (30, 77))])
def test_cuts_have_other_lengths_and_rows_that_see_nothing(rows, columns, variant):
    mask = build("causal_document").rows([rows]).cols([columns])
    check(variant, mask, case_of(mask, "fp32"))


def test_rows_that_see_nothing_give_zeros_and_minus_infinity():
    mask = Mask.of(12, 12, [(3, 8, 0, 0, 4, 1)])
    case = case_of(mask, "fp32")
    q, k, v, dout = tensors(case, "LHD")
    attention = Sdpa("flash").prepare(mask, case)
    out, lse = attention.forward(q, k, v)
    dq, dk, dv = attention.backward(dout, q, k, v, out, lse)
    blind = torch.tensor([0, 1, 2, 8, 9, 10, 11])
    assert (out[blind] == 0).all()
    assert (lse[:, blind] == float("-inf")).all()
    assert (dq[blind] == 0).all()
    assert (dk[8:] == 0).all()
    assert (dv[8:] == 0).all()
    assert dk[:8].abs().sum() > 0
    assert torch.isfinite(dk).all()
    assert torch.isfinite(dv).all()


def test_backward_from_the_merged_result_of_two_halves():
    """A ring's step: each half of the keys, given the out and lse over all keys, yields its part of the gradients."""
    whole = build("causal")
    case = case_of(whole, "fp64", partial_backward=True)
    q, k, v, dout = tensors(case, "LHD")
    out, lse, dq, dk, dv = reference(whole, case, q, k, v, dout)
    summed = torch.zeros_like(q)
    for first, last in ((0, 40), (40, SEQLEN)):
        half = whole.cols([(first, last)])
        part = Sdpa("flash").prepare(half, case_of(half, "fp64", partial_backward=True))
        step_dq, step_dk, step_dv = part.backward(dout, q, k[first:last], v[first:last], out, lse)
        summed += step_dq
        agree(step_dk, dk[first:last], "fp64", "dk")
        agree(step_dv, dv[first:last], "fp64", "dv")
    agree(summed, dq, "fp64", "dq")


def test_nothing_stands_in_for_what_was_asked():
    mask = build("causal")
    for variant in ("cudnn", "efficient"):
        assert "cuda only" in registry.available(Sdpa(variant), "cpu").reason
    ring = case_of(mask, "fp32", partial_backward=True)
    assert registry.supports(Sdpa("flash"), mask, ring)
    assert not registry.supports(Sdpa("math"), mask, ring)
    on_gpu = case_of(mask, "bf16", dims=(64, 64), device="cuda")
    assert Sdpa("flash").supports(mask, on_gpu) == Yes()
    assert "full" in Sdpa("flash").supports(build("share_question"), on_gpu).reason
    assert Sdpa("cudnn").supports(build("share_question"), on_gpu).quadratic
    assert not Sdpa("cudnn").supports(mask, case_of(mask, "bf16", dims=(64, 64), device="cuda", deterministic=True))
    assert not Sdpa("efficient").supports(mask, case_of(mask, "fp64", dims=(64, 64), device="cuda"))
