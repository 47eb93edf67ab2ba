"""A backward that is wrong in rows whose lse is large."""

import torch
from honest import Honest, HonestKernel


class Grows(Honest):
    def backward(self, dout, q, k, v, out, lse):
        return super().backward(dout, q, k, v, out, torch.where(lse > 20, lse + 1, lse))


class WrongLargeScoresBackward(HonestKernel):
    name, attention = "wrong_large_scores_backward", Grows
