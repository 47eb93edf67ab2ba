"""torch's scaled_dot_product_attention, one variant per backend: operators are called directly, so that torch chooses none.

Full and causal are known to every backend; other masks go in as a dense additive bias, O(S²) memory, where a backend takes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longca.kernels.base import Answer, Attention, AutogradAttention, Case, Kernel, No, Preference, Yes, refuse_shapes
from longca.kernels.shared import BlindRows, band_mask, deterministic_torch, documents_of, repeat_heads, sum_heads
from longca.masks import Mask

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from longca.kernels.base import Gradients
    from longca.masks import AnyMask

LSE_STEP = 32  # the efficient backend wants rows of lse that begin at multiples of this many numbers
BIAS_STEP = 16  # and rows of the bias at multiples of this many


def known_natively(mask: AnyMask) -> str:
    """Returns `full`, `causal` (with as many queries as keys), or an empty string."""
    varlen = documents_of(mask)
    if isinstance(varlen, No) or len(varlen.cu_q) > 2:
        return ""
    if varlen.causal and mask.seqlen_q == mask.seqlen_k:
        return "causal"
    return "full" if (varlen.left, varlen.right) == (-1, -1) else ""


class Sdpa(Kernel):
    name = "sdpa"
    about = "torch's scaled_dot_product_attention; each backend is a variant of its own"
    devices: tuple[str, ...] = ("cpu", "cuda")
    variants = ("cudnn", "flash", "efficient", "math")
    tested = "CPU, H200"
    preference = Preference(cpu=10, cuda=80)

    def __init__(self, variant: str = "") -> None:
        super().__init__(variant)
        if variant in ("cudnn", "efficient"):
            self.devices, self.tested = ("cuda",), "H200"
        if variant in ("efficient", "math"):
            self.gqa = "expands"
        if variant == "math":
            self.layout, self.backward, self.gives_lse, self.takes_negative_scale = "HLD", "autograd", False, True

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        on_cpu = case.device == "cpu"
        half: tuple[str, ...] = ("bf16", "fp16")
        dtypes = {"flash": half, "cudnn": half, "efficient": (*half, "fp32")}.get(self.variant, (*half, "fp32", "fp64"))
        any_size = on_cpu or self.variant == "math"
        dims = range(1, 4097) if any_size else range(8, 513 if self.variant == "efficient" else 257, 8)
        dtypes = (*half, "fp32", "fp64") if on_cpu else dtypes
        refusal = refuse_shapes(case, dtypes=dtypes, dims=dims, equal_dims=self.variant == "flash")
        if refusal is not None:
            return refusal
        if case.deterministic and case.backward and self.variant == "cudnn":
            return No("has no deterministic backward, which torch does not offer with cudnn")
        if known_natively(mask):
            return Yes(quadratic=self.variant == "math")
        if self.variant == "flash" and not on_cpu:
            return No("takes only full masks on cuda, and causal ones with as many queries as keys")
        if not isinstance(mask, Mask):
            return No("takes masks made of bands, not block patterns")
        return Yes("lowered", "through a dense mask", quadratic=True, per_head=self.variant == "math")

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        ways: dict[str, Any] = {"cudnn": CudnnBackend, "efficient": EfficientBackend, "math": MathBackend}
        ways["flash"] = CpuFlashBackend if case.device == "cpu" else FlashBackend
        attention: Attention = ways[self.variant](band_mask(mask), case)
        return attention


def dense_bias(mask: Mask, case: Case) -> torch.Tensor:
    """Returns 0 where a row sees a key, else -inf. Rows without visible keys are 0, as their NaNs would spread; BlindRows clears them."""
    import torch

    from longca.kernels.inputs import DTYPES
    from longca.kernels.lower import dense

    seen = dense(mask, case.device)
    width = -(-mask.seqlen_k // BIAS_STEP) * BIAS_STEP
    bias = torch.full((mask.seqlen_q, width), float("-inf"), dtype=DTYPES[case.dtype], device=case.device)[:, : mask.seqlen_k]
    return bias.masked_fill_(seen, 0.0).masked_fill_(~seen.any(1, keepdim=True), 0.0)


class BackendAttention(Attention):
    """Base of the backends: `call` and `call_backward` get tensors as [1, H, L, D] views."""

    def __init__(self, mask: Mask, case: Case) -> None:
        import torch

        native = known_natively(mask)
        self.case, self.causal = case, native == "causal"
        self.bias = None if native else dense_bias(mask, case).expand(1, case.heads_q, -1, -1)
        self.blind = BlindRows(mask, case.device)
        self.no_dropout = torch.zeros((), dtype=torch.int64, device=case.device)

    def call(self, *qkv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        raise NotImplementedError

    def call_backward(self, lse: torch.Tensor, dout: torch.Tensor, *qkv_out: torch.Tensor) -> tuple[torch.Tensor, ...]:
        raise NotImplementedError

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse = self.call(*(tensor.transpose(0, 1).unsqueeze(0) for tensor in (q_LHD, k_LHD, v_LHD)))
        return self.blind.after_forward(out.squeeze(0).transpose(0, 1), lse.squeeze(0))

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        dout_LHD, lse_HL = self.blind.before_backward(dout_LHD, lse_HL)
        tensors = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD))
        with deterministic_torch(self.case.deterministic):
            dq, dk, dv = (grad.squeeze(0).transpose(0, 1) for grad in self.call_backward(lse_HL.unsqueeze(0), *tensors))
        return dq, dk, dv


class FlashBackend(BackendAttention):
    def call(self, *qkv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        scale = self.case.softmax_scale
        out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(*qkv, 0.0, self.causal, False, scale=scale)
        return out, lse

    def call_backward(self, lse: torch.Tensor, *dout_qkv_out: torch.Tensor) -> tuple[torch.Tensor, ...]:
        import torch

        case = self.case
        rest = (None, None, case.seqlen_q, case.seqlen_k, 0.0, self.causal, self.no_dropout, self.no_dropout)
        call = torch.ops.aten._scaled_dot_product_flash_attention_backward
        return tuple(call(*dout_qkv_out, lse.contiguous(), *rest, scale=case.softmax_scale))


class CpuFlashBackend(BackendAttention):
    """The backward of bf16 and fp16 runs in fp32: torch adds dk and dv of blocks of queries up in the dtype of k and v, so that their
    error grows with the length."""

    def options(self, dtype: torch.dtype) -> dict[str, Any]:
        return {"attn_mask": None if self.bias is None else self.bias.to(dtype), "scale": self.case.softmax_scale}

    def call(self, *qkv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        return tuple(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*qkv, 0.0, self.causal, **self.options(qkv[0].dtype)))

    def call_backward(self, lse: torch.Tensor, *dout_qkv_out: torch.Tensor) -> tuple[torch.Tensor, ...]:
        import torch

        call = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        dtype = dout_qkv_out[0].dtype
        exact = torch.promote_types(dtype, torch.float32)
        gradients = call(*(x.to(exact) for x in dout_qkv_out), lse, 0.0, self.causal, **self.options(exact))
        return tuple(gradient.to(dtype) for gradient in gradients)


class CudnnBackend(BackendAttention):
    def call(self, *qkv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        call = torch.ops.aten._scaled_dot_product_cudnn_attention
        out, lse, *_ = call(*qkv, self.bias, True, 0.0, self.causal, False, scale=self.case.softmax_scale)
        return out, lse.squeeze(-1)

    def call_backward(self, lse: torch.Tensor, *dout_qkv_out: torch.Tensor) -> tuple[torch.Tensor, ...]:
        import torch

        case = self.case
        rest = (self.no_dropout, self.no_dropout, self.bias, None, None, case.seqlen_q, case.seqlen_k, 0.0, self.causal)
        call = torch.ops.aten._scaled_dot_product_cudnn_attention_backward
        return tuple(call(*dout_qkv_out, lse.contiguous().unsqueeze(-1), *rest, scale=case.softmax_scale))


class EfficientBackend(BackendAttention):
    def expanded(self, *kv: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(repeat_heads(tensor.squeeze(0).transpose(0, 1), self.case.group).transpose(0, 1).unsqueeze(0) for tensor in kv)

    def call(self, *qkv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        q, k, v = qkv[0], *self.expanded(*qkv[1:])
        call = torch.ops.aten._scaled_dot_product_efficient_attention
        out, lse, *_ = call(q, k, v, self.bias, True, 0.0, self.causal, scale=self.case.softmax_scale)
        return out, lse.narrow(-1, 0, self.case.seqlen_q)

    def call_backward(self, lse: torch.Tensor, *dout_qkv_out: torch.Tensor) -> tuple[torch.Tensor, ...]:
        import torch

        dout, q, k, v, out = dout_qkv_out
        k, v = self.expanded(k, v)
        padded = torch.nn.functional.pad(lse, (0, -self.case.seqlen_q % LSE_STEP), value=float("inf"))
        rest = (self.no_dropout, self.no_dropout, 0.0, [True, True, True, False], self.causal)
        call = torch.ops.aten._scaled_dot_product_efficient_attention_backward
        dq, dk, dv, _ = call(dout, q, k, v, self.bias, out, padded.contiguous(), *rest, scale=self.case.softmax_scale)
        dk, dv = (sum_heads(grad.squeeze(0).transpose(0, 1), self.case.group).transpose(0, 1).unsqueeze(0) for grad in (dk, dv))
        return dq, dk, dv


class MathBackend(AutogradAttention):
    """Returns no lse; its backward is autograd's."""

    def __init__(self, mask: Mask, case: Case) -> None:
        native = known_natively(mask)
        self.case, self.causal = case, native == "causal"
        self.bias = None if native else dense_bias(mask, case)
        self.blind = BlindRows(mask, case.device)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, None]:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (q_LHD, k_LHD, v_LHD))
        options: dict[str, Any] = {"scale": self.case.softmax_scale, "enable_gqa": self.case.group > 1}
        attend: Any = torch.nn.functional.scaled_dot_product_attention
        with sdpa_kernel(SDPBackend.MATH):
            out_LHD: torch.Tensor = attend(q, k, v, attn_mask=self.bias, is_causal=self.causal, **options).squeeze(0).transpose(0, 1)
        return (out_LHD if self.blind.rows is None else out_LHD.index_fill(0, self.blind.rows, 0.0)), None
