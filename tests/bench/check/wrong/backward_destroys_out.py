"""Writes to out in its backward."""

from honest import Honest, HonestKernel


class Destroys(Honest):
    def backward(self, dout, q, k, v, out, lse):
        gradients = super().backward(dout, q, k, v, out, lse)
        out.zero_()
        return gradients


class BackwardDestroysOut(HonestKernel):
    name, attention = "backward_destroys_out", Destroys
