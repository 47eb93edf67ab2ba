"""`tilelang`: a forward for all band masks, written in TileLang. Its package has no attention of its own, only examples; as there, all
tiles of keys from the first to the last that a tile of queries sees are visited, and masked unless the mask is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.kernels.base import Answer, Attention, Case, Kernel, No, Yes, refuse_shapes
from longca.kernels.block_lists import first_refusal
from longca.kernels.shared import band_mask, refuse_intervals
from longca.masks import Mask

if TYPE_CHECKING:
    from longca.masks import AnyMask


class TileLang(Kernel):
    name = "tilelang"
    about = "an own forward for band masks in TileLang, TMA and wgmma on Hopper"
    needs = "tilelang"
    modules = ("tilelang",)
    dtypes = ("bf16", "fp16")
    head_dims = (64, 128)
    capability = (9, 0)
    backward = "none"
    tested = "H200 (0.1.15)"

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        if not isinstance(mask, Mask):
            return No("takes masks made of bands, not block patterns")
        shapes = refuse_shapes(case, dtypes=self.dtypes, dims=self.head_dims)
        return first_refusal(shapes, refuse_intervals(mask), otherwise=Yes("lowered"))

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        from longca.kernels.backends.tilelang._bands import TileLangAttention

        return TileLangAttention(band_mask(mask), case)
