"""Attention in plain torch: of all pairs at once, and in chunks of rows that fit into any memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.kernels.base import LAST_RESORT, Answer, Attention, Case, Kernel, No, Preference, Yes

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from longca.kernels.base import Gradients
    from longca.masks import AnyMask


class TorchKernel(Kernel):
    name = "torch"
    about = "matmul, softmax, matmul in plain torch"
    devices = ("cpu", "cuda")
    capability = (0, 0)
    variants = ("plain", "chunked")
    takes_negative_scale = takes_empty = takes_softcap = True
    tested = "CPU, H200"

    def __init__(self, variant: str = "") -> None:
        super().__init__(variant)
        self.layout = "HLD"
        self.preference = Preference(cpu=20) if variant == "plain" else Preference(cpu=20, cuda=LAST_RESORT)
        self.default_for_methods = ("cpu",) if variant == "chunked" else ()

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        if case.heads_q % case.heads_kv:
            return No(f"needs a multiple of the {case.heads_kv} KV heads as query heads, not {case.heads_q}")
        if mask.heads not in (1, case.heads_kv):
            return No(f"needs one block pattern, or one per KV head ({case.heads_kv}), not {mask.heads}")
        plain = self.variant == "plain"
        return Yes("lowered", "every pair as a bool" if plain else "a chunk of rows at a time", quadratic=plain)

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        return _Plain(mask, case) if self.variant == "plain" else _Chunked(mask, case)


def capped(scores: Tensor, softcap: float) -> Tensor:
    """Returns softcap * tanh(scores / softcap), or the scores where softcap is 0."""
    return (scores / softcap).tanh_() * softcap if softcap else scores


def slope(capped_scores: Tensor, softcap: float) -> Tensor | float:
    """Returns the derivative of `capped` from its result."""
    return 1 - (capped_scores / softcap).square() if softcap else 1.0


class _Plain(Attention):
    """Computes all scores of all heads at once, in fp32 or fp64. Inner tensors are [KV head, query head of its group, ...], so that no KV
    head is repeated."""

    def __init__(self, mask: AnyMask, case: Case) -> None:
        import torch

        from longca.kernels.lower import Visibility

        visible = Visibility(mask, case.device)
        rows = torch.arange(mask.seqlen_q, device=case.device)
        heads = range(mask.heads)
        hidden = ~torch.stack([visible(rows, 0, mask.seqlen_k, head) for head in heads])
        self.hidden_HLL = hidden[:, None]
        self.case = case
        self.work = torch.float64 if case.dtype == "fp64" else torch.float32

    def _probabilities(self, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = capped(q.to(self.work) @ k.to(self.work).transpose(-1, -2) * self.case.softmax_scale, self.case.softcap)
        scores = scores.masked_fill_(self.hidden_HLL, float("-inf"))
        lse = scores.logsumexp(-1)
        return (scores - lse.clamp_min(-1e30)[..., None]).exp(), lse

    def _grouped(self, x_LHD: torch.Tensor, groups: int) -> torch.Tensor:
        length, _, size = x_LHD.shape
        return x_LHD.transpose(0, 1).reshape(self.case.heads_kv, groups, length, size)

    def _flat(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(0, 1).transpose(0, 1)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = self._grouped(q_LHD, self.case.group), self._grouped(k_LHD, 1), self._grouped(v_LHD, 1)
        probabilities, lse = self._probabilities(q, k)
        return self._flat(probabilities.to(v.dtype) @ v), lse.flatten(0, 1)

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        assert lse_HL is not None
        group = self.case.group
        q, k, v = self._grouped(q_LHD, group), self._grouped(k_LHD, 1), self._grouped(v_LHD, 1)
        dout, out = self._grouped(dout_LHD, group), self._grouped(out_LHD, group)
        lse = lse_HL.view(self.case.heads_kv, group, -1, 1)
        scores = capped(q.to(self.work) @ k.to(self.work).transpose(-1, -2) * self.case.softmax_scale, self.case.softcap)
        p = (scores - lse.clamp_min(-1e30)).exp_().masked_fill_(self.hidden_HLL, 0)
        delta = (dout.to(self.work) * out).sum(-1, keepdim=True)
        dp = dout.to(self.work) @ v.to(self.work).transpose(-1, -2)
        dscores = (p * (dp - delta) * self.case.softmax_scale * slope(scores, self.case.softcap)).to(q.dtype)
        dv = (p.to(v.dtype).transpose(-1, -2) @ dout).sum(1, keepdim=True)
        dk = (dscores.transpose(-1, -2) @ q).sum(1, keepdim=True)
        return self._flat(dscores @ k), self._flat(dk), self._flat(dv)


CHUNK_PAIRS = 1 << 22  # scores held at once: 16 MiB in fp32


class _Chunked(Attention):
    """Computes one KV head and some rows at a time, in fp32 (fp64 for fp64): slow, exact, and with a few MiB of scores at most."""

    def __init__(self, mask: AnyMask, case: Case) -> None:
        import numpy as np
        import torch

        from longca.kernels.lower import Visibility

        self.case, self.visible = case, Visibility(mask, case.device)
        self.work = torch.float64 if case.dtype == "fp64" else torch.float32
        step = max(1, CHUNK_PAIRS // max(1, mask.seqlen_k * case.group))
        starts = range(0, mask.seqlen_q, step)
        chunks = [(start, min(start + step, mask.seqlen_q)) for start in starts]
        spans = [self.visible.span(np.arange(start, end)) for start, end in chunks]
        self.chunks = [
            (torch.arange(*chunk, device=case.device), slice(*chunk), slice(*span))
            for chunk, span in zip(chunks, spans, strict=True)
            if span[1] > span[0]
        ]

    def _scores(self, q_GLD: torch.Tensor, k_LD: torch.Tensor, rows: torch.Tensor, keys: slice, head: int) -> torch.Tensor:
        scores = capped(q_GLD @ k_LD.T * self.case.softmax_scale, self.case.softcap)
        return scores.masked_fill_(~self.visible(rows, keys.start, keys.stop, head), float("-inf"))

    def _heads(self) -> list[tuple[int, slice]]:
        return [(head, slice(head * self.case.group, (head + 1) * self.case.group)) for head in range(self.case.heads_kv)]

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        out_HLD = torch.zeros(self.case.heads_q, len(q_LHD), v_LHD.shape[2], dtype=q_LHD.dtype, device=q_LHD.device)
        lse_HL = torch.full(out_HLD.shape[:2], float("-inf"), dtype=self.work, device=q_LHD.device)
        for head, group in self._heads():
            k_LD, v_LD = k_LHD[:, head].to(self.work), v_LHD[:, head].to(self.work)
            for rows, chunk, keys in self.chunks:
                q_GLD = q_LHD[chunk, group].transpose(0, 1).to(self.work)
                scores = self._scores(q_GLD, k_LD[keys], rows, keys, head)
                lse = scores.logsumexp(-1)
                p = (scores - lse.clamp_min(-1e30)[..., None]).exp_()
                lse_HL[group, chunk] = lse
                out_HLD[group, chunk] = (p @ v_LD[keys]).to(out_HLD.dtype)
        return out_HLD.transpose(0, 1), lse_HL

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        import torch

        assert lse_HL is not None
        dq, dk, dv = (torch.zeros(x.shape, dtype=self.work, device=x.device) for x in (q_LHD, k_LHD, v_LHD))
        for head, group in self._heads():
            k_LD, v_LD = k_LHD[:, head].to(self.work), v_LHD[:, head].to(self.work)
            for rows, chunk, keys in self.chunks:
                q, dout, out = (x[chunk, group].transpose(0, 1).to(self.work) for x in (q_LHD, dout_LHD, out_LHD))
                lse = lse_HL[group, chunk].to(self.work).clamp_min(-1e30)[..., None]
                scores = self._scores(q, k_LD[keys], rows, keys, head)
                p = (scores - lse).exp_()
                delta = (dout * out).sum(-1, keepdim=True)
                dscores = p * (dout @ v_LD[keys].T - delta) * self.case.softmax_scale
                if self.case.softcap:  # p is 0 at hidden keys, where the score is -inf
                    dscores *= slope(scores.masked_fill_(scores.isinf(), 0.0), self.case.softcap)
                dq[chunk, group] = (dscores @ k_LD[keys]).transpose(0, 1)
                dk[keys, head] += (dscores.transpose(-1, -2) @ q).sum(0)
                dv[keys, head] += (p.transpose(-1, -2) @ dout).sum(0)
        return dq.to(q_LHD.dtype), dk.to(k_LHD.dtype), dv.to(v_LHD.dtype)
