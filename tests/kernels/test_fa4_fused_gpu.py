"""`fa4:fused` on a Hopper GPU: all masks through the check, and what its memory between calls could break."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import pytest
import torch

from longca import masks
from longca.bench.check.check import check_kernel
from longca.bench.check.reference import reference
from longca.kernels import inputs, registry
from longca.kernels.backends.fa4._fused import Fusing
from longca.kernels.backends.fa4.kernel import Fa4
from longca.kernels.base import Attention, Case, No
from longca.kernels.inputs import Inputs

pytestmark = pytest.mark.gpu

S = 1507
SMALL = {"sliding_window": {"w": 99}, "sliding_window_causal": {"w": 99}, "block_causal_document": {"B": 128}}
KINDS = ["causal", "causal_document", "share_question"]  # one document, several, tile lists


class Prepared(NamedTuple):
    attention: Attention
    numbers: Inputs
    out: torch.Tensor
    lse: torch.Tensor | None

    def backward(self) -> tuple[torch.Tensor, ...]:
        q, k, v, dout = self.numbers[:4]
        return self.attention.backward(dout, q, k, v, self.out, self.lse)


def prepared(name: str, seqlen: int = 4096, label: str = "fa4:fused") -> Prepared:
    case = Case(seqlen, seqlen, 16, 2, 128, 128, "bf16", "cuda")
    mask, kernel = masks.build(name, seqlen, seed=3), registry.get(label)
    if isinstance(answer := registry.available(kernel, "cuda") and registry.supports(kernel, mask, case), No):
        pytest.skip(answer.reason)
    attention = kernel.prepare(mask, case)
    numbers = inputs.make(case, 0, kernel.layout)
    return Prepared(attention, numbers, *attention.forward(*numbers[:3]))


def close(first: tuple[torch.Tensor, ...], second: tuple[torch.Tensor, ...]) -> bool:
    """Whether gradients are the same but for the order of additions."""
    return all(
        float((a.float() - b.float()).abs().max()) <= 0.01 * float(b.float().abs().max()) for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("name", masks.names())
@pytest.mark.parametrize(
    ("heads", "dim", "dtype"), [((16, 2), 128, "bf16"), ((4, 4), 128, "fp16"), ((8, 2), 64, "bf16"), ((4, 4), 64, "fp16")]
)
def test_every_mask(name: str, heads: tuple[int, int], dim: int, dtype: str) -> None:
    mask = masks.build(name, S, seed=3, **SMALL.get(name, {}))
    case, kernel = Case(S, S, *heads, dim, dim, dtype, "cuda"), registry.get("fa4:fused")
    if isinstance(answer := registry.available(kernel, "cuda") and registry.supports(kernel, mask, case), No):
        pytest.skip(answer.reason)
    attention, right = kernel.prepare(mask, case), reference(mask, case)
    for _ in range(2):  # the second call finds what the first left
        verdict = check_kernel(kernel, attention, case, right)
        assert verdict.ok, verdict.reason


@pytest.mark.parametrize("name", ["causal_document", "share_question", "sliding_window_causal"])
@pytest.mark.parametrize(
    "fusing",
    [
        Fusing(joined=2),
        Fusing(joined=8),
        Fusing(joined=8, finishes=False),
        Fusing(lists=True),
        Fusing(heavy_first=True, joined=4),
        Fusing(rounds=2),
    ],
)
def test_options(name: str, fusing: Fusing) -> None:
    tokens = 1536  # heads are joined only where the last tile is whole
    mask = masks.build(name, tokens, seed=3, **SMALL.get(name, {}))
    case, kernel = Case(tokens, tokens, 16, 2, 128, 128, "bf16", "cuda"), Fa4("fused", fusing=fusing)
    if isinstance(answer := registry.available(kernel, "cuda") and registry.supports(kernel, mask, case), No):
        pytest.skip(answer.reason)
    attention, right = kernel.prepare(mask, case), reference(mask, case)
    for _ in range(2):
        verdict = check_kernel(kernel, attention, case, right)
        assert verdict.ok, verdict.reason


@pytest.mark.parametrize("name", KINDS)
def test_many_calls_leave_sums_and_counters_at_zero(name: str) -> None:
    call = prepared(name)
    first = call.backward()
    for _ in range(20):
        assert close(call.backward(), first)
    sums = call.attention.finished.sums  # type: ignore[attr-defined]
    (buffer,) = sums.buffers.values()
    assert buffer.is_clean
    assert not buffer.memory[: sums.floats].any()
    assert torch.equal(buffer.memory[sums.floats :].view(torch.int32), sums.behind.view(torch.int32))


@pytest.mark.parametrize("name", KINDS)
def test_two_streams_at_once(name: str) -> None:
    call = prepared(name)
    right = call.backward()
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    results = []
    for _ in range(5):
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(call.backward())
    torch.cuda.synchronize()
    assert all(close(result, right) for result in results)


@pytest.mark.parametrize("name", KINDS)
def test_replays_of_a_graph_beside_calls(name: str) -> None:
    call = prepared(name)
    right = call.backward()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = call.backward()
    for _ in range(3):
        for gradient in recorded:
            gradient.fill_(float("nan"))
        graph.replay()
        other = call.backward()
        torch.cuda.synchronize()
        assert close(recorded, right)
        assert close(other, right)


def test_the_call_after_an_aborted_one_clears() -> None:
    call = prepared("causal_document")
    right = call.backward()
    sums = call.attention.finished.sums  # type: ignore[attr-defined]
    with suppress(KeyboardInterrupt), sums.lent() as lent:
        lent.fill_(1.0)
        raise KeyboardInterrupt
    assert close(call.backward(), right)


@pytest.mark.parametrize("name", KINDS)
def test_long_sequences_agree_with_the_library(name: str) -> None:
    other = {"causal": "fa4:native", "causal_document": "fa4:varlen", "share_question": "fa4:bands"}[name]
    assert close(prepared(name, 32768).backward(), prepared(name, 32768, other).backward())
