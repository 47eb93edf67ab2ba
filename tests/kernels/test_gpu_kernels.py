"""Every kernel that runs on this GPU, through the check: all masks it claims, head sizes, dtypes, cuts, blind rows, determinism.

On one H200: `python3 -m pytest -m gpu -n 8 tests/kernels` (a few minutes, most of it compilation).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels.stand_ins import checked_on_gpu, small_mask
from longca import devices, masks
from longca.errors import Refused
from longca.kernels import inputs, registry
from longca.kernels.base import Case, No
from longca.masks import Mask

pytestmark = pytest.mark.gpu

DOCUMENTS = (311, 500, 1, 129, 566)
S = sum(DOCUMENTS)
ALL = [label for name in registry.names() for label in registry.labels(name)]
HERE = [label for label in ALL if registry.available(registry.get(label), "cuda")] if devices.kind() == "cuda" else ALL


def build(name: str) -> Mask:
    return small_mask(name, DOCUMENTS, 99)


def run(label: str, mask: Mask, case: Case) -> None:
    """Checks a kernel; of one without a backward the forward."""
    verdict = checked_on_gpu(label, mask, replace(case, backward=case.backward and registry.get(label).backward != "none"))
    assert verdict.ok, verdict.reason


@pytest.mark.parametrize("label", HERE)
@pytest.mark.parametrize("name", masks.names())
def test_every_mask(label: str, name: str) -> None:
    run(label, build(name), Case(S, S, 8, 2, 128, 128, "bf16", "cuda"))


@pytest.mark.parametrize("label", HERE)
@pytest.mark.parametrize("name", ["causal", "causal_document", "share_question"])
@pytest.mark.parametrize(
    ("dims", "heads", "dtype"), [((64, 64), (8, 2), "fp16"), ((192, 128), (4, 4), "bf16"), ((256, 256), (8, 2), "bf16")]
)
def test_head_sizes_and_dtypes(label: str, name: str, dims: tuple[int, int], heads: tuple[int, int], dtype: str) -> None:
    run(label, build(name), Case(S, S, *heads, *dims, dtype, "cuda"))


CUTS = {
    "later queries": lambda: build("causal_document").rows([(700, S)]),
    "rows that see nothing": lambda: build("causal_document").cols([(400, 1200)]),
    "causal, fewer queries": lambda: masks.causal(S).rows([(1000, S)]),
    "causal, first keys": lambda: masks.causal(S).cols([(0, 600)]),
    "causal, last keys": lambda: masks.causal(S).cols([(600, S)]),
    "full, other lengths": lambda: Mask.of(333, 1111, [(0, 333, 0, 0, 1111, 0)]),
    "one query": lambda: masks.causal(S).rows([(S - 1, S)]),
}


@pytest.mark.parametrize("label", HERE)
@pytest.mark.parametrize("cut", CUTS)
def test_cuts(label: str, cut: str) -> None:
    mask = CUTS[cut]()
    run(label, mask, Case(mask.seqlen_q, mask.seqlen_k, 8, 2, 128, 128, "bf16", "cuda"))


@pytest.mark.parametrize("label", HERE)
@pytest.mark.parametrize("name", ["causal", "causal_document", "share_question"])
def test_a_deterministic_backward_repeats_bit_by_bit(label: str, name: str) -> None:
    mask, case = build(name), Case(S, S, 8, 2, 128, 128, "bf16", "cuda", deterministic=True)
    run(label, mask, case)
    kernel = registry.get(label)
    if kernel.backward == "none":
        return
    attention = kernel.prepare(mask, case)
    q, k, v, dout = inputs.make(case, 0, kernel.layout)
    if kernel.backward == "autograd":
        q, k, v = (x.requires_grad_() for x in (q, k, v))
    out, lse = attention.forward(q, k, v)
    first, second = (attention.backward(dout, q, k, v, out, lse) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("label", [label for label in HERE if registry.get(label).backward == "functional"])
def test_partial_backward_as_in_a_ring(label: str) -> None:
    """Two halves of the keys, each with the global out and lse, add up to the whole."""
    whole = Case(S, S, 8, 2, 128, 128, "bf16", "cuda", partial_backward=True)
    mask, kernel = masks.causal(S), registry.get(label)
    halves = [(0, 700), (700, S)]
    cuts = [mask.cols([half]) for half in halves]
    cases = [Case(S, end - start, 8, 2, 128, 128, "bf16", "cuda", partial_backward=True) for start, end in halves]
    prepared = []
    for cut, case in zip([mask, *cuts], [whole, *cases], strict=True):
        if isinstance(answer := registry.supports(kernel, cut, case), No):
            pytest.skip(f"{label}: {answer.reason}")
        try:
            prepared.append(kernel.prepare(cut, case))
        except Refused as refusal:
            pytest.skip(f"{label}: {refusal}")
    q, k, v, dout = inputs.make(whole, 0, kernel.layout)
    out, lse = prepared[0].forward(q, k, v)
    right = prepared[0].backward(dout, q, k, v, out, lse)
    dq = torch.zeros_like(q, dtype=torch.float32)
    for attention, (start, end) in zip(prepared[1:], halves, strict=True):
        pieces = [inputs.in_layout(x[start:end], kernel.layout) for x in (k, v)]
        part, dk, dv = attention.backward(dout, q, *pieces, out, lse)
        dq += part
        for mine, other in ((dk, right[1]), (dv, right[2])):
            torch.testing.assert_close(mine.float(), other[start:end].float(), rtol=3e-2, atol=3e-2)
    torch.testing.assert_close(dq, right[0].float(), rtol=3e-2, atol=3e-2)
