"""Returns what it computed for the same memory before."""

from honest import Honest, HonestKernel


class Caches(Honest):
    def __init__(self, mask, case):
        super().__init__(mask, case)
        self.known = {}

    def forward(self, q, k, v):
        key = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if key not in self.known:
            self.known[key] = super().forward(q, k, v)
        return self.known[key]


class CachesByPointer(HonestKernel):
    name, attention = "caches_by_pointer", Caches
