"""Gives the lse in its first calls only."""

from honest import Honest, HonestKernel

RIGHT_CALLS = 4


class Forgets(Honest):
    calls = 0

    def forward(self, q, k, v):
        self.calls += 1
        out, self.lse = super().forward(q, k, v)
        return out, self.lse if self.calls <= RIGHT_CALLS else None

    def backward(self, dout, q, k, v, out, lse):
        return super().backward(dout, q, k, v, out, self.lse)


class NoLseWhenTimed(HonestKernel):
    name, attention = "no_lse_when_timed", Forgets
