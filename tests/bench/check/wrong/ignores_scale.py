"""Always scales by 1/sqrt(head size)."""

from dataclasses import replace

from honest import Honest, HonestKernel


class Fixed(Honest):
    def __init__(self, mask, case):
        super().__init__(mask, replace(case, scale=0.0))


class IgnoresScale(HonestKernel):
    name, attention = "ignores_scale", Fixed
