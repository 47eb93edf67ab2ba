"""FlashAttention-2: the build inside torch, or the flash-attn package."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from longca.code_version import module_path, of_path
from longca.kernels.base import Answer, Attention, Case, Kernel, No, Preference, Yes, refuse_shapes
from longca.kernels.shared import DocumentAttention, deterministic_torch, documents_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from longca.kernels.base import Gradients
    from longca.masks import AnyMask

HEAD_DIMS = range(8, 257, 8)


class Fa2(Kernel):
    name = "fa2"
    about = "FlashAttention-2 with documents and windows: torch's own build, or the flash-attn package"
    variants = ("torch", "package")
    preference = Preference(cuda=50)
    fp32_sums = ("dq",)

    def __init__(self, variant: str = "") -> None:
        super().__init__(variant)
        self.tested = "" if variant == "package" else "H200"

    def present(self) -> Answer:
        """Looks for the package's C++ module, as flash-attn 4 has the same top-level name."""
        missing = self.variant == "package" and find_spec("flash_attn_2_cuda") is None
        return No("pip install 'flash-attn>=2.7,<3'") if missing else Yes()

    def versions(self) -> dict[str, str]:
        from importlib.metadata import PackageNotFoundError, version

        if self.variant != "package":
            return {}
        try:
            return {"flash-attn": version("flash-attn")}
        except PackageNotFoundError:
            library = module_path("flash_attn_2_cuda")
            return {"flash_attn_2_cuda": of_path(library)} if library else {}

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        refusal = refuse_shapes(case, dtypes=("bf16", "fp16"), dims=HEAD_DIMS, equal_dims=True)
        if refusal is not None:
            return refusal
        documents = documents_of(mask)
        if isinstance(documents, No):
            return documents
        if documents.right >= np.diff(documents.cu_k).max():
            return No("takes a window as wide as the keys for no window, which hides nothing from the first of many queries")
        return Yes()

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        return PackageAttention(mask, case) if self.variant == "package" else TorchAttention(mask, case)


class TorchAttention(DocumentAttention):
    def __init__(self, mask: AnyMask, case: Case) -> None:
        import torch

        super().__init__(mask, case)
        self.shape = (self.cu_q, self.cu_k, self.max_q, self.max_k)
        self.window: dict[str, Any] = {"scale": case.softmax_scale, "window_size_left": self.left, "window_size_right": self.right}
        # the state of a random generator that only dropout would read
        self.unused = (torch.empty(2, dtype=torch.uint64, device=case.device), torch.empty((), dtype=torch.uint64, device=case.device))

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        call = torch.ops.aten._flash_attention_forward
        out, lse, *_ = call(*self.batched(q_LHD, k_LHD, v_LHD), *self.shape, 0.0, self.causal, False, **self.window)
        out_LHD, lse_HL = self.unbatched(out, lse)
        return self.blind.after_forward(out_LHD, lse_HL)

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        import torch

        dout_LHD, lse_HL = self.blind.before_backward(dout_LHD, lse_HL)
        tensors = self.batched(dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD, lse_HL.contiguous())
        with deterministic_torch(self.case.deterministic):
            call = torch.ops.aten._flash_attention_backward
            dq, dk, dv = self.unbatched(*call(*tensors, *self.shape, 0.0, self.causal, *self.unused, **self.window))
        return dq, dk, dv


class PackageAttention(DocumentAttention):
    """Calls the package's inner functions, which take and return lse; its public ones hide them behind autograd."""

    def __init__(self, mask: AnyMask, case: Case) -> None:
        from flash_attn import flash_attn_interface as package

        super().__init__(mask, case)
        self.forward_call: Any = package._flash_attn_varlen_forward if self.packed else package._flash_attn_forward
        self.backward_call: Any = package._flash_attn_varlen_backward if self.packed else package._flash_attn_backward
        self.options: dict[str, Any] = {
            "dropout_p": 0.0,
            "softmax_scale": case.softmax_scale,
            "causal": self.causal,
            "window_size_left": self.left,
            "window_size_right": self.right,
            "softcap": 0.0,
            "alibi_slopes": None,
        }
        if self.packed:
            self.options |= {"cu_seqlens_q": self.cu_q, "cu_seqlens_k": self.cu_k, "max_seqlen_q": self.max_q, "max_seqlen_k": self.max_k}

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse, *_ = self.forward_call(*self.batched(q_LHD, k_LHD, v_LHD), return_softmax=False, **self.options)
        out_LHD, lse_HL = self.unbatched(out, lse)
        return self.blind.after_forward(out_LHD, lse_HL)

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        import torch

        dout_LHD, lse_HL = self.blind.before_backward(dout_LHD, lse_HL)
        tensors = self.batched(dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD, lse_HL.contiguous())
        grads = tuple(torch.empty_like(tensor) for tensor in tensors[1:4])
        self.backward_call(*tensors, *grads, deterministic=self.case.deterministic, **self.options)
        dq, dk, dv = self.unbatched(*grads)
        return dq, dk, dv
