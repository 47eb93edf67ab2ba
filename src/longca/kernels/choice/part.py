"""The part of a call that a trial times, where the whole is too much work: some KV heads, on a CPU only the first tokens of one."""

from __future__ import annotations

import itertools
from dataclasses import replace

from longca.kernels.base import Case
from longca.masks import AnyMask, BlockMask
from longca.text import format_size, plural

MOST_FLOPS = {"cpu": 2e9, "cuda": 5e13}  # of a forward: 80 ms on an H200


def is_whole(mask: AnyMask, case: Case) -> bool:
    """Returns whether a trial times the whole call: it is little work, or (on a GPU) cannot be cut to fewer heads."""
    return smaller(mask, case)[1] == case


def smaller(mask: AnyMask, case: Case) -> tuple[AnyMask, Case]:
    """Returns the call for as many KV heads as take at most `MOST_FLOPS`; on a CPU it is halved in length where the fewest take more.

    Heads whose patterns have about the mean area come first. Of different patterns two are left at least: kernels run one in another way.
    """
    flops = 2 * (case.head_dim + case.head_dim_v) * case.group  # of a pair of tokens and a KV head
    most = MOST_FLOPS[case.device]
    areas = mask.head_areas if isinstance(mask, BlockMask) and mask.heads > 1 else [mask.area] * case.heads_kv
    typical = sorted(range(len(areas)), key=lambda head: abs(areas[head] * len(areas) - sum(areas)))
    fit = sum(pairs * flops <= most for pairs in itertools.accumulate(areas[head] for head in typical))
    heads = sorted(typical[: max(fit, min(2, mask.heads))])
    if len(heads) < mask.heads:
        mask = mask.take_heads(heads)
    while case.device == "cpu" and mask.area * (len(heads) // mask.heads) * flops > most:
        cut = mask.rows([(0, mask.seqlen_q // 2)]).cols([(0, mask.seqlen_k // 2)])
        if not cut.area:
            break
        mask = cut
    return mask, replace(case, heads_q=len(heads) * case.group, heads_kv=len(heads), seqlen_q=mask.seqlen_q, seqlen_k=mask.seqlen_k)


def part_of(part: Case, whole: Case) -> str:
    """Returns which part of a call was timed, in words; empty where it was all of it."""
    heads = f"{part.heads_kv} of {plural(whole.heads_kv, 'KV head')}" if part.heads_kv < whole.heads_kv else ""
    tokens = f"the first {format_size(part.seqlen_k)} tokens" if part.seqlen_k < whole.seqlen_k else ""
    return ", ".join(filter(None, (heads, tokens)))
