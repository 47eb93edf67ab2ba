"""MagiAttention's flex-flash-attention: a mask is a list of slices, each a query range, a key range and one of four types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longca.kernels.base import Answer, Attention, AutogradAttention, Case, Kernel, No, Preference, Yes, refuse_shapes
from longca.kernels.shared import BlindRows, band_mask, older_than
from longca.masks import Mask

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from longca.masks import AnyMask

LEAST = (1, 0, 5)  # older releases take other arguments, or return lse as [H, L]


def overlap(ranges: NDArray[np.int32]) -> bool:
    """Whether two of the half-open ranges share a token."""
    ordered = ranges[np.argsort(ranges[:, 0], kind="stable")]
    return bool((np.maximum.accumulate(ordered[:, 1])[:-1] > ordered[1:, 0]).any())


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
        return SliceAttention(band_mask(mask), case)


class SliceAttention(AutogradAttention):
    def __init__(self, mask: Mask, case: Case) -> None:
        from magi_attention.api import flex_flash_attn_func

        from longca.kernels.lower import upload

        slices = mask.slices()
        self.call: Any = flex_flash_attn_func
        self.slices = tuple(upload(part, case.device) for part in slices)
        self.options = {
            "softmax_scale": case.softmax_scale,
            "deterministic": case.deterministic,
            # where no query is in two slices, no results have to be added up: the library is faster when told
            "disable_fwd_atomic_reduction": not overlap(slices.q_ranges),
        }
        self.blind = BlindRows(mask, case.device)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out_LHD, statistics = self.call(q_LHD, k_LHD, v_LHD, *self.slices, **self.options)
        lse_LH: torch.Tensor = getattr(statistics, "lse", statistics)  # releases before 1.1 return the tensor itself
        return self.blind.in_graph(out_LHD, lse_LH.detach().t())
