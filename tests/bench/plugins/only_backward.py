"""A kernel that takes a forward only together with its backward."""

import longca
from longca.kernels import registry


class OnlyBackward(longca.Kernel):
    name = "only_backward"
    devices = ("cpu",)

    def supports(self, mask, case):
        return longca.Yes() if case.backward else longca.No("has no forward of its own")

    def prepare(self, mask, case):
        return registry.get("torch:plain").prepare(mask, case)
