"""Scales by 1/sqrt(head size) in its backward."""

from dataclasses import replace

from honest import Honest, HonestKernel


class Fixed(Honest):
    def backward(self, dout, q, k, v, out, lse):
        dq, dk, dv = super().backward(dout, q, k, v, out, lse)
        ratio = replace(self.case, scale=0.0).softmax_scale / self.case.softmax_scale
        return dq * ratio, dk * ratio, dv


class IgnoresScaleBackward(HonestKernel):
    name, attention = "ignores_scale_backward", Fixed
