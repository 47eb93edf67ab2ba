"""A backward that takes its own out and lse, not those that it is given: right on one device, wrong in a ring."""

from honest import Honest, HonestKernel


class Recomputes(Honest):
    def backward(self, dout, q, k, v, out, lse):
        return super().backward(dout, q, k, v, *super().forward(q, k, v))


class RecomputesLse(HonestKernel):
    name, attention = "recomputes_lse", Recomputes
