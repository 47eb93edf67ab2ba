"""Returns the gradients that it computed for the same memory before."""

from honest import Honest, HonestKernel


class Caches(Honest):
    def __init__(self, mask, case):
        super().__init__(mask, case)
        self.known = {}

    def backward(self, dout, q, k, v, out, lse):
        key = dout.data_ptr(), q.data_ptr(), out.data_ptr()
        if key not in self.known:
            self.known[key] = super().backward(dout, q, k, v, out, lse)
        return self.known[key]


class CachesGradientsByPointer(HonestKernel):
    name, attention = "caches_gradients_by_pointer", Caches
