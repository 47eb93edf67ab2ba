"""What tests of kernels share: small masks, the check, a textbook attention on pairs that are given, and modules that stand in for
libraries."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from longca import masks
from longca.bench.check.check import check_kernel
from longca.bench.check.reference import reference
from longca.bench.check.verdict import Verdict
from longca.errors import Refused
from longca.kernels import registry
from longca.kernels.base import Case, Kernel, No
from longca.masks import AnyMask, Mask


def small_mask(name: str, documents: Sequence[int], window: int = 9) -> Mask:
    """A mask over as many tokens as some documents have, with windows and blocks that are shorter."""
    params = {"sliding_window": {"w": window}, "sliding_window_causal": {"w": window}, "block_causal_document": {"B": window}}
    pattern = masks.PATTERNS[name]
    return pattern(sum(documents), seed=3, documents=documents if pattern.has_documents else None, **params.get(name, {}))


def checked(kernel: Kernel | str, mask: AnyMask, case: Case) -> Verdict:
    """The verdict of the check, which the kernel passes."""
    kernel = registry.get(kernel) if isinstance(kernel, str) else kernel
    answer = registry.supports(kernel, mask, case)
    assert answer, answer
    verdict = check_kernel(kernel, registry.prepare(kernel, mask, case).attention, case, reference(mask, case))
    assert verdict.ok, f"{kernel.label}: {verdict.reason}"
    return verdict


def checked_on_gpu(label: str, mask: AnyMask, case: Case) -> Verdict:
    """The verdict of the check; the test is skipped where the kernel refuses."""
    kernel = registry.get(label)
    for answer in (registry.available(kernel, "cuda"), registry.supports(kernel, mask, case)):
        if isinstance(answer, No):
            pytest.skip(f"{label} {answer.reason}")
    try:
        prepared = registry.prepare(kernel, mask, case)
    except Refused as refusal:
        pytest.skip(f"{label}: {refusal}")
    return check_kernel(kernel, prepared.attention, case, reference(mask, case))


def attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float, blind: float = float("-inf"), softcap: float = 0.0, sinks: Any = None
) -> tuple[Tensor, Tensor]:
    """(out [L, H, D], lse [H, L]) of [L, H, D] tensors. Rows without keys have out 0 and this lse; FlashAttention's is +inf. Sinks [H] are
    columns of their own in the softmax, without a value."""
    dtype, exact = q.dtype, torch.promote_types(q.dtype, torch.float32)
    q, k, v = (x.transpose(0, 1).to(exact) for x in (q, k, v))
    k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
    scores = q @ k.mT * scale
    scores = (softcap * torch.tanh(scores / softcap) if softcap else scores).masked_fill(~visible, float("-inf"))
    columns = scores if sinks is None else torch.cat([scores, sinks[:, None, None].expand(-1, scores.shape[1], 1)], 2)
    lse = columns.logsumexp(-1)
    out = torch.exp(scores - lse.clamp_min(-1e30)[..., None]) @ v
    return out.transpose(0, 1).to(dtype), lse.masked_fill(lse.isinf(), blind)


def textbook(q: Tensor, k: Tensor, v: Tensor, mask: AnyMask) -> Tensor:
    """out [L, H, D] at the usual scale."""
    visible = torch.from_numpy(mask.dense())
    if visible.dim() == 3:  # a pattern per KV head
        visible = visible.repeat_interleave(q.shape[1] // mask.heads, 0)
    return attention(q, k, v, visible, q.shape[2] ** -0.5)[0]


def assert_same(mine: Sequence[Tensor], right: Sequence[Tensor], dout: Tensor, **tolerance: float) -> None:
    """An output and the leaves of its graph, then those that are right: outputs and gradients agree."""
    results = [(out, *torch.autograd.grad(out, leaves, dout)) for out, *leaves in (mine, right)]
    torch.testing.assert_close(*results, **tolerance)


def leaves(*tensors: Tensor) -> list[Tensor]:
    """Copies that collect gradients."""
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def gradients(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, visible: Tensor, scale: float) -> list[Tensor]:
    """dq, dk, dv as a functional backward computes them: from the out and the lse that it is given."""
    group, dtype, exact = q.shape[1] // k.shape[1], q.dtype, torch.promote_types(q.dtype, torch.float32)
    dout, q, out = (x.transpose(0, 1).to(exact) for x in (dout, q, out))
    k, v = (x.transpose(0, 1).to(exact).repeat_interleave(group, 0) for x in (k, v))
    p = torch.exp(q @ k.mT * scale - lse[..., None]).masked_fill(~visible, 0.0)
    ds = p * (dout @ v.mT - (dout * out).sum(-1, keepdim=True)) * scale
    dk, dv = (x.unflatten(0, (-1, group)).sum(1) for x in (ds.mT @ q, p.mT @ dout))
    return [x.transpose(0, 1).to(dtype) for x in (ds @ k, dk, dv)]


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    """A module of this name, and of all packages that it lies in, with these functions. Adapters that import it are imported anew."""
    parts = name.split(".")
    for adapter, module in list(sys.modules.items()):
        if adapter.startswith("longca.kernels.backends.") and re.search(
            rf"^(from|import) {parts[0]}\b", inspect.getsource(module), re.MULTILINE
        ):
            monkeypatch.delitem(sys.modules, adapter)
    for depth in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:depth]), ModuleType(parts[depth - 1]))
        if depth > 1:
            setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], sys.modules[".".join(parts[:depth])])
    for function, body in functions.items():
        setattr(sys.modules[name], function, body)
