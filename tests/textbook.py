"""Attention as a textbook has it, for kernels that tests write."""

from typing import Any

import torch

import longca


def attend(q: Any, k: Any, v: Any, visible: Any, scale: float) -> Any:
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1) for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    return ((q @ k.mT * scale).masked_fill(~visible, float("-inf")).softmax(-1).nan_to_num() @ v).transpose(0, 1)


@longca.kernel
def right(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    """a kernel that no file offers"""
    return attend(q, k, v, torch.from_numpy(mask.dense()), scale)
