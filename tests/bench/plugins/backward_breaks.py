"""A kernel whose forward is right and whose backward ends the process."""

import os

import longca
from longca.kernels import registry


class BackwardBreaks(longca.Kernel):
    name = "backward_breaks"
    devices = ("cpu",)

    def supports(self, mask, case):
        return longca.Yes()

    def prepare(self, mask, case):
        inner = registry.get("torch:plain").prepare(mask, case)

        class Broken(longca.Attention):
            def forward(self, q, k, v):
                return inner.forward(q, k, v)

            def backward(self, *given):
                os._exit(9)

        return Broken()
