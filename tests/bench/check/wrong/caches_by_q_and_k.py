"""Returns what it computed for the same q and k before."""

import torch
from honest import Honest, HonestKernel


class Caches(Honest):
    def __init__(self, mask, case):
        super().__init__(mask, case)
        self.known = None

    def forward(self, q, k, v):
        if self.known is None or not (torch.equal(self.known[0], q) and torch.equal(self.known[1], k)):
            self.known = q.detach().clone(), k.detach().clone(), super().forward(q, k, v)
        return self.known[2]


class CachesByQAndK(HonestKernel):
    name, attention = "caches_by_q_and_k", Caches
