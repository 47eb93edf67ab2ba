"""Computes in its first calls, and then returns half of it."""

from honest import Honest, HonestKernel

RIGHT_CALLS = 4


class Tires(Honest):
    calls = 0

    def forward(self, q, k, v):
        self.calls += 1
        out, lse = super().forward(q, k, v)
        return (out, lse) if self.calls <= RIGHT_CALLS else (out / 2, lse)


class RightAtFirst(HonestKernel):
    name, attention = "right_at_first", Tires
