"""longca.attention on a GPU as models call it: softcap, sinks, batches, autocast and torch.compile, through the kernels that can.

On one H200: `python3 -m pytest -m gpu tests/kernels/test_gpu_models.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import longca
from kernels.stand_ins import checked_on_gpu
from longca import devices, masks
from longca.errors import Refused
from longca.kernels import registry
from longca.kernels.base import Case
from longca.masks import Mask

pytestmark = pytest.mark.gpu

S = 1507
NAMES = ("fa4", "cudnn_flex", "flex", "fa3", "fa2", "cudnn", "sdpa", "torch")
ALL = [label for name in NAMES for label in registry.labels(name)]
HERE = [label for label in ALL if registry.available(registry.get(label), "cuda")] if devices.kind() == "cuda" else ALL
WINDOWS: dict[str, Mask] = {
    "causal": masks.causal(S),
    "window": masks.sliding_window_causal(S, w=127),
    "documents": masks.causal_document(S, documents=[311, 500, 1, 129, 566]),
    "question": masks.share_question(S, documents=[311, 500, 1, 129, 566]),
    "gap": Mask.of(S, S, [(0, 700, 0, 0, 1, 1), (900, S, 0, 0, 1, 1)]),
}


@pytest.mark.parametrize("label", HERE)
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize(("softcap", "sinks"), [(50.0, False), (3.0, False), (0.0, True), (30.0, True)])
@pytest.mark.parametrize("size", [64, 128])
def test_softcap_and_sinks(label: str, name: str, softcap: float, sinks: bool, size: int) -> None:
    verdict = checked_on_gpu(label, WINDOWS[name], Case(S, S, 8, 2, size, size, "bf16", "cuda", softcap=softcap, sinks=sinks))
    assert verdict.ok, verdict.reason


def tensors(batch: int = 2, length: int = 640, size: int = 128) -> list[torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = ((batch, length, heads, size) for heads in (8, 2, 2))
    return [torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16).requires_grad_() for shape in shapes]


def results(kernel: str, given: list[torch.Tensor], mask: Any, call: Any = longca.attention, **options: Any) -> list[torch.Tensor]:
    out, lse = call(*given, mask, kernel=kernel, return_lse=True, **options)
    leaves = [*given, *([options["sinks"]] if options.get("sinks") is not None else [])]
    return [out, lse, *torch.autograd.grad(out, leaves, torch.ones_like(out))]


def assert_close(ours: list[torch.Tensor], right: list[torch.Tensor]) -> None:
    for mine, other in zip(ours, right, strict=True):
        scale = other.float().abs().max().item()
        torch.testing.assert_close(mine.float(), other.float(), rtol=0.03, atol=0.02 * max(scale, 1e-3))


@pytest.mark.parametrize("label", HERE)
@pytest.mark.parametrize("sinks", [False, True])
def test_a_batch_is_its_entries(label: str, sinks: bool) -> None:
    given, own = tensors(), [masks.causal(640), masks.sliding_window_causal(640, w=63)]
    logits = torch.randn(8, device="cuda", requires_grad=True) if sinks else None
    try:
        whole = results(label, given, own, sinks=logits)
    except Refused as refusal:
        pytest.skip(str(refusal))
    right = results("torch:chunked", given, own, sinks=logits)
    assert_close(whole, right)


@pytest.mark.parametrize("label", HERE)
def test_autocast(label: str) -> None:
    q, k, v = (x.detach().float().requires_grad_() for x in tensors())
    with torch.autocast("cuda", dtype=torch.bfloat16):
        try:
            out = longca.attention(q, k, v, masks.causal(640), kernel=label)
        except Refused as refusal:
            pytest.skip(str(refusal))
    assert out.dtype == torch.bfloat16
    (dq,) = torch.autograd.grad(out.float().sum(), q)
    assert dq.dtype == torch.float32
    half = [x.detach().bfloat16().requires_grad_() for x in (q, k, v)]
    torch.testing.assert_close(out, longca.attention(*half, masks.causal(640), kernel=label))


@pytest.mark.parametrize("label", HERE)
@pytest.mark.parametrize("sinks", [False, True])
def test_compiled_in_one_graph(label: str, sinks: bool) -> None:
    given = tensors()
    logits = torch.randn(8, device="cuda", requires_grad=True) if sinks else None

    def block(q: Any, k: Any, v: Any, mask: Any, **options: Any) -> Any:
        out, lse = longca.attention(q * 1.0, k, v, mask, **options)
        return out * 1.0, lse

    try:
        eager = results(label, given, masks.causal(640), block, sinks=logits)
    except Refused as refusal:
        pytest.skip(str(refusal))
    if registry.choices(label)[0].backward == "autograd":
        with pytest.raises(Exception, match="is torch's autograd"):
            results(label, given, masks.causal(640), torch.compile(block, fullgraph=True), sinks=logits)
        return
    compiled = torch.compile(block, fullgraph=True)
    for w in (30, 63, 200):  # other masks of one length
        mask = masks.sliding_window_causal(640, w=w)
        assert_close(results(label, given, mask, compiled, sinks=logits), results(label, given, mask, block, sinks=logits))
    assert_close(results(label, given, masks.causal(640), compiled, sinks=logits), eager)


def test_the_best_kernel_takes_a_softcap_and_sinks() -> None:
    given = tensors()
    logits = torch.randn(8, device="cuda", requires_grad=True)
    options: dict[str, Any] = {"softcap": 20.0, "sinks": logits}
    mask = masks.sliding_window_causal(640, w=127)
    assert_close(results(None, given, mask, **options), results("torch:chunked", given, mask, **options))  # type: ignore[arg-type]
