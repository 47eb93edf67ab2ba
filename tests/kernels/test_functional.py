"""longca.attention: differentiable, the same kernels as in the benchmark, clear refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

import longca
from kernels.stand_ins import assert_same, leaves, textbook
from longca import masks
from longca.errors import Refused
from longca.kernels import registry
from longca.kernels.backends import torch_attention
from longca.kernels.base import Case, No, Yes
from longca.kernels.bounded_cache import BoundedCache
from longca.kernels.choice.candidates import Candidates, candidates
from longca.kernels.functional import prepared_for
from longca.kernels.inputs import BLOCK, make, tokens

MASK = masks.causal(40)


@pytest.mark.parametrize("kernel", ["torch:plain", "torch:chunked", "sdpa:flash", "sdpa:math"])
@pytest.mark.parametrize("name", ["full", "causal_document", "share_question", "global_sliding_window"])
def test_value_and_gradients(kernel: str, name: str) -> None:
    mask = masks.build(name, 79, seed=2)
    made = make(Case(79, 79, 4, 2, 16, 16, "fp64"))
    given = leaves(*made[:3])
    out = longca.attention(*given, mask, kernel=kernel)
    assert_same((out, *given), (textbook(*given, mask), *given), made.dout, rtol=1e-6, atol=1e-8)


def test_gradcheck() -> None:
    mask = masks.share_question(12, documents=[3, 5, 4])
    made = [x.requires_grad_() for x in make(Case(12, 12, 2, 1, 4, 4, "fp64"))[:3]]
    assert torch.autograd.gradcheck(lambda q, k, v: longca.attention(q, k, v, mask, kernel="torch:chunked"), made)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda q, k, v: (q, k, v, masks.causal(41)), "the mask is for 41 queries"),
        (lambda q, k, v: (q[0], k, v, MASK), "takes q"),
        (lambda q, k, v: (q[..., :0], k[..., :0], v, MASK), r"takes q .* not q \[40, 4, 0\]"),
        (lambda q, k, v: (q, k.double(), v, MASK), "share one dtype"),
        (lambda q, k, v: (q, k.to("meta"), v, MASK), "must lie on one device, not on cpu, meta and cpu"),
        (lambda q, k, v: (q.to("meta"), k.to("meta"), v.to("meta"), MASK), "kernels run on cpu and cuda, not on meta; move q, k and v"),
        (lambda q, k, v: (q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), MASK), "have 4 and 2; tokens come before heads"),
        (lambda q, k, v: (q, k.numpy(), v, MASK), r"k must be a torch\.Tensor, not ndarray"),
        (lambda q, k, v: (q, k, v, "causal"), r"not 'causal'; longca\.masks\.build\(text, length\) makes one of a text"),
        (lambda q, k, v: (q, k, v, torch.ones(40, 40)), r"not Tensor \[40, 40\]; longca\.masks\.from_dense makes one of a bool matrix"),
        (lambda q, k, v: (q, k, v, None), r"must be one of longca\.masks, such as longca\.masks\.causal\(8192\), not None\."),
    ],
)
def test_tensors_and_masks_that_do_not_fit_are_one_sentence(change: Any, sentence: str) -> None:
    with pytest.raises(longca.BadInput, match=sentence):
        longca.attention(*change(*make(Case(40, 40, 4, 2, 16, 16, "fp32"))[:3]))


class Doubled(torch_attention.TorchKernel):
    name = "doubled"

    def prepare(self, mask: masks.AnyMask, case: Case) -> longca.Attention:
        return super().prepare(mask, replace(case, scale=2 * case.softmax_scale))


def test_a_kernel_itself_can_be_given_in_place_of_its_name() -> None:
    made = make(Case(40, 40, 4, 2, 16, 16, "fp64"))
    q, k, v = given = leaves(*made[:3])

    @longca.kernel
    def mine(q: Any, k: Any, v: Any, mask: Any, scale: float) -> torch.Tensor:
        return textbook(q, k, v, mask)

    for kernel in (mine, mine()):
        assert_same((longca.attention(*given, MASK, kernel=kernel), *given), (textbook(*given, MASK), *given), made.dout)
    for doubled in (Doubled, Doubled("chunked")):
        torch.testing.assert_close(longca.attention(*given, MASK, kernel=doubled), textbook(2 * q, k, v, MASK))


@pytest.mark.parametrize("given", [textbook, int])
def test_what_is_no_kernel_is_one_sentence(given: Any) -> None:
    q, k, v, _ = make(Case(40, 40, 4, 2, 16, 16, "fp32"))
    with pytest.raises(
        longca.BadInput, match=r"kernel must be a name such as 'sdpa', a plugin file, a function decorated with @longca\.kernel, or a class"
    ):
        longca.attention(q, k, v, masks.causal(40), kernel=given)


def test_inputs_of_a_token_do_not_depend_on_the_shard() -> None:
    case = Case(3 * BLOCK, 3 * BLOCK, 2, 1, 8, 8, "fp32")
    whole = make(case, seed=7)
    ranges = [(5, 100), (BLOCK - 1, BLOCK + 1), (2 * BLOCK, 2 * BLOCK + 300)]
    wanted = torch.cat([whole.k[start:end] for start, end in ranges])
    assert torch.equal(tokens("k", case, ranges, seed=7), wanted)
    assert torch.equal(make(case, seed=7, layout="HLD").q, whole.q)
    assert not torch.equal(make(case, seed=8).q, whole.q)
    assert not torch.equal(whole.q[:, :1], whole.k)


@pytest.mark.parametrize("name", [*masks.names(), *masks.block_names()])
def test_without_a_name_a_kernel_is_chosen_that_can_do_it(name: str) -> None:
    mask = masks.build(name, 79, seed=2)
    q, k, v, _ = make(Case(79, 79, 4, 2, 16, 16, "fp64"))
    torch.testing.assert_close(longca.attention(q, k, v, mask), longca.attention(q, k, v, mask, kernel="torch:chunked"))


def test_kernels_that_need_memory_for_every_pair_are_chosen_only_where_no_other_can(monkeypatch: pytest.MonkeyPatch) -> None:
    def able(name: str, seqlen: int, device: str) -> Candidates:
        dtype = "bf16" if device == "cuda" else "fp32"
        return candidates(masks.build(name, seqlen, seed=2), Case(seqlen, seqlen, 8, 8, 128, 128, dtype, device))

    assert labels(able("causal", 1 << 15, "cpu").forward) == ["sdpa:flash", "torch:chunked"]
    assert labels(able("share_question", 512, "cpu").backward) == ["sdpa:flash", "torch:plain", "torch:chunked"]
    assert labels(able("share_question", 1 << 15, "cpu").all) == ["torch:chunked"]  # not through a dense mask
    installed = {"fa4", "cudnn_flex", "flex", "torch"}
    monkeypatch.setattr(registry, "available", lambda kernel, device: Yes() if kernel.name in installed else No("not here"))
    assert labels(able("share_question", 1 << 15, "cuda").backward)[0] == "fa4:bands"
    assert "torch:chunked" not in labels(able("share_question", 1 << 15, "cuda").all)  # a call takes seconds: the last resort
    installed.remove("fa4")
    assert labels(able("share_question", 1 << 15, "cuda").forward)[0].startswith("cudnn_flex")
    installed.remove("cudnn_flex")
    alone = able("share_question", 1 << 15, "cuda")
    assert (labels(alone.backward), labels(alone.whole)) == ([], ["flex"])  # its backward is autograd's
    installed.remove("flex")
    assert labels(able("share_question", 1 << 15, "cuda").backward) == ["torch:chunked"]
    monkeypatch.setattr(registry, "available", lambda kernel, device: Yes() if kernel.label == "sdpa:efficient" else No("not here"))
    assert able("share_question", 1 << 15, "cuda").quadratic


def labels(kernels: Sequence[longca.Kernel]) -> list[str]:
    return [kernel.label for kernel in kernels]


def test_a_kernel_that_refuses_only_when_it_is_prepared_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise longca.Refused("not on this device.")

    mask, tensors = masks.build("causal", 61), make(Case(61, 61, 2, 1, 8, 8, "fp64"))[:3]
    right = longca.attention(*tensors, mask, kernel="torch:plain")
    for kind in dict.fromkeys(map(type, candidates(mask, Case(61, 61, 2, 1, 8, 8, "fp64", backward=False)).all)):
        prepared_for.clear()
        torch.testing.assert_close(longca.attention(*tensors, mask), right)
        monkeypatch.setattr(kind, "prepare", refuse)
    prepared_for.clear()
    with pytest.raises(longca.Refused, match="not on this device"):
        longca.attention(*tensors, mask)


def test_second_derivatives_are_refused_where_a_kernel_has_none() -> None:
    """Without a word they would be wrong: the backward takes out and lse as constants."""
    q, k, v = (torch.randn(5, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradgradcheck(lambda *qkv: longca.attention(*qkv, masks.causal(5), kernel="sdpa:math"), (q, k, v))
    (right,) = torch.autograd.grad(longca.attention(q, k, v, masks.causal(5), kernel="sdpa:math").square().sum(), q)
    for kernel in ("torch:plain", "torch:chunked", "sdpa:flash"):
        out = longca.attention(q, k, v, masks.causal(5), kernel=kernel)
        (dq,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        torch.testing.assert_close(dq.detach(), right)
        with pytest.raises(Refused, match=r"no second derivative; kernel='sdpa:math' has one"):
            torch.autograd.grad(dq.sum() + q.sum(), q, allow_unused=True)


@pytest.mark.parametrize("kernel", [None, "torch:plain", "torch:chunked"])
@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (5, 0), (0, 0)])
def test_without_queries_or_keys_out_and_gradients_are_zero(queries: int, keys: int, kernel: str | None) -> None:
    mask = masks.full(8).rows([(0, queries)] if queries else []).cols([(0, keys)] if keys else [])
    q, k, v = (torch.randn(length, 2, 4, requires_grad=True) for length in (queries, keys, keys))
    out = longca.attention(q, k, v, mask, kernel=kernel)
    assert out.shape == q.shape
    assert not out.any()
    for gradient in torch.autograd.grad(out.sum(), (q, k, v)):
        assert not gradient.any()


@pytest.mark.parametrize("kernel", [None, "torch:plain", "torch:chunked", "sdpa:math"])
def test_a_negative_scale_is_that_of_negated_queries(kernel: str | None) -> None:
    q, k, v = (torch.randn(33, 2, 8, generator=torch.Generator().manual_seed(1)) for _ in range(3))
    mask = masks.causal(33)
    torch.testing.assert_close(
        longca.attention(q, k, v, mask, kernel=kernel, scale=-0.7), longca.attention(-q, k, v, mask, kernel="torch:plain", scale=0.7)
    )


def test_prepared_kernels_are_kept_up_to_so_many_bytes() -> None:
    made = list[int]()

    def make(number: int) -> dict[str, object]:
        made.append(number)
        table = torch.zeros(100, dtype=torch.uint8)
        return {"tables": [table, {"again": table}], "name": "a kernel"}  # one table, counted once

    kept = BoundedCache(make, 250)
    assert kept(1) is kept(1)
    for number in (2, 1, 3, 1, 2):  # of three entries the one that was used last but two goes
        kept(number)
    assert made == [1, 2, 3, 2]
    assert BoundedCache(make, 50)(1) is not None  # the last one is kept however large it is
    kept.clear()
    kept(2)
    assert made[-1] == 2
    assert len(made) == 6
