"""Cutting a batch: which axis has the tokens, labels that are shifted before they are cut, and a mean over the tokens of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch

from longca.errors import BadInput

IGNORED = -100  # torch's own ignore_index
LABELS, SHIFTED = "labels", "shift_labels"
Summed = Callable[[torch.Tensor, int], torch.Tensor]  # the sum of a number over ranks, and what its gradient is multiplied with
_MARK = "_longca_plan"  # of a tensor: the digest of the plan that cut it


class Batch(dict[str, Any]):
    """A dict of this rank's tokens."""


def refuse_other(tensor: torch.Tensor, digest: str) -> None:
    """Raises BadInput for a tensor that another plan has cut."""
    if getattr(tensor, _MARK, digest) != digest:
        raise BadInput("this tensor was sharded by another plan, which gave this rank other tokens; use one plan for a batch.")


def token_axis(tensor: torch.Tensor, length: int, axis: int | None, name: str, whose: str = "all") -> int:
    """Returns the axis of the tokens: the one of the first two that has so many entries."""
    axes = [number for number in range(min(2, tensor.dim())) if tensor.shape[number] == length] if axis is None else [axis % tensor.dim()]
    if len(axes) == 1 and tensor.shape[axes[0]] == length:
        return axes[0]
    if len(axes) > 1:
        raise BadInput(f"{name} {list(tensor.shape)} has {length} tokens in both of its first axes; say which with axis=.")
    raise BadInput(f"{name} {list(tensor.shape)} has no axis of {whose} {length} tokens; give it so, or leave it out.")


def cut(given: Any, rows: torch.Tensor, length: int, axis: int | None, name: str, digest: str) -> Any:
    """Returns these rows of a tensor. What is no tensor, or a single number, stays."""
    if not isinstance(given, torch.Tensor) or given.dim() == 0:
        return given
    if hasattr(given, _MARK):
        raise BadInput(f"{name} is sharded already; shard a batch once, before the model.")
    own = given.index_select(token_axis(given, length, axis, name), rows.to(given.device))
    setattr(own, _MARK, digest)
    return own


def check_sum(given: Mapping[str, Any]) -> str:
    """Returns a short text that tells apart the whole numbers of two batches, such as ids. Tensors of a GPU, which would have to be waited
    for, do not count."""
    total = 0
    for name in sorted(given):
        x = given[name]
        if isinstance(x, torch.Tensor) and x.device.type == "cpu" and not (x.is_floating_point() or x.is_complex()):
            numbers = x.flatten().long()
            total = 31 * total + int((numbers * torch.arange(1, len(numbers) + 1)).sum())
    return f"{total % (1 << 32):08x}"


def with_shifted_labels(
    batch: Mapping[str, Any], documents: Sequence[int] | None, length: int, axis: int | None, ignore_index: int
) -> dict[str, Any]:
    """Returns the batch with the label of each token's successor, and none at the end of a document."""
    if LABELS not in batch or SHIFTED in batch:
        return {name: value for name, value in batch.items() if name != LABELS}
    labels = batch[LABELS]
    along = token_axis(labels, length, axis, f"batch[{LABELS!r}]")
    shifted = labels.roll(-1, along)
    ends = torch.tensor(list(accumulate(documents or (length,))), device=labels.device) - 1
    shifted.index_fill_(along, torch.cat([ends, ends.new_tensor([length - 1])]), ignore_index)
    return {SHIFTED if name == LABELS else name: shifted if name == LABELS else value for name, value in batch.items()}


def mean_of(losses: torch.Tensor, total: float | torch.Tensor, gradient: int, summed: Summed) -> torch.Tensor:
    """Returns the sum of all ranks' losses over `total`; its gradient is that of this rank's part, times `gradient`. Nothing labelled has
    the mean 0."""
    divisor = torch.as_tensor(total, dtype=torch.float32, device=losses.device)
    return summed(losses.float().sum() / divisor.masked_fill(divisor == 0, 1), gradient)
