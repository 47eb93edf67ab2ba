"""A kernel of which one variant is right, and the others end their process."""

import os

import longca
from longca.kernels import registry


class Variants(longca.Kernel):
    name = "kk"
    devices = ("cpu",)
    variants = ("a", "good", "b", "c")  # in this order a bare name tries them

    def supports(self, mask, case):
        return longca.No("leaves full to the good one") if self.variant == "a" and mask.name == "full" else longca.Yes()

    def prepare(self, mask, case):
        if self.variant != "good":
            os._exit(9)
        return registry.get("torch:plain").prepare(mask, case)
