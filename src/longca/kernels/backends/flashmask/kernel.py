"""FlashMask: per key, the rows that do not see it, as one or two intervals below and above the diagonal.

`torch` is the port of its third version (Hopper), whose package `flashmask` registers operators with torch; `paddle` is the original.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longca.kernels.base import Answer, Attention, Case, Kernel, No, Preference, Yes, refuse_shapes
from longca.kernels.block_lists import first_refusal, refuse_blind_rows, refuse_pattern
from longca.kernels.shared import band_mask, refuse_columns, refuse_other_scales
from longca.masks import BlockMask, Mask

if TYPE_CHECKING:
    from longca.masks import AnyMask

BLOCK, LONGEST = 128, 128 << 10  # of block patterns: tokens per block, and the longest sequence


class Flashmask(Kernel):
    name = "flashmask"
    about = "FlashMask (column intervals), as many queries as keys; torch: the port for Hopper, also uniform blocks of 128"
    variants = ("torch", "paddle")

    def __init__(self, variant: str = "") -> None:
        super().__init__(variant)
        if variant == "paddle":
            self.needs, self.modules, self.backward = "paddlepaddle-gpu", ("paddle",), "autograd"
            self.install = "install a current paddlepaddle-gpu by its own guide; pip finds a release that is too old"
        else:
            self.needs, self.modules = "flashmask", ("flashmask",)
            self.install = "build the package flashmask from the source of FlashMask's port for torch; pip finds another package"
            self.capability = self.most_capability = (9, 0)
            self.preference = Preference(cuda=51)
            self.tested = "H200 (3.0.0b1, built from its source)"

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        return self._supports_paddle(mask, case) if self.variant == "paddle" else self._supports_torch(mask, case)

    def _supports_torch(self, mask: AnyMask, case: Case) -> Answer:
        shapes = refuse_shapes(case, dtypes=("bf16", "fp16"), dims=(64, 128, 256), equal_dims=True)
        if shapes is None and case.deterministic and case.backward and case.head_dim == 256:
            return No("has no deterministic backward for head size 256")
        if not isinstance(mask, BlockMask):
            return first_refusal(shapes, refuse_columns(mask), refuse_rows_without_keys(mask))
        patterns = first_refusal(shapes, refuse_pattern(mask, case, (BLOCK,)), refuse_blind_rows(mask), otherwise=Yes("lowered"))
        if isinstance(patterns, No):
            return patterns
        if case.head_dim != 128:
            return No(f"takes block patterns at head size 128, not {case.head_dim}")
        if mask.seqlen_q != mask.seqlen_k or mask.seqlen_q > LONGEST:
            return No(f"takes block patterns of as many queries as keys, up to {LONGEST}, not {mask.seqlen_q} and {mask.seqlen_k}")
        return patterns

    def _supports_paddle(self, mask: AnyMask, case: Case) -> Answer:
        shapes = refuse_shapes(case, dtypes=("bf16", "fp16"), dims=range(8, 257, 8), equal_dims=True)
        if shapes is None and case.deterministic and case.backward:
            return No("has a deterministic backward only by a flag for the whole process, which LongCA does not set")
        return first_refusal(shapes, refuse_other_scales(case), refuse_columns(mask))

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        if self.variant == "paddle":
            from longca.kernels.backends.flashmask._paddle import PaddleAttention

            return PaddleAttention(band_mask(mask), case)
        from longca.kernels.backends.flashmask._torch import OperatorAttention

        return OperatorAttention(mask, case)


def refuse_rows_without_keys(mask: Mask) -> No | None:
    """Returns a refusal where a row sees nothing: the port for torch does not return then."""
    rows = np.zeros(mask.seqlen_q + 1, np.int64)
    np.add.at(rows, mask.bands.q0, 1)
    np.add.at(rows, mask.bands.q1, -1)
    return None if rows.cumsum()[:-1].all() else No("hangs on rows without visible keys, so it needs rows that all see a key")
