"""Wrong kernels: a plain attention with one mistake each, and the name that a diagnosis should give to it.

`NAMED` was written before the first hypothesis of `longca.bench.check.mistakes`, and `FURTHER` after them. `UNKNOWN` are
mistakes that no hypothesis is made for: of them nothing may be named.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from longca import masks
from longca.kernels.base import Attention, Case
from longca.masks import Mask

TILE = 64


class Plain(Attention):
    """Attention as in the textbook, in fp32 or fp64. A wrong kernel overrides one step of it."""

    def __init__(self, mask: Mask, case: Case) -> None:
        self.mask, self.case, self.scale = mask, case, case.softmax_scale
        self.exact = torch.promote_types({"bf16": torch.bfloat16, "fp32": torch.float32}[case.dtype], torch.float32)
        self.visible = self.see(torch.from_numpy(mask.dense()))

    def see(self, visible):
        return visible

    def head_of(self, heads):
        """The KV head of each query head."""
        return heads // self.case.group

    def wide(self, x_LHD):
        return x_LHD[:, self.head_of(torch.arange(self.case.heads_q))].transpose(0, 1).to(self.exact)

    def scores(self, q, k):
        return (q.transpose(0, 1).to(self.exact) @ self.wide(k).mT * self.scale).masked_fill(~self.visible, -math.inf)

    def softmax(self, scores):
        """The probabilities and the lse."""
        lse = scores.logsumexp(-1)
        return (scores - lse.clamp_min(-1e30)[..., None]).exp(), lse

    def p_times_v(self, p, v):
        return p @ v

    def forward(self, q, k, v):
        p, lse = self.softmax(self.scores(q, k))
        out = self.p_times_v(p, self.wide(v)).transpose(0, 1).to(q.dtype).contiguous()
        return self.end_forward(out, lse, q, k, v)

    def end_forward(self, out, lse, q, k, v):
        return out, lse

    def dscores(self, p, dp, delta):
        return p * (dp - delta) * self.scale

    def backward(self, dout, q, k, v, out, lse):
        p = (self.scores(q, k) - lse.clamp_min(-1e30)[..., None]).exp()
        dout_HLD = dout.transpose(0, 1).to(self.exact)
        dp = dout_HLD @ self.wide(v).mT
        ds = self.dscores(p, dp, (dout_HLD * out.transpose(0, 1).to(self.exact)).sum(-1, keepdim=True))
        dq = (ds @ self.wide(k)).transpose(0, 1)
        dk, dv = self.of_kv(ds.mT @ q.transpose(0, 1).to(self.exact), p.mT @ dout_HLD)
        return self.end_backward(*(x.to(q.dtype).contiguous() for x in (dq, dk, dv)))

    def of_kv(self, dk_HLD, dv_HLD):
        return tuple(self.add_heads(x) for x in (dk_HLD, dv_HLD))

    def add_heads(self, x_HLD):
        total = torch.zeros(self.case.heads_kv, *x_HLD.shape[1:], dtype=x_HLD.dtype)
        return total.index_add_(0, self.head_of(torch.arange(self.case.heads_q)), x_HLD).transpose(0, 1)

    def end_backward(self, dq, dk, dv):
        return dq, dk, dv


class Bug(NamedTuple):
    """A step that is replaced, and the name of the mistake; empty where none is known."""

    step: str
    replaced: Callable[..., Any]
    named: str = ""
    mask: Mask = masks.causal(200)
    dtype: str = "fp32"
    heads: str = "4:2"
    head_dim: int = 40
    scale: float | None = None
    softcap: float = 0.0

    def prepare(self, case: Case) -> Attention:
        return type("Wrong", (Plain,), {self.step: self.replaced})(self.mask, case)

    @property
    def case(self) -> Case:
        heads, size = map(int, self.heads.split(":")), self.head_dim
        return Case(self.mask.seqlen_q, self.mask.seqlen_k, *heads, size, size, self.dtype, scale=self.scale, softcap=self.softcap)


WINDOW = masks.sliding_window_causal(200, w=24)
TWO_SIDED = masks.sliding_window(200, w=24)
DOCUMENTS = masks.causal_document(200, documents=[60, 71, 69])
SHIFTED = masks.causal_document(200, documents=[61, 71, 68])
SHARED = masks.share_question(200, documents=[40, 70, 90])
FULL = masks.full(200)
CAUSAL = torch.ones(200, 200, dtype=torch.bool).tril()


def edges(visible: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first visible key of each row, and the last one."""
    return visible.int().argmax(1), visible.shape[1] - 1 - visible.flip(1).int().argmax(1)


def without(visible: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return visible & (torch.arange(visible.shape[1]) != keys[:, None])


def also(visible: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return visible | (torch.arange(visible.shape[1]) == keys[:, None])


def between(visible: torch.Tensor, first: torch.Tensor | int, last: torch.Tensor | int) -> torch.Tensor:
    first, last = (torch.as_tensor(x).reshape(-1, 1) for x in (first, last))
    keys = torch.arange(visible.shape[1])
    return (keys >= first) & (keys <= last) & torch.ones(len(visible), 1, dtype=torch.bool)


def runs(visible: torch.Tensor) -> torch.Tensor:
    """Per key the number of the interval of its row that it lies in, from 1."""
    before = torch.nn.functional.pad(visible, (1, 0))[:, :-1]
    return (visible & ~before).cumsum(1)


def not_rescaled(self, p, v):
    """P times V by an online softmax that forgets to rescale what it has summed up when the maximum grows."""
    total, largest = torch.zeros(*p.shape[:2], v.shape[-1], dtype=p.dtype), torch.full(p.shape[:2], -math.inf, dtype=p.dtype)
    for first in range(0, p.shape[-1], TILE):
        part = p[..., first : first + TILE].log()
        largest = torch.maximum(largest, part.amax(-1))
        total += (part - largest.clamp_min(-1e30)[..., None]).exp() @ v[:, first : first + TILE]
    return total * largest.exp()[..., None]


def padded_keys(self, scores):
    """The keys that fill up the last tile have the score 0, and are not masked."""
    padding = torch.zeros(*scores.shape[:2], -scores.shape[-1] % TILE, dtype=scores.dtype)
    p, lse = Plain.softmax(self, torch.cat([scores, padding], -1))
    return p[..., : scores.shape[-1]], lse


def unnormalised(self, scores):
    _, lse = Plain.softmax(self, scores)
    return (scores - scores.amax(-1, keepdim=True)).exp(), lse


def cut_scores(self, q, k):
    return Plain.scores(self, q[..., :32], k[..., :32])


def unscaled_lse(self, out, lse, q, k, v):
    scores = (Plain.scores(self, q, k) / self.scale).masked_fill(~self.visible, -math.inf)
    return out, scores.logsumexp(-1)


def with_lse(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """Changes the lse, which is given with the largest score of each row."""
    return lambda self, out, lse, q, k, v: (out, change(lse, Plain.scores(self, q, k).amax(-1)))


def first_head_of_group(self, x_HLD):
    return x_HLD[:: self.case.group].transpose(0, 1)


def of_tile(seen: torch.Tensor, end: int) -> torch.Tensor:
    """The keys in the tile of the first visible key of each row (end 0), or of the last one (end 1)."""
    return torch.arange(seen.shape[1]) // TILE == edges(seen)[end][:, None] // TILE


def bf16(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16).to(x.dtype)


def zero_rows(out: torch.Tensor) -> torch.Tensor:
    out[len(out) // TILE * TILE :] = 0
    return out


NAMED = {
    "out_over_group": Bug("end_forward", lambda self, out, lse, *_: (out / self.case.group, lse), "factor"),
    "dq_without_scale": Bug("end_backward", lambda self, dq, dk, dv: (dq / self.scale, dk, dv), "factor"),
    "dk_scaled_twice": Bug("end_backward", lambda self, dq, dk, dv: (dq, dk * self.scale, dv), "factor"),
    "dk_over_group": Bug("end_backward", lambda self, dq, dk, dv: (dq, dk / self.case.group, dv), "factor", dtype="bf16"),
    "dv_too_large": Bug("end_backward", lambda self, dq, dk, dv: (dq, dk, dv / 0.9), "factor"),
    "scores_unscaled": Bug("scores", lambda self, q, k: (Plain.scores(self, q, k) / self.scale), "no scale"),
    "scores_scaled_twice": Bug("scores", lambda self, q, k: Plain.scores(self, q * self.scale, k), "scale twice"),
    "lse_base_2": Bug("end_forward", lambda self, out, lse, *_: (out, lse / math.log(2)), "lse base 2"),
    "lse_base_10": Bug("end_forward", lambda self, out, lse, *_: (out, lse / math.log(10)), "lse base 10", dtype="bf16"),
    "lse_unscaled": Bug("end_forward", unscaled_lse, "lse unscaled"),
    "lse_largest_score": Bug("end_forward", with_lse(lambda lse, largest: largest), "lse is the maximum"),
    "lse_without_maximum": Bug("end_forward", with_lse(lambda lse, largest: lse - largest), "lse without the maximum"),
    "last_key_missing": Bug("see", lambda self, seen: without(seen, edges(seen)[1]), "last key missing", DOCUMENTS),
    "first_key_missing": Bug("see", lambda self, seen: without(seen, edges(seen)[0]), "first key missing", WINDOW),
    "one_key_behind": Bug("see", lambda self, seen: also(seen, edges(seen)[1] + 1), "one key behind", dtype="bf16"),
    "one_key_before": Bug("see", lambda self, seen: also(seen, edges(seen)[0] - 1), "one key before", WINDOW),
    "last_key_of_tiles": Bug("see", lambda self, seen: seen & (torch.arange(200) % TILE != TILE - 1), "last key of a tile missing", FULL),
    "first_key_of_tiles": Bug("see", lambda self, seen: seen & (torch.arange(200) % TILE != 0), "first key of a tile missing"),
    "second_interval": Bug("see", lambda self, seen: seen & (runs(seen) == 1), "second interval ignored", SHARED),
    "first_interval": Bug("see", lambda self, seen: seen & (runs(seen) == runs(seen)[:, -1:]), "first interval ignored", SHARED),
    "gap_filled": Bug("see", lambda self, seen: between(seen, *edges(seen)), "gap ignored", SHARED),
    "window_ignored": Bug("see", lambda self, seen: between(seen, 0, edges(seen)[1]), "start ignored", WINDOW),
    "end_ignored": Bug("see", lambda self, seen: between(seen, edges(seen)[0], 199), "end ignored", TWO_SIDED),
    "other_documents": Bug("see", lambda self, seen: between(seen, 0, edges(seen)[1]), "start ignored", DOCUMENTS, "bf16"),
    "mask_transposed": Bug("see", lambda self, seen: seen.T, "mask transposed"),
    "kv_head_modulo": Bug("head_of", lambda self, heads: heads % self.case.heads_kv, "KV head h % Hkv"),
    "dk_dv_swapped": Bug("end_backward", lambda self, dq, dk, dv: (dq, dv, dk), "dk and dv swapped"),
    "delta_forgotten": Bug("dscores", lambda self, p, dp, delta: p * dp * self.scale, "delta forgotten"),
    "p_in_bf16": Bug("p_times_v", lambda self, p, v: bf16(p) @ v, "P rounded to bf16"),
    "ds_in_bf16": Bug("dscores", lambda self, p, dp, delta: bf16(Plain.dscores(self, p, dp, delta)), "dS rounded to bf16"),
    "not_rescaled": Bug("p_times_v", not_rescaled, "not rescaled"),
    "unnormalised": Bug("softmax", unnormalised, "not divided by the sum"),
    "padded_keys": Bug("softmax", padded_keys, "padded keys", FULL),
    "rows_not_written": Bug("end_forward", lambda self, out, lse, *_: (zero_rows(out), lse), "zero"),
    "one_head_of_a_group": Bug("add_heads", first_head_of_group, "one head of a group"),
    # dq is overwritten by each tile, not added up
    "dq_overwritten": Bug("dscores", lambda self, *x: Plain.dscores(self, *x) * of_tile(self.visible, 1), "last tile alone"),
    "tiles_unmasked": Bug("see", lambda self, seen: torch.arange(200) // TILE <= torch.arange(200)[:, None] // TILE, "tiles unmasked"),
    "head_size_cut": Bug("scores", cut_scores, "tail of the head size"),
}  # fmt: skip


def without_place(tile: int, place: int) -> Callable[..., Any]:
    return lambda self, seen: seen & (torch.arange(seen.shape[1]) % tile != place)


def times(factor: float) -> Callable[..., Any]:
    return lambda self, q, k: Plain.scores(self, q, k) * factor


def causal_too(self, seen):
    return seen & (torch.arange(seen.shape[1]) <= torch.arange(len(seen))[:, None] + seen.shape[1] - len(seen))


def without_rows(rows: slice) -> Callable[..., Any]:
    """A backward that leaves these rows out of dk and dv."""

    def backward(self, dout, q, k, v, out, lse):
        dq = Plain.backward(self, dout, q, k, v, out, lse)[0]
        dout = dout.clone()
        dout[rows] = 0
        return dq, *Plain.backward(self, dout, q, k, v, out, lse)[1:]

    return backward


def maximum_for_lse(self, dout, q, k, v, out, lse):
    return Plain.backward(self, dout, q, k, v, out, Plain.scores(self, q, k).amax(-1))


def of_other_heads(self, x_HLD):
    total = torch.zeros(self.case.heads_kv, *x_HLD.shape[1:], dtype=x_HLD.dtype)
    return total.index_add_(0, torch.arange(self.case.heads_q) % self.case.heads_kv, x_HLD).transpose(0, 1)


def capped_scores(self, q, k):
    return Plain.scores(self, q, k).div(self.case.softcap).tanh().mul(self.case.softcap).masked_fill(~self.visible, -math.inf)


def without_one_head(self, x_HLD):
    return x_HLD.unflatten(0, (-1, self.case.group))[:, :-1].sum(1).transpose(0, 1)


def with_all_keys(self, *given):
    own, self.visible = self.visible, torch.ones_like(self.visible)
    gradients = Plain.backward(self, *given)
    self.visible = own
    return gradients


def rows_by(tile: int) -> torch.Tensor:
    """Of each row the first one of its tile."""
    return (torch.arange(200) // tile * tile)[:, None]


def mean_of_v(self, out, lse, q, k, v):
    return torch.where(self.visible.any(1)[:, None, None], out, self.wide(v).mean(1).to(out.dtype)), lse


def of_other_kv_heads(self, x_HLD):
    """A tensor that `wide` has made, with the KV heads h % Hkv."""
    return x_HLD[torch.arange(self.case.heads_q) % self.case.heads_kv * self.case.group]


def dv_by_the_maximum(self, dout, *given):
    dv = maximum_for_lse(self, dout, *given)[2]
    return *Plain.backward(self, dout, *given)[:2], dv


LATE = masks.Mask.of(120, 200, [(0, 120, 0, 0, 81, 1)])
WHOLE_DOCUMENTS = masks.full_document(200, documents=[60, 71, 69])
SMALL, LONG = masks.causal(257), masks.causal(1021)
FURTHER = {
    "last_key_of_96": Bug("see", without_place(96, 95), "last key of a tile missing", masks.causal(400)),
    "first_key_of_80": Bug("see", without_place(80, 0), "first key of a tile missing", LONG),
    "only_key_256": Bug("see", lambda self, seen: seen & (torch.arange(257) < 256), "last tile missing", SMALL),
    "last_tile_missing": Bug("see", lambda self, seen: seen & ~of_tile(seen, 1), "last tile of a row missing"),
    "last_tile_alone": Bug("see", lambda self, seen: seen & of_tile(seen, 1), "last tile alone"),
    "first_tile_alone": Bug("see", lambda self, seen: seen & of_tile(seen, 0), "first tile alone", dtype="bf16"),
    "exp2_for_exp": Bug("scores", times(math.log(2)), "exp2 for exp", SMALL, "bf16", "8:1", 64),
    "exp_for_exp2": Bug("scores", times(1 / math.log(2)), "exp for exp2", SMALL, "bf16", "4:4", 64),
    "scale_of_64": Bug("scores", times((40 / 64) ** 0.5), "scale of another head size"),
    "scale_ignored": Bug("scores", times(40**-0.5 / 0.1), "scale ignored", scale=0.1),
    "aligned_at_the_first_key": Bug("see", lambda self, seen: torch.ones_like(seen).tril(), "alignment", LATE),
    "causal_besides": Bug("see", causal_too, "causal besides", WHOLE_DOCUMENTS),
    "whole_documents": Bug("see", lambda self, seen: torch.from_numpy(WHOLE_DOCUMENTS.dense()), "whole document", DOCUMENTS),
    "kv_head_0": Bug("head_of", lambda self, heads: heads * 0, "KV head 0", heads="8:4"),
    "gradients_of_other_heads": Bug("add_heads", of_other_heads, "KV head h % Hkv", heads="8:4"),
    "last_rows_missing": Bug("backward", without_rows(slice(192, None)), "last rows missing"),
    "first_rows_missing": Bug("backward", without_rows(slice(0, TILE)), "first rows missing"),
    "maximum_for_lse": Bug("backward", maximum_for_lse, "lse in the backward", dtype="bf16"),
    "lse_in_two_bases": Bug("end_forward", with_lse(lambda lse, largest: largest + (lse - largest) / math.log(2)), "lse in two bases"),
    "lse_times_scale": Bug("end_forward", lambda self, out, lse, *_: (out, lse * self.scale), "lse times scale", dtype="bf16"),
    "lse_zero": Bug("end_forward", lambda self, out, lse, *_: (out, lse * 0), "lse zero"),
    "softcap_ignored": Bug("scores", Plain.scores, "softcap ignored", softcap=3.0),
    "slope_of_the_softcap": Bug("scores", capped_scores, "slope of the softcap", softcap=3.0),
    "tiles_of_48_unmasked": Bug("see", lambda self, seen: torch.arange(200) // 48 <= torch.arange(200)[:, None] // 48, "tiles unmasked"),
    "dk_cut": Bug("end_backward", lambda self, dq, dk, dv: (dq, dk * (torch.arange(72) < 64), dv), "tail of the head size", head_dim=72),
    "dv_is_dk": Bug("of_kv", lambda self, dk, dv: Plain.of_kv(self, dk, dk), "dk and dv swapped"),
    "without_one_head": Bug("add_heads", without_one_head, "one head of a group missing", heads="8:2"),
    "dv_of_a_tile_zero": Bug("end_backward", lambda self, dq, dk, dv: (dq, dk, dv * (torch.arange(200) >= TILE)[:, None, None]), "zero"),
    "window_exclusive": Bug("see", lambda self, seen: seen & ~torch.ones_like(seen).tril(-24), "first key missing", WINDOW),
    "strictly_causal": Bug("see", lambda self, seen: seen.tril(-1), "last key missing"),
    "p_in_fp16": Bug("p_times_v", lambda self, p, v: p.half().float() @ v, "P rounded to fp16"),
    "mask_ignored_in_backward": Bug("backward", with_all_keys, "mask ignored", DOCUMENTS),
    "end_by_tile": Bug("see", lambda self, seen: torch.arange(200) <= rows_by(TILE), "end by tile", dtype="bf16"),
    "start_by_tile": Bug("see", lambda self, seen: CAUSAL & (torch.arange(200) >= rows_by(32) - 24), "start by tile", WINDOW),
    "mean_of_v": Bug("end_forward", mean_of_v, "mean of V", masks.Mask.of(200, 200, [(0, 150, 0, 0, 1, 1)]), "bf16"),
    "v_of_other_heads": Bug("p_times_v", lambda self, p, v: p @ of_other_kv_heads(self, v), "KV head h % Hkv", heads="8:4"),
    "dv_by_the_maximum": Bug("backward", dv_by_the_maximum, "lse in the backward"),
    "ds_with_a_negative_scale": Bug("dscores", NAMED["ds_in_bf16"].replaced, "dS rounded to bf16", scale=-0.25),
    "kv_head_modulo_6": Bug("head_of", lambda self, heads: heads % self.case.heads_kv, "KV head h % Hkv", heads="6:2"),
}  # fmt: skip


def alibi(self, q, k):
    distance = torch.arange(self.mask.seqlen_q)[:, None] - torch.arange(self.mask.seqlen_k)
    return Plain.scores(self, q, k) - 0.05 * distance


def rows_of(tile: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    def changed(self, out, lse, *_):
        out[tile * TILE : (tile + 1) * TILE] = change(out[tile * TILE : (tile + 1) * TILE])
        return out, lse

    return changed


def noise(x: torch.Tensor) -> torch.Tensor:
    return x + 0.05 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x.dtype)


UNKNOWN = {
    "noise": Bug("end_forward", lambda self, out, lse, *_: (noise(out), lse)),
    "noise_in_dv": Bug("end_backward", lambda self, dq, dk, dv: (dq, dk, noise(dv)), dtype="bf16"),
    "alibi": Bug("scores", alibi),
    "softcapped": Bug("scores", lambda self, q, k: (Plain.scores(self, q, k) / 2).tanh().mul(2).masked_fill(~self.visible, -math.inf)),
    "heads_reversed": Bug("end_forward", lambda self, out, lse, *_: (out.flip(1), lse)),
    "previous_row": Bug("end_forward", lambda self, out, lse, *_: (out.roll(1, 0), lse)),
    "v_shifted": Bug("p_times_v", lambda self, p, v: p @ v.roll(1, 1), mask=FULL),
    "rows_of_a_tile_reversed": Bug("end_forward", rows_of(1, lambda x: x.flip(0)), dtype="bf16"),
    "every_third_key": Bug("see", lambda self, seen: seen & (torch.arange(200) % 3 != 1), mask=FULL),
    "keys_dropped_at_random": Bug("see", lambda self, seen: seen & (torch.rand(seen.shape) < 0.9), mask=FULL),
    "lse_plus_noise": Bug("end_forward", lambda self, out, lse, *_: (out, noise(lse))),
    "delta_of_the_row_above": Bug("dscores", lambda self, p, dp, delta: Plain.dscores(self, p, dp, delta.roll(1, 1))),
    "v_rounded_to_eight_steps": Bug("p_times_v", lambda self, p, v: p @ (v * 8).round() / 8),
    "exp_by_a_polynomial": Bug("softmax", lambda self, scores: Plain.softmax(self, (1 + scores / 8).clamp_min(1e-9).log() * 8)),
    "dk_of_one_more_tile": Bug("end_backward", lambda self, dq, dk, dv: (dq, dk + dk.roll(TILE, 0), dv)),
    "dims_swapped": Bug("end_forward", lambda self, out, lse, *_: (out.flip(2), lse)),
    "mean_of_rows_added": Bug("end_forward", lambda self, out, lse, *_: (out + out.mean(0, keepdim=True) / 2, lse)),
    "first_query_head_for_all": Bug("scores", lambda self, q, k: Plain.scores(self, q[:, :1].expand_as(q), k)),
    "lse_of_another_head": Bug("end_forward", lambda self, out, lse, *_: (out, lse.roll(1, 0))),
    "dk_of_another_token": Bug("end_backward", lambda self, dq, dk, dv: (dq, dk.roll(1, 0), dv)),
    "half_a_window": Bug("see", lambda self, seen: seen & ~torch.ones_like(seen).tril(-13), mask=WINDOW, dtype="bf16"),
    "half_the_scale": Bug("scores", lambda self, q, k: Plain.scores(self, q, k) / 2),
    "documents_shifted": Bug("see", lambda self, seen: torch.from_numpy(SHIFTED.dense()), mask=DOCUMENTS),
    "scores_clamped": Bug("scores", lambda self, q, k: Plain.scores(self, q, k).clamp(max=1.0)),
    "half_of_delta": Bug("dscores", lambda self, p, dp, delta: Plain.dscores(self, p, dp, delta / 2)),
    "scores_in_bf16": Bug("scores", lambda self, q, k: bf16(Plain.scores(self, q, k))),
    "v_in_bf16": Bug("p_times_v", lambda self, p, v: p @ bf16(v)),
    "lse_in_bf16": Bug("end_forward", lambda self, out, lse, *_: (out, bf16(lse))),
    "kv_heads_reversed": Bug("head_of", lambda self, heads: self.case.heads_kv - 1 - heads // self.case.group),
    "v_clamped": Bug("p_times_v", lambda self, p, v: p @ v.clamp(-1, 1)),
    "one_element": Bug("end_forward", lambda self, out, lse, *_: (out.index_fill(0, torch.tensor([133]), 9.0), lse)),
    "kv_heads_rotated": Bug("head_of", lambda self, heads: (heads // self.case.group + 1) % self.case.heads_kv, heads="8:4"),
    "window_of_twice_the_size": Bug("see", lambda self, seen: torch.ones_like(seen).tril().triu(-48), mask=WINDOW),
    "two_keys_behind": Bug("see", lambda self, seen: also(also(seen, edges(seen)[1] + 1), edges(seen)[1] + 2)),
}  # fmt: skip
