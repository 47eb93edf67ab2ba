"""FlashAttention-4 in CuTe DSL: full and causal masks, windows and documents natively; any other band mask through tile lists."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from longca.kernels.base import Answer, Attention, Case, CompileCache, Kernel, No, Preference, Yes
from longca.kernels.shared import DocumentAttention, band_mask, documents_of, refuse_hopper_shapes, refuse_intervals
from longca.masks import BlockMask, Mask

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from longca.kernels.backends.fa4._bands import Tuning
    from longca.kernels.base import Gradients, GradientsWithSinks
    from longca.masks import AnyMask

BLOCK, HALF_BLOCK = 128, 64  # queries and keys of a tile; forward tiles may be half as large
SHORT = 257  # tokens: below, they may fill a single tile, for which FA4 compiles backward kernels of its own


class Fa4(Kernel):
    name = "fa4"
    about = "FlashAttention-4 in CuTe DSL; bands: any static mask from row intervals and tile lists"
    needs = "flash-attn-4==4.0.0b36 nvidia-cutlass-dsl[cu13]==4.8.1"
    modules = ("flash_attn.cute", "cutlass")
    capability = (9, 0)
    variants = ("native", "varlen", "bands", "blocks")
    tested = "H200"
    preference = Preference(cuda=10)
    fp32_sums = ("dq", "dk", "dv")
    default_for_methods = ("cuda",)
    compile_cache = CompileCache("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR")

    def __init__(self, variant: str = "", tuning: Tuning | None = None) -> None:
        super().__init__(variant)
        self.tuning = tuning
        documents = variant in ("native", "varlen")
        self.takes_softcap, self.sinks = documents, "native" if documents else "after"

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        refusal = refuse_hopper_shapes(case)
        if refusal is not None:
            return refusal
        if case.backward and case.group > 1 and case.head_dim != case.head_dim_v:
            return No(f"has no backward for grouped heads with head sizes {case.head_dim}/{case.head_dim_v}")
        if self.variant in ("bands", "blocks"):
            if case.deterministic and case.backward:
                return No("has no deterministic backward with tile lists on Hopper")
            return supports_blocks(mask, case) if self.variant == "blocks" else supports_bands(mask)
        return self._supports_documents(mask)

    def _supports_documents(self, mask: AnyMask) -> Answer:
        documents = documents_of(mask)
        if isinstance(documents, No):
            return documents
        several = len(documents.cu_q) > 2
        if several and self.variant == "native":
            return No(f"takes one document, and this mask has {len(documents.cu_q) - 1}; fa4:varlen takes several")
        if not several and self.variant == "varlen":
            return No("takes several documents, and this mask has one; fa4:native takes it")
        return Yes()

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        attention = self._lowered(mask, case)
        short = replace(case, seqlen_q=min(case.seqlen_q, SHORT), seqlen_k=min(case.seqlen_k, SHORT), numbers="")
        if (key := (_kind(vars(attention)), short)) not in _COMPILED:
            compile_ahead(attention, case)
            _COMPILED.add(key)
        return attention

    def _lowered(self, mask: AnyMask, case: Case) -> Attention:
        if self.variant == "bands":
            from longca.kernels.backends.fa4._bands import BandAttention, Tuning

            return BandAttention(band_mask(mask), case, self.tuning or Tuning())
        if isinstance(mask, BlockMask):
            from longca.kernels.backends.fa4._blocks import BlockAttention

            return BlockAttention(mask, case)
        return Fa4Documents(mask, case)


def supports_bands(mask: AnyMask) -> Answer:
    if not isinstance(mask, Mask):
        return No("takes masks made of bands; fa4:blocks takes block patterns")
    refusal = refuse_intervals(mask)
    return Yes("lowered") if refusal is None else refusal


def supports_blocks(mask: AnyMask, case: Case) -> Answer:
    if not isinstance(mask, BlockMask):
        return No("takes block patterns; fa4:bands takes masks made of bands")
    if mask.heads not in (1, case.heads_kv):
        return No(f"takes one pattern or one per KV head, and this mask has {mask.heads} for {case.heads_kv} KV heads")
    if case.head_dim != 128 or case.head_dim_v != 128:
        return No(f"takes block patterns at head size 128, where blocks and tiles are the same in both passes, not {case.head_dim}")
    least = BLOCK if case.backward else HALF_BLOCK
    if any((edges[:-1] % least).any() for edges in (mask.row_edges, mask.col_edges)):
        return No(f"takes blocks of multiples of {BLOCK} tokens" + (f", or of {HALF_BLOCK} for a forward alone" if case.backward else ""))
    return Yes("lowered")


class Fa4Documents(DocumentAttention):
    """Native masks of FA4: one document, or several with prefix sums, and a window counted from the last query and key."""

    def __init__(self, mask: AnyMask, case: Case) -> None:
        from flash_attn.cute import interface

        super().__init__(mask, case)
        self.library = interface
        self.options: dict[str, Any] = dict(
            softmax_scale=case.softmax_scale,
            causal=self.causal,
            window_size_left=None if self.left < 0 else self.left,
            window_size_right=None if self.right < 0 or self.causal else self.right,
        )
        if case.softcap:
            self.options["softcap"] = case.softcap
        if self.packed:
            self.options |= dict(cu_seqlens_q=self.cu_q, cu_seqlens_k=self.cu_k, max_seqlen_q=self.max_q, max_seqlen_k=self.max_k)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse, *_ = self.library._flash_attn_fwd(*self.batched(q_LHD, k_LHD, v_LHD), return_lse=True, **self.options)
        out_LHD, lse_HL = self.unbatched(out, lse)
        return self.blind.after_forward(out_LHD, lse_HL)

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        dout_LHD, lse_HL = self.blind.before_backward(dout_LHD, lse_HL)
        tensors = self.batched(q_LHD, k_LHD, v_LHD, out_LHD, dout_LHD, lse_HL)
        dq, dk, dv = self.unbatched(*self.library._flash_attn_bwd(*tensors, deterministic=self.case.deterministic, **self.options))
        return dq, dk, dv

    def forward_with_sinks(self, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, sinks_H: Tensor) -> tuple[Tensor, Tensor]:
        tensors = self.batched(q_LHD, k_LHD, v_LHD)
        out, lse, *_ = self.library._flash_attn_fwd(*tensors, return_lse=True, learnable_sink=sinks_H, **self.options)
        out_LHD, lse_HL = self.blind.after_forward(*self.unbatched(out, lse))
        if self.blind.rows is not None:
            lse_HL[:, self.blind.rows] = sinks_H[:, None]
        return out_LHD, lse_HL

    def backward_with_sinks(
        self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None, sinks_H: Tensor
    ) -> GradientsWithSinks:
        dout_LHD, lse_HL = self.blind.before_backward(dout_LHD, lse_HL)
        tensors = self.batched(q_LHD, k_LHD, v_LHD, out_LHD, dout_LHD, lse_HL)
        options = dict(learnable_sink=sinks_H, deterministic=self.case.deterministic, **self.options)
        *gradients, dsinks = self.library._flash_attn_bwd(*tensors, **options)
        dq, dk, dv = self.unbatched(*gradients)
        return dq, dk, dv, dsinks


_COMPILED: set[tuple[Any, Case]] = set()


def _kind(value: Any) -> Any:
    """Returns the part of a value that may decide which kernel FA4 compiles: which tensors there are, tile sizes and switches, but neither
    the contents of tensors nor the width of a window or the length of a document. If it tells too little, FA4 compiles later."""
    if hasattr(value, "__cute_hash__"):
        return value.__cute_hash__
    if isinstance(value, dict):
        return tuple((key, _kind(entry)) for key, entry in value.items())
    if isinstance(value, list | tuple):
        sizes = all(isinstance(entry, int) for entry in value)
        return type(value).__name__, tuple(value if sizes else map(_kind, value))
    return value if isinstance(value, bool | str | None) else type(value).__name__


def compile_ahead(attention: Attention, case: Case) -> None:
    """Makes FA4 compile now, from shapes alone, so that the first call on data only runs; FA4 keeps the compiled kernels."""
    import torch
    from torch._guards import detect_fake_mode
    from torch._subclasses.fake_tensor import FakeTensorMode

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[case.dtype]
    with detect_fake_mode() or FakeTensorMode(allow_non_fake_inputs=True):  # a caller without a GPU has made one already
        q_LHD = torch.empty(case.seqlen_q, case.heads_q, case.head_dim, dtype=dtype, device=case.device)
        k_LHD = torch.empty(case.seqlen_k, case.heads_kv, case.head_dim, dtype=dtype, device=case.device)
        v_LHD = torch.empty(case.seqlen_k, case.heads_kv, case.head_dim_v, dtype=dtype, device=case.device)
        both = case.backward and not case.deterministic  # FA4 wants real semaphores to compile the deterministic backward
        if case.sinks:
            sinks_H = torch.empty(case.heads_q, device=case.device)
            out_LHD, lse_HL = attention.forward_with_sinks(q_LHD, k_LHD, v_LHD, sinks_H)
            if both:
                attention.backward_with_sinks(torch.empty_like(out_LHD), q_LHD, k_LHD, v_LHD, out_LHD, lse_HL, sinks_H)
            return
        out_LHD, lse_HL = attention.forward(q_LHD, k_LHD, v_LHD)
        if both:
            attention.backward(torch.empty_like(out_LHD), q_LHD, k_LHD, v_LHD, out_LHD, lse_HL)
