"""`best`: per pass the fastest of the other kernels, composed where forward and backward may be of two. See `kernels/choice`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.errors import Refused
from longca.kernels import registry
from longca.kernels.base import Answer, Attention, Case, Kernel, No, Prepared, Yes
from longca.kernels.choice import chooser, words
from longca.kernels.choice.candidates import candidates
from longca.kernels.choice.records import installed_versions, versions_hash

if TYPE_CHECKING:
    from longca.masks import AnyMask


class Best(Kernel):
    name = "best"
    about = "per pass the fastest of the other kernels, by records or autotuning"
    devices = ("cpu", "cuda")
    capability = (0, 0)
    chooses = True
    takes_negative_scale = takes_empty = takes_softcap = True
    sinks = "native"
    tested = "CPU"

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        able = candidates(mask, case)
        if not able:
            return No(f"has nothing to choose from: {words.missing(mask, case).rstrip('.')}")
        return Yes("lowered", "by the kernel that it chooses", quadratic=able.quadratic)

    def prepared(self, mask: AnyMask, case: Case) -> Prepared:
        """Returns the pair that was chosen; where a kernel of it refuses only when it is prepared, the next one."""
        from longca.kernels.choice._pair import Pair

        refused: dict[str, Refused] = {}
        while True:
            try:
                choice = chooser.choose(mask, case, without=tuple(refused))
            except Refused as refusal:
                raise next(iter(refused.values()), refusal) from None
            pair = Pair(registry.get(choice.forward), registry.get(choice.backward) if choice.backward else None)
            try:
                return Prepared(pair, pair.prepare(mask, case))
            except Refused as refusal:
                refused[pair.preparing] = refusal

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        return self.prepared(mask, case).attention

    def versions(self) -> dict[str, str]:
        """Returns one version for all kernels that it may choose: any of them may change its times."""
        here = [kernel for device in self.devices for kernel in registry.preferred(device) if registry.available(kernel, device)]
        return {"candidates": versions_hash({kernel.label: installed_versions(kernel) for kernel in here})}
