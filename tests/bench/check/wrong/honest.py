"""A right kernel, from which each wrong one of this folder differs in one thing."""

import re
from functools import partial

import torch

import longca
from longca.kernels import registry


class Honest(longca.Attention):
    """What torch:plain computes."""

    def __init__(self, mask, case):
        self.mask, self.case, self.calls, self.known = mask, case, 0, {}
        self.inner = registry.get("torch:plain").prepare(mask, case)

    def forward(self, q, k, v):
        return self.inner.forward(q, k, v)

    def backward(self, dout, q, k, v, out, lse):
        return self.inner.backward(dout, q, k, v, out, lse)

    def scores(self, q, k):
        """Scaled and masked, [heads, queries, keys], in fp32 or fp64."""
        exact = torch.promote_types(q.dtype, torch.float32)
        k_HLD = k.repeat_interleave(self.case.group, 1).transpose(0, 1).to(exact)
        hidden = ~torch.from_numpy(self.mask.dense()).to(q.device)
        return (q.transpose(0, 1).to(exact) @ k_HLD.mT * self.case.softmax_scale).masked_fill(hidden, float("-inf"))

    def wide(self, x_LHD):
        """A tensor of KV heads, [query heads, tokens, head size], in fp32 or fp64."""
        return x_LHD.repeat_interleave(self.case.group, 1).transpose(0, 1).to(torch.promote_types(x_LHD.dtype, torch.float32))


class HonestKernel(longca.Kernel):
    capability = (0, 0)
    attention = Honest

    def supports(self, mask, case):
        return longca.Yes() if isinstance(mask, longca.masks.Mask) else longca.No("takes masks made of bands")

    def prepare(self, mask, case):
        return self.attention(mask, case)


def wrong(attention=None, *, devices=("cpu", "cuda")):
    """Makes a kernel of an attention; it is called as the class, in small letters: ClampsV is clamps_v."""
    if attention is None:
        return partial(wrong, devices=devices)
    name = re.sub("(?<=.)(?=[A-Z])", "_", attention.__name__).lower()
    members = {"name": name, "attention": attention, "devices": devices, "__module__": attention.__module__}
    return type(attention.__name__, (HonestKernel,), members)
