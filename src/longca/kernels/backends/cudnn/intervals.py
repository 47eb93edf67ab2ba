"""The cuDNN frontend's interval attention: every query sees a union of key intervals, so every band mask runs natively.

Two ways to lay out the same mask: `rows` numbers keys from the start of the sequence; `documents` cuts the mask into its blocks on
the diagonal first, so that tiles start where documents do and none spans two of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from longca.kernels.base import Answer, Attention, Case, CompileCache, Kernel, No, Preference, Yes, refuse_shapes
from longca.kernels.shared import band_mask
from longca.masks import Mask

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from longca.kernels.base import Gradients
    from longca.masks import AnyMask

    Ints = NDArray[np.int32]

HEAD_DIMS = (*range(8, 129, 8), 192, 256)


@dataclass(frozen=True)
class Tuning:
    pack_gqa: bool | None = None  # query heads of a group share a forward tile; None: the library's choice
    mask_through_smem: bool = True  # forward: prefetch the mask bits of partial tiles into shared memory
    forward_tile: tuple[int, int] | None = None  # (queries times packed heads, keys) on Hopper; None: the library's table


@contextmanager
def hopper_forward_tile(tile: tuple[int, int] | None) -> Iterator[None]:
    """Replaces the library's table of forward tiles, which it reads for the plan and again in every call; it has no argument for a tile."""
    if tile is None:
        yield
        return
    from cudnn.flex_attention.kernels.sm90.fwd import forward_config

    table = forward_config._tile_size_fwd_sm90

    def chosen(head_dim: int, head_dim_v: int) -> Any:
        return replace(table(head_dim, head_dim_v), m_block_size=tile[0], n_block_size=tile[1])

    forward_config._tile_size_fwd_sm90 = chosen
    try:
        yield
    finally:
        forward_config._tile_size_fwd_sm90 = table


def endpoints(starts: Ints, ends: Ints) -> Ints:
    """Returns [n, rows] with n odd: a row sees the keys [0, F0) and [F1, F2) and so on; endpoints never decrease along n."""
    interleaved = np.stack([starts, ends], axis=1).reshape(-1, starts.shape[1])
    if (starts[0] == 0).all():
        return np.ascontiguousarray(interleaved[1:], dtype=np.int32)
    return np.concatenate([np.zeros_like(interleaved[:1]), interleaved], dtype=np.int32)


def diagonal_blocks(starts: Ints, ends: Ints, seqlen_k: int) -> tuple[Ints, Ints]:
    """Returns prefix sums (queries, keys) of the finest cut into blocks on the diagonal: rows before a cut see only keys before those that
    rows behind it see."""
    seen = ends > starts
    first_key = np.where(seen, starts, seqlen_k).min(axis=0)
    last_key = np.where(seen, ends, 0).max(axis=0)
    keys_done = np.maximum.accumulate(last_key)[:-1]
    keys_to_come = np.minimum.accumulate(first_key[::-1])[::-1][1:]
    new = keys_done <= keys_to_come
    cu_q = np.concatenate([[0], np.flatnonzero(new) + 1, [starts.shape[1]]])
    return cu_q.astype(np.int32), np.concatenate([[0], keys_to_come[new], [seqlen_k]]).astype(np.int32)


class CudnnFlex(Kernel):
    name = "cudnn_flex"
    about = "the cuDNN frontend's interval attention (CuTe DSL, Hopper and Blackwell): every band mask"
    needs = "nvidia-cudnn-frontend==1.32.0 nvidia-cutlass-dsl[cu13]==4.8.1"
    modules = ("cudnn", "cutlass", "tvm_ffi")
    capability = (9, 0)
    variants = ("documents", "rows")
    preference = Preference(cuda=20)
    compile_cache = CompileCache("FLEX_ATTENTION_CUTE_DSL_CACHE_ENABLED", "FLEX_ATTENTION_CUTE_DSL_CACHE_DIR")
    tested = "H200"
    tuning = Tuning()

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        refusal = refuse_shapes(case, dtypes=("bf16", "fp16"), dims=HEAD_DIMS)
        if refusal is not None:
            return refusal
        dims = (case.head_dim, case.head_dim_v)
        if (dims[0] != dims[1] and dims != (192, 128)) or dims == (192, 192):
            return No(f"cannot do head size {dims[0]}/{dims[1]}; beside one size up to 128 or 256 it knows 192/128")
        if case.backward and case.group > 1 and dims[0] != dims[1]:
            return No(f"does grouped heads in its backward only with one head size for q and v, not {dims[0]}/{dims[1]}")
        if not isinstance(mask, Mask):
            return No("takes masks made of bands, not block patterns")
        if self.variant == "documents" and len(diagonal_blocks(*mask.row_intervals(), mask.seqlen_k)[0]) == 2:
            return No("takes masks whose rows fall apart into documents; this one is a single block, which cudnn_flex:rows takes")
        return Yes("native" if self.variant == "rows" else "lowered")

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        with redirect_stdout(sys.stderr), hopper_forward_tile(self.tuning.forward_tile):  # the library prints every compilation
            return IntervalAttention(band_mask(mask), case, self.variant == "documents", self.tuning)


class IntervalAttention(Attention):
    def __init__(self, mask: Mask, case: Case, by_document: bool, tuning: Tuning) -> None:
        from cudnn.flex_attention import FlexAttentionBwd, FlexAttentionFwd, create_mask_plan

        from longca.kernels.lower import upload

        self.case, self.by_document, self.tuning = case, by_document, tuning
        starts, ends = mask.row_intervals()
        prefix_sums: dict[str, Any] = {}
        if by_document:
            cu_q, cu_k = diagonal_blocks(starts, ends, mask.seqlen_k)
            first_key = np.repeat(cu_k[:-1], np.diff(cu_q))  # the library counts keys from the start of their block
            starts, ends = (np.maximum(keys - first_key, 0) for keys in (starts, ends))
            prefix_sums = {"max_seqlen_q": int(np.diff(cu_q).max()), "max_seqlen_k": int(np.diff(cu_k).max())}
            prefix_sums |= {name: upload(cu, "cuda") for name, cu in (("cu_seqlens_q", cu_q), ("cu_seqlens_k", cu_k))}
        intervals = upload(endpoints(starts, ends), "cuda").unsqueeze(0)

        q, k, v, out, lse = self._samples()
        self.plan: Any = create_mask_plan(intervals, q, k, v, pack_gqa=tuning.pack_gqa, build_backward=case.backward, **prefix_sums)
        self.forward_call: Any = FlexAttentionFwd(q, k, v, out, self.plan, lse, sm90_use_smem_mask_pipeline=tuning.mask_through_smem)
        calls = [self.forward_call]
        if case.backward:
            self.backward_call: Any = FlexAttentionBwd(q, k, v, out, out, lse, q, k, v, self.plan, deterministic=case.deterministic)
            calls.append(self.backward_call)
        for call in calls:
            call.check_support()
            call.compile()

    def _samples(self) -> tuple[torch.Tensor, ...]:
        import torch

        from longca.kernels.inputs import DTYPES

        case, dtype = self.case, DTYPES[self.case.dtype]
        q, out = (torch.empty(case.seqlen_q, case.heads_q, d, dtype=dtype, device="cuda") for d in (case.head_dim, case.head_dim_v))
        k, v = (torch.empty(case.seqlen_k, case.heads_kv, d, dtype=dtype, device="cuda") for d in (case.head_dim, case.head_dim_v))
        return self._batched(q, k, v, out, self._new_lse())

    def _new_lse(self) -> torch.Tensor:
        import torch

        return torch.empty(self.case.heads_q, self.case.seqlen_q, dtype=torch.float32, device="cuda")

    def _batched(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        contiguous = (tensor.contiguous() for tensor in tensors)
        return tuple(contiguous) if self.by_document else tuple(tensor.unsqueeze(0) for tensor in contiguous)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        out_LHD, lse_HL = q_LHD.new_empty(*q_LHD.shape[:2], v_LHD.shape[2]), self._new_lse()
        q, k, v, out, lse = self._batched(q_LHD, k_LHD, v_LHD, out_LHD, lse_HL)
        workspace = torch.empty(self.forward_call.workspace_size, dtype=torch.uint8, device=q.device)
        with hopper_forward_tile(self.tuning.forward_tile):
            self.forward_call.execute(q, k, v, out, self.plan, lse, workspace=workspace, softmax_scale=self.case.softmax_scale)
        return out_LHD, lse_HL

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        import torch

        assert lse_HL is not None
        inputs = self._batched(q_LHD, k_LHD, v_LHD, out_LHD, dout_LHD, lse_HL)
        grads = tuple(torch.empty_like(tensor) for tensor in inputs[:3])
        # fresh on every call: a buffer kept here would be shared by streams that run the same object
        workspace = torch.empty(self.backward_call.workspace_size, dtype=torch.uint8, device=q_LHD.device)
        self.backward_call.execute(*inputs, *grads, self.plan, workspace=workspace, softmax_scale=self.case.softmax_scale)
        dq, dk, dv = grads if self.by_document else tuple(grad.squeeze(0) for grad in grads)
        return dq, dk, dv
