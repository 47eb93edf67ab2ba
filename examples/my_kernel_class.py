"""The kernel of my_kernel.py as a class with its own backward, so that it can also run inside a ring."""

import torch

from longca import Attention, Case, Kernel, No, Yes
from longca.masks import Mask


class MyKernelClass(Kernel):
    name = "my_kernel_class"
    about = "attention as in the textbook, with its own backward"
    devices = ("cpu", "cuda")
    capability = (0, 0)

    def supports(self, mask, case: Case):
        return Yes("lowered") if isinstance(mask, Mask) else No("takes masks made of bands")

    def prepare(self, mask, case: Case) -> Attention:
        return MyAttention(torch.from_numpy(~mask.dense()).to(case.device), case)


class MyAttention(Attention):
    def __init__(self, hidden: torch.Tensor, case: Case) -> None:
        self.hidden, self.scale, self.group = hidden, case.softmax_scale, case.group
        self.exact = torch.float64 if case.dtype == "fp64" else torch.float32  # lse has this dtype

    def _scores(self, q, k):
        k_HLD = k.repeat_interleave(self.group, 1).transpose(0, 1).to(self.exact)
        return (q.transpose(0, 1).to(self.exact) @ k_HLD.mT * self.scale).masked_fill(self.hidden, float("-inf")), k_HLD

    def forward(self, q, k, v):
        scores, _ = self._scores(q, k)
        lse_HL = scores.logsumexp(-1)
        p = (scores - lse_HL.clamp_min(-1e30)[..., None]).exp()
        out_HLD = p @ v.repeat_interleave(self.group, 1).transpose(0, 1).to(self.exact)
        return out_HLD.to(q.dtype).transpose(0, 1), lse_HL

    def backward(self, dout, q, k, v, out, lse):
        scores, k_HLD = self._scores(q, k)
        dout_HLD, q_HLD, out_HLD = (x.transpose(0, 1).to(self.exact) for x in (dout, q, out))
        v_HLD = v.repeat_interleave(self.group, 1).transpose(0, 1).to(self.exact)
        p = (scores - lse.clamp_min(-1e30)[..., None]).exp()
        delta = (dout_HLD * out_HLD).sum(-1, keepdim=True)
        dscores = p * (dout_HLD @ v_HLD.mT - delta) * self.scale
        dq_HLD, dk_HLD, dv_HLD = dscores @ k_HLD, dscores.mT @ q_HLD, p.mT @ dout_HLD
        dk_HLD, dv_HLD = (x.unflatten(0, (-1, self.group)).sum(1) for x in (dk_HLD, dv_HLD))
        return tuple(x.transpose(0, 1).to(q.dtype) for x in (dq_HLD, dk_HLD, dv_HLD))
