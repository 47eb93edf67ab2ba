"""Code that several adapters share: documents with a window, rows without visible keys, repeated KV heads, deterministic torch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from longca.errors import Refused
from longca.kernels.base import Attention, Case, No, refuse_shapes
from longca.masks import Mask

if TYPE_CHECKING:
    import torch

    from longca.masks import AnyMask
    from longca.masks.encodings import Varlen

HOPPER_HEAD_DIMS = (64, 96, 128, 192, 256)
MOST_INTERVALS = 128  # per row, of kernels that compile a comparison for each: 100 take flex 46 s on a CPU, 400 minutes
LSE_OF_BLIND_ROWS = 1e4  # exp(score - 1e4) is 0 in every dtype, so that a row with this lse has no gradient


def band_mask(mask: AnyMask) -> Mask:
    """Returns a mask made of bands, and raises Refused for block patterns."""
    if isinstance(mask, Mask):
        return mask
    raise Refused("takes masks made of bands, not block patterns")


def documents_of(mask: AnyMask) -> Varlen | No:
    """Returns the mask as documents with one window for all, or the reason why it cannot be written so."""
    if not isinstance(mask, Mask):
        return No("takes masks made of bands, not block patterns")
    try:
        return mask.varlen()
    except Refused as refusal:
        return No(f"cannot take this mask: {str(refusal).rstrip('.')}")


def refuse_columns(mask: AnyMask) -> No | None:
    """Returns why a mask cannot be written as FlashMask's column intervals, or None."""
    if not isinstance(mask, Mask):
        return No("takes masks made of bands, not block patterns")
    try:
        mask.column_intervals()
    except Refused as refusal:
        return No(f"cannot take this mask: {str(refusal).rstrip('.')}")
    return None


def refuse_other_scales(case: Case) -> No | None:
    """Returns the refusal of a kernel that has no argument for the softmax scale, or None where the scale is the usual one."""
    if math.isclose(case.softmax_scale, case.head_dim**-0.5):
        return None
    return No(f"knows no other softmax scale than 1/sqrt(head size), not {case.softmax_scale}")


def older_than(package: str, least: tuple[int, ...]) -> str:
    """Returns the version of an installed package that is older than `least`; empty where it is not, or has no version number."""
    try:
        number = version(package)
    except PackageNotFoundError:
        return ""
    release = re.match(r"\d+(\.\d+)*", number)
    return number if release and tuple(map(int, release[0].split("."))) < least else ""


def refuse_hopper_shapes(case: Case) -> No | None:
    """Returns the refusal of dtypes and head sizes that FlashAttention-3 and -4 share, or None."""
    refusal = refuse_shapes(case, dtypes=("bf16", "fp16"), dims=HOPPER_HEAD_DIMS)
    if refusal is None and case.head_dim != case.head_dim_v and (case.head_dim, case.head_dim_v) != (192, 128):
        return No(f"takes another head size for v only as 192/128, not {case.head_dim}/{case.head_dim_v}")
    return refusal


class BlindRows:
    """Sets out to 0 and lse to -inf in rows without visible keys; does nothing where a mask has no such rows."""

    def __init__(self, mask: Mask, device: str) -> None:
        from longca.kernels.lower import sees_nothing, upload

        rows = np.flatnonzero(sees_nothing(mask))
        self.rows = upload(rows, device) if len(rows) else None

    def after_forward(self, out_LHD: torch.Tensor, lse_HL: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Changes both tensors in place."""
        if self.rows is not None:
            out_LHD.index_fill_(0, self.rows, 0.0)
            lse_HL.index_fill_(1, self.rows, float("-inf"))
        return out_LHD, lse_HL

    def in_graph(self, out_LHD: torch.Tensor, lse_HL: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns changed copies: autograd differentiates them, and these rows get no gradient."""
        if self.rows is None:
            return out_LHD, lse_HL
        return out_LHD.index_fill(0, self.rows, 0.0), lse_HL.index_fill(1, self.rows, float("-inf"))

    def before_backward(self, dout_LHD: torch.Tensor, lse_HL: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns dout and lse with which these rows add nothing to dk and dv, and get a dq of 0."""
        assert lse_HL is not None
        if self.rows is not None:
            dout_LHD = dout_LHD.index_fill(0, self.rows, 0.0)
            lse_HL = lse_HL.index_fill(1, self.rows, LSE_OF_BLIND_ROWS)
        return dout_LHD, lse_HL


class DocumentAttention(Attention):
    """Base for FlashAttention's calling convention: one document is a batch of one, several are packed with prefix sums."""

    def __init__(self, mask: AnyMask, case: Case) -> None:
        from longca.kernels.lower import upload

        mask = band_mask(mask)
        varlen = mask.varlen()
        self.case, self.causal, self.left, self.right = case, varlen.causal, varlen.left, varlen.right
        self.packed = len(varlen.cu_q) > 2
        self.max_q, self.max_k = (int(np.diff(cu).max()) for cu in (varlen.cu_q, varlen.cu_k))
        self.cu_q, self.cu_k = (upload(cu, case.device) if self.packed else None for cu in (varlen.cu_q, varlen.cu_k))
        self.blind = BlindRows(mask, case.device)

    def batched(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tensors if self.packed else tuple(tensor.unsqueeze(0) for tensor in tensors)

    def unbatched(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tensors if self.packed else tuple(tensor.squeeze(0) for tensor in tensors)


def repeat_heads(kv_LHD: torch.Tensor, group: int) -> torch.Tensor:
    """Returns each KV head once per query head of its group, heads outermost in memory."""
    return kv_LHD if group == 1 else kv_LHD.transpose(0, 1).repeat_interleave(group, dim=0).transpose(0, 1)


def sum_heads(dkv_LHD: torch.Tensor, group: int) -> torch.Tensor:
    """Returns the gradient of `repeat_heads`."""
    return dkv_LHD if group == 1 else dkv_LHD.unflatten(1, (-1, group)).sum(2)


@contextmanager
def deterministic_torch(wanted: bool) -> Iterator[None]:
    """Sets torch's process-wide switch for a deterministic backward: its own attention operators have no argument for it."""
    if not wanted:
        yield
        return
    import torch

    memory: Any = torch.utils.deterministic
    fill = memory.fill_uninitialized_memory
    enabled, warn_only = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        memory.fill_uninitialized_memory = False  # it would write every fresh buffer inside the timed region
        torch.use_deterministic_algorithms(True)
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
        memory.fill_uninitialized_memory = fill


def refuse_intervals(mask: Mask) -> No | None:
    """Refuses a mask whose rows have very many intervals, for kernels that compile one comparison for each."""
    if intervals_per_row(mask) <= MOST_INTERVALS:
        return None
    count = len(mask.row_intervals()[0])
    return No(f"takes at most {MOST_INTERVALS} intervals of keys per row, and this mask has {count}") if count > MOST_INTERVALS else None


def intervals_per_row(mask: Mask) -> int:
    """Returns the most bands that any row has: its intervals, where no two bands touch in a row."""
    rows = np.concatenate([mask.bands.q0, mask.bands.q1])
    steps = np.repeat([1, -1], len(mask.bands.q0))
    order = np.lexsort((steps, rows))  # at one row ends come before starts
    return int(np.cumsum(steps[order]).max(initial=0))
