"""Takes another way where torch records no gradients, and scales the scores wrongly there."""

import torch

import longca


@longca.kernel
def scales_without_gradients(q, k, v, mask, scale):
    if not torch.is_grad_enabled():
        scale *= 1.05
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(0, 1) for x in (k, v))
    scores = (q.transpose(0, 1) @ k.mT * scale).masked_fill(~torch.from_numpy(mask.dense()), float("-inf"))
    return (scores.softmax(-1).nan_to_num() @ v).transpose(0, 1)
