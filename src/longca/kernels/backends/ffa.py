"""MagiAttention's flex-flash-attention: a mask is a list of slices, each a query range, a key range and one of four types.

Untested: written from the documented interface of MagiAttention 1.1; the package must be built from source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longca.kernels.base import Answer, Attention, AutogradAttention, Case, Kernel, No, Yes, refuse_shapes
from longca.kernels.shared import BlindRows, band_mask
from longca.masks import Mask

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from longca.masks import AnyMask


def overlap(ranges: NDArray[np.int32]) -> bool:
    """Whether two of the half-open ranges share a token."""
    ordered = ranges[np.argsort(ranges[:, 0], kind="stable")]
    return bool((np.maximum.accumulate(ordered[:, 1])[:-1] > ordered[1:, 0]).any())


class Ffa(Kernel):
    name = "ffa"
    about = "MagiAttention's flex-flash-attention (slices): every band mask; untested"
    needs = "magi-attention"
    install = "build MagiAttention from its source; pip finds only an empty package of that name"
    modules = ("magi_attention",)
    capability = (9, 0)
    backward = "autograd"

    def versions(self) -> dict[str, str]:
        from importlib.metadata import PackageNotFoundError, version

        try:
            return {"magi_attention": version("magi_attention")}
        except PackageNotFoundError:
            return {}

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
            # where no query is in two slices, nothing has to be summed: the library is faster when told
            "disable_fwd_atomic_reduction": not overlap(slices.q_ranges),
        }
        self.blind = BlindRows(mask, case.device)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out_LHD, statistics = self.call(q_LHD, k_LHD, v_LHD, *self.slices, **self.options)
        lse_LH: torch.Tensor = getattr(statistics, "lse", statistics)  # 1.0 returned the tensor itself
        lse_HL = lse_LH.detach().t()
        if self.blind.rows is None:
            return out_LHD, lse_HL
        return out_LHD.index_fill(0, self.blind.rows, 0.0), lse_HL.index_fill(1, self.blind.rows, float("-inf"))
