"""MagiAttention's flex-flash-attention: a mask is a list of slices, each a query range, a key range and one of four types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.kernels.base import Answer, Attention, Case, Kernel, No, Preference, Yes, refuse_shapes
from longca.kernels.shared import band_mask, older_than
from longca.masks import Mask

if TYPE_CHECKING:
    from longca.masks import AnyMask

LEAST = (1, 0, 5)  # older releases take other arguments, or return lse as [H, L]


class Ffa(Kernel):
    name = "ffa"
    about = "MagiAttention's flex-flash-attention (slices): every band mask"
    needs = "magi-attention"
    install = "build MagiAttention from its source; pip finds only an empty package of that name"
    modules = ("magi_attention",)
    capability = most_capability = (9, 0)  # the library asserts it
    backward = "autograd"
    tested = "H200 (MagiAttention 1.1.1, built from its source)"
    preference = Preference(cuda=52)

    def present(self) -> Answer:
        if number := older_than("magi_attention", LEAST):
            return No(f"needs MagiAttention {'.'.join(map(str, LEAST))} or newer, and {number} is installed; build a newer one")
        return Yes()

    def versions(self) -> dict[str, str]:
        from importlib.metadata import PackageNotFoundError, version

        try:
            return {"magi_attention": version("magi_attention")}
        except PackageNotFoundError:
            return super().versions()

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        refusal = refuse_shapes(case, dtypes=("bf16", "fp16"), dims=(64, 128), equal_dims=True)
        if refusal is not None:
            return refusal
        return Yes() if isinstance(mask, Mask) else No("takes masks made of bands, not block patterns")

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        from longca.kernels.backends._ffa import SliceAttention

        return SliceAttention(band_mask(mask), case)
