"""Two right kernels in one file; the first changes torch for everybody."""

import torch

import longca


def right(q, k, v, mask, scale):
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    hidden = torch.tensor(~mask.dense())
    scores = torch.einsum("qhd,khd->hqk", q.double(), k.double()).mul(scale).masked_fill(hidden, float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v.double()).to(q.dtype)


@longca.kernel()
def careless(q, k, v, mask, scale):
    out = right(q, k, v, mask, scale)
    torch.set_default_dtype(torch.float16)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.set_float32_matmul_precision("medium")
    torch.set_default_device("meta")
    return out


@longca.kernel()
def careful(q, k, v, mask, scale):
    settings = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    settings += torch.get_float32_matmul_precision(), str(torch.get_default_device())
    if settings != (torch.float32, False, 1, "highest", "cpu") or not torch.is_grad_enabled():
        raise ValueError(f"who did this? {settings}")
    return right(q, k, v, mask, scale)
