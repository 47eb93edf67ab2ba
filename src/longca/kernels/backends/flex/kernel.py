"""FlexAttention, compiled. Its block mask is made from bands or blocks without a dense mask; all band masks share one compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.kernels.base import Answer, Attention, Case, Kernel, No, Preference, Yes, refuse_shapes
from longca.kernels.block_lists import first_refusal, refuse_pattern
from longca.kernels.shared import refuse_intervals
from longca.masks import BlockMask

if TYPE_CHECKING:
    from longca.masks import AnyMask

BLOCK = 128


class FlexKernel(Kernel):
    name = "flex"
    about = "torch FlexAttention, compiled, block mask from bands"
    devices: tuple[str, ...] = ("cpu", "cuda")
    backward = "autograd"
    takes_softcap = True
    sinks = "after"
    preference = Preference(cuda=70)
    tested = "CPU, H200"

    def __init__(self, variant: str = "") -> None:
        super().__init__(variant)
        self.layout = "HLD"

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        if case.device == "cpu" and case.backward:
            return No("has no backward on a CPU")
        dtypes = ("bf16", "fp16", "fp32")
        source = "blocks" if isinstance(mask, BlockMask) else "bands"
        patterns = refuse_pattern(mask, case, on_top="any") if isinstance(mask, BlockMask) else refuse_intervals(mask)
        yes = Yes("lowered", f"block mask from {source}")
        empty = No("needs at least one visible pair") if mask.area == 0 else None
        return first_refusal(refuse_shapes(case, dtypes=dtypes, dims=range(16, 257)), patterns, empty, otherwise=yes)

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        from longca.kernels.backends.flex._attention import FlexAttention

        self.gives_lse = self.lse_in(case)
        return FlexAttention(mask, case)

    def lse_in(self, case: Case) -> bool:
        return case.device != "cpu"  # the compiled CPU kernel has none
