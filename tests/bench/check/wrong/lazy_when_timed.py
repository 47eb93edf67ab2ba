"""Returns tensors that are computed when somebody looks at them, but not in its first calls."""

import torch
from honest import Honest, HonestKernel

RIGHT_CALLS = 4


class Promise(torch.Tensor):
    pass


class Lazy(Honest):
    calls = 0

    def forward(self, q, k, v):
        self.calls += 1
        out, lse = super().forward(q, k, v)
        return (out if self.calls <= RIGHT_CALLS else out.as_subclass(Promise)), lse


class LazyWhenTimed(HonestKernel):
    name, attention = "lazy_when_timed", Lazy
