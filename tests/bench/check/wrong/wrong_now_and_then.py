"""One tile of out is wrong in one of 20 calls, as a race leaves it."""

from honest import Honest, HonestKernel


class Races(Honest):
    calls = 0

    def forward(self, q, k, v):
        out, lse = super().forward(q, k, v)
        self.calls += 1
        if self.calls % 20 == 10:
            out[64:128, 0] = 0
        return out, lse


class WrongNowAndThen(HonestKernel):
    name, attention = "wrong_now_and_then", Races
