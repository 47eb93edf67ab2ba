"""`helion`: a forward for all band masks, written in Helion. Its package has no attention of its own, only an example; as there, all keys
that a tile of queries may see are visited, and every tile is masked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.kernels.base import Answer, Attention, Case, Kernel, No, Yes, refuse_shapes
from longca.kernels.block_lists import first_refusal
from longca.kernels.shared import band_mask, older_than, refuse_intervals
from longca.masks import Mask

if TYPE_CHECKING:
    from longca.masks import AnyMask


NEWER = (1, 5, 1)  # the first Helion that imports what older versions of torch lack
LEAST = (2, 13)  # of torch, for such a Helion


class Helion(Kernel):
    name = "helion"
    about = "an own forward for band masks in Helion, with one configuration (not tuned)"
    needs = "helion"
    modules = ("helion",)
    dtypes = ("bf16", "fp16")
    head_dims = (64, 128)
    backward = "none"

    def __init__(self, variant: str = "") -> None:
        super().__init__(variant)
        self.layout = "HLD"

    def present(self) -> Answer:
        if (torch := older_than("torch", LEAST)) and not older_than("helion", NEWER):
            return No(f"needs torch 2.13 or newer from its version 1.5.1 on, and torch {torch} is installed; pip install helion==1.5.0")
        return super().present()

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        if not isinstance(mask, Mask):
            return No("takes masks made of bands, not block patterns")
        shapes = refuse_shapes(case, dtypes=self.dtypes, dims=self.head_dims)
        return first_refusal(shapes, refuse_intervals(mask), otherwise=Yes("lowered"))

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        from longca.kernels.backends.helion._bands import HelionAttention

        return HelionAttention(band_mask(mask), case)
