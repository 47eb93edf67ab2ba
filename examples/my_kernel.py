"""A kernel of your own, in one file. Check it, then compare it with the others:

longca verify --plugin examples/my_kernel.py
longca run --plugin examples/my_kernel.py --kernels my_kernel,sdpa:flash --masks causal,share_question --seqlens 512 --out out/mine
"""

import torch

import longca


def lower(mask: longca.masks.Mask, case: longca.Case) -> torch.Tensor:
    """Returns the mask in the kernel's format. Runs once and is not timed. Raises longca.Refused("why") for unsupported masks."""
    if not isinstance(mask, longca.masks.Mask):
        raise longca.Refused("takes masks made of bands")
    return torch.from_numpy(mask.dense()).to(case.device)


@longca.kernel(lower=lower, layout="HLD")
def my_kernel(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor, scale: float) -> torch.Tensor:
    """attention as in the textbook"""  # q [L, Hq, D], k and v [L, Hkv, D]; returns [L, Hq, D]
    group = q.shape[1] // k.shape[1]
    exact = torch.promote_types(q.dtype, torch.float32)  # fp32, or fp64 where q is
    q_HLD, k_HLD, v_HLD = (x.transpose(0, 1).to(exact) for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    scores = (q_HLD @ k_HLD.mT * scale).masked_fill(~visible, float("-inf"))
    out_HLD = scores.softmax(-1).nan_to_num() @ v_HLD
    return out_HLD.to(q.dtype).transpose(0, 1)
