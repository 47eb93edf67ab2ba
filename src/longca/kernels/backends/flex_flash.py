"""FlexAttention with its FLASH backend: torch (2.13 and newer) makes FlashAttention-4 of the same call as `flex`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.kernels.backends.flex.kernel import BLOCK, FlexKernel
from longca.kernels.base import Answer, Attention, Case, No, Preference
from longca.kernels.block_lists import block_size
from longca.kernels.shared import older_than
from longca.masks import BlockMask

if TYPE_CHECKING:
    from longca.masks import AnyMask

LEAST = (2, 13)  # of torch


class FlexFlash(FlexKernel):
    name = "flex_flash"
    about = "torch FlexAttention with BACKEND=FLASH: FlashAttention-4 as torch's compiler calls it (experimental there)"
    needs = "flash-attn-4"
    install = 'pip install "torch>=2.13" --pre flash-attn-4'
    modules = ("flash_attn.cute",)
    devices = ("cuda",)
    capability = (9, 0)
    dtypes = ("bf16", "fp16")
    head_dims = (128,)  # others have tiles that are no blocks of FlexAttention
    takes_softcap = False
    preference = Preference()
    tested = ""

    def present(self) -> Answer:
        if number := older_than("torch", LEAST):
            return No(f"needs torch {'.'.join(map(str, LEAST))} or newer, and {number} is installed")
        return super().present()

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        if case.deterministic and case.backward:
            return No("has no deterministic backward of block masks")
        if isinstance(mask, BlockMask) and block_size(mask) != BLOCK:
            return No(f"takes blocks of {BLOCK} tokens, which are FlashAttention's tiles")
        return super().supports(mask, case)

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        from longca.kernels.backends.flex._attention import FlexAttention

        attention = super().prepare(mask, case)
        assert isinstance(attention, FlexAttention)
        attention.options["kernel_options"] = {"BACKEND": "FLASH"}
        return attention
