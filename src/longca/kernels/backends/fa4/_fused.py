"""`fa4:fused`: FlashAttention-4's forward, and its Hopper backward with dQ finished inside the main kernel (see `_finish`).

The library's own host function clears the sums of dQ before its main kernel and converts them after it; this one replaces it. The library's
kernels before (delta and the base-2 lse) and after (dk and dv of grouped heads) are called as they are.

This was compiled, but not yet run on a GPU: no other label chooses it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from longca.kernels.backends.fa4._bands import BandAttention, Tuning, backward_rows
from longca.kernels.backends.fa4._sums import LONGEST_SHARE, LONGEST_SHARE_IN_FRONT, Sums, Tiling, Window, heads_to_join, heavy_first
from longca.kernels.backends.fa4.kernel import Fa4Documents
from longca.kernels.lower import upload
from longca.kernels.shared import band_mask

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from longca.kernels.base import Attention, Case, Gradients
    from longca.masks import AnyMask, Mask
    from longca.masks.tiles import TileLists

KEYS = 128  # of a tile, at the head sizes that are taken
WARP_GROUPS = 2  # that multiply


@dataclass(frozen=True)
class Fusing:
    """Options to try; None leaves the choice to this adapter."""

    rounds: int | None = None  # copies that bring half a dQ tile to shared memory; one needs 32 KiB, which head size 64 does not leave
    keeps_sums: bool = True  # sums stay cleared between calls; False: every call clears them
    lists: bool = False  # tile lists also for documents and windows, which the library knows
    heavy_first: bool = False  # thread blocks of the key tiles with the most queries begin first; only with tile lists
    finishes: bool = True  # dQ inside the main kernel; False: the library's own backward, for joined heads
    joined: int | None = 1  # query heads of one KV head that a thread block takes one after the other; more than one needs tile lists


def fused_attention(mask: AnyMask, case: Case, fusing: Fusing) -> Attention:
    """Returns the attention for documents with a window where the mask can be written so, and for tile lists elsewhere."""
    from longca.kernels.base import No
    from longca.kernels.shared import documents_of

    if fusing.lists or fusing.heavy_first or fusing.joined != 1 or isinstance(documents_of(mask), No):
        return FusedBands(band_mask(mask), case, fusing)
    return FusedDocuments(band_mask(mask), case, fusing)


class FusedDocuments(Fa4Documents):
    def __init__(self, mask: Mask, case: Case, fusing: Fusing) -> None:
        super().__init__(mask, case)
        if not case.backward:
            return
        varlen = mask.varlen()
        tiling = Tiling(np.asarray(varlen.cu_q, np.int64), np.asarray(varlen.cu_k, np.int64), backward_rows(case), KEYS)
        options = self.options
        causal, local, left, right = self.library._resolve_causal_local_window(
            options["causal"], options["window_size_left"], options["window_size_right"]
        )
        counts = tiling.counts(Window(left, 0 if causal else right))
        self.finished = Backward(case, tiling, counts, fusing, causal=causal, local=local, left=left, right=right)
        if self.packed:
            self.finished.take_documents(self.cu_q, self.cu_k)

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        dout_LHD, lse_HL = self.blind.before_backward(dout_LHD, lse_HL)
        return self.finished(dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD, lse_HL)


class FusedBands(BandAttention):
    def __init__(self, mask: Mask, case: Case, fusing: Fusing) -> None:
        super().__init__(mask, case, Tuning())
        if not case.backward:
            return
        rows, keys = backward_rows(case), KEYS
        lists = mask.tiles(rows, keys).by_col()
        self.heads, self.finishes = 1, fusing.finishes
        lengths = np.diff(lists.full_ptr) + np.diff(lists.partial_ptr)
        if mask.seqlen_q % rows == 0:
            longest = LONGEST_SHARE_IN_FRONT if fusing.heavy_first else LONGEST_SHARE
            self.heads = gcd(fusing.joined, case.group) if fusing.joined else heads_to_join(lengths, case.heads_q, case.group, longest)
        joined = replace(case, seqlen_q=self.heads * mask.seqlen_q, heads_q=case.heads_q // self.heads)
        tiling = Tiling(np.array([0, joined.seqlen_q]), np.array([0, mask.seqlen_k]), rows, keys)
        counts = np.bincount(np.concatenate([lists.full_idx, lists.partial_idx]), minlength=tiling.places // self.heads).astype(np.int32)
        self.finished = Backward(joined, tiling, np.tile(counts, self.heads), fusing)
        options = self.backward_options
        if self.heads > 1:
            function = options["mask_mod"]
            options["mask_mod"] = self.cute.Intervals(function.count, function.anchors_are_keys, function.per_fragment, joined=self.heads)
            options["block_sparse_tensors"] = self._lists(repeated(lists, self.heads, mask.seqlen_q // rows), (rows, keys), packed=False)
        self.finished.take_lists(options["block_sparse_tensors"], options["mask_mod"], options["aux_tensors"])
        if fusing.heavy_first:
            self.finished.searched = None, upload(heavy_first(lengths), case.device)  # the library hands the order to the scheduler

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        assert lse_HL is not None
        dout, q, out = (self._joined(tensor) for tensor in (dout_LHD, q_LHD, out_LHD))
        backward = self.finished if self.finishes else super().backward
        dq, dk, dv = backward(dout, q, k_LHD, v_LHD, out, lse_HL.reshape(lse_HL.shape[0] // self.heads, -1))
        return dq.transpose(0, 1).reshape(-1, q_LHD.shape[0], q_LHD.shape[2]).transpose(0, 1), dk, dv

    def _joined(self, tensor_LHD: Tensor) -> Tensor:
        """Returns [L x joined heads, other heads, D]; nothing is copied where heads are outermost in memory, or none are joined."""
        if self.heads == 1:
            return tensor_LHD
        length, heads, size = tensor_LHD.shape
        return tensor_LHD.transpose(0, 1).reshape(heads // self.heads, self.heads * length, size).transpose(0, 1)


def repeated(lists: TileLists, heads: int, tiles: int) -> TileLists:
    """Returns the query tiles of each key tile for several heads, one head after the other, whose tiles follow each other."""

    def several(ptr: NDArray[np.int32], index: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        entries = [index[a:b] + head * tiles for a, b in pairwise(ptr) for head in range(heads)]
        return ptr * heads, np.concatenate([*entries, index[:0]])

    full_ptr, full_idx = several(lists.full_ptr, lists.full_idx)
    partial_ptr, partial_idx = several(lists.partial_ptr, lists.partial_idx)
    return type(lists)(full_ptr=full_ptr, full_idx=full_idx, partial_ptr=partial_ptr, partial_idx=partial_idx)


class Backward:
    """Computes dq, dk and dv from out and lse."""

    def __init__(
        self,
        case: Case,
        tiling: Tiling,
        counts: NDArray[np.int32],
        fusing: Fusing,
        *,
        causal: bool = False,
        local: bool = False,
        left: int | None = None,
        right: int | None = None,
    ) -> None:
        import torch
        from flash_attn.cute import interface

        from longca.kernels.backends.fa4 import _finish

        self.library, self.cute, self.case, self.tiling = interface, _finish, case, tiling
        self.causal, self.local, self.left, self.right = causal, local, left, right
        self.config = interface._tile_size_bwd_sm90(case.head_dim, case.head_dim, True, False)
        self.dtype = interface.torch2cute_dtype_map[getattr(torch, {"bf16": "bfloat16", "fp16": "float16"}[case.dtype])]
        self.rounds = fusing.rounds or (2 if case.head_dim == 64 else 1)
        self.sums = Sums(counts, case.heads_q, tiling.rows * case.head_dim, case.softmax_scale, case.device, fusing.keeps_sums)
        rows = tiling.rows_of_none(counts)
        self.idle_rows = upload(rows, case.device) if len(rows) else None
        self.documents: tuple[Any, Any] | None = None
        # places of the documents' tiles of queries and of keys, where there are many documents; or, with lists, the order of key tiles
        self.searched: tuple[Any, Any] = (None, None)
        self.lists: Any = None
        self.mask_mod: Any = None
        self.aux_tensors: Any = None

    def take_documents(self, cu_q: Any, cu_k: Any) -> None:
        self.documents = cu_q, cu_k
        if len(cu_q) - 1 > self.library.BIN_BATCH_SEARCH_THRESH:
            sides = ((self.tiling.cu_q, self.tiling.rows), (self.tiling.cu_k, self.tiling.keys))
            ends = (np.cumsum(np.concatenate([[0], -(-np.diff(cu) // size)])) for cu, size in sides)
            places = [upload(end.astype(np.int32), self.case.device) for end in ends]
            self.searched = places[0], places[1]

    def take_lists(self, lists: Any, mask_mod: Any, aux_tensors: Any) -> None:
        size = (self.tiling.rows, self.tiling.keys)
        case = self.case
        self.lists, self.pattern = self.library.normalize_block_sparse_config_bwd(
            lists,
            batch_size=1,
            num_head=case.heads_q,
            seqlen_q=case.seqlen_q,
            seqlen_k=case.seqlen_k,
            block_size=size,
            q_subtile_factor=1,
        )
        self.mask_mod, self.aux_tensors = mask_mod, aux_tensors

    def __call__(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor) -> Gradients:
        import torch

        case, tiling = self.case, self.tiling
        dout, q, k, v, out, lse = (self.library.maybe_contiguous(t) for t in (dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD, lse_HL))
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        if self.idle_rows is not None:
            dq.index_fill_(0, self.idle_rows, 0.0)
        delta, lse2 = (q.new_empty(case.heads_q, tiling.places * tiling.rows, dtype=torch.float32) for _ in range(2))
        places = tiling.transposed.places * tiling.keys
        sums_kv = (
            [k.new_zeros(case.heads_kv, places * case.head_dim, dtype=torch.float32) for _ in range(2)] if case.group > 1 else [dk, dv]
        )
        with self._sums_of_dq(q) as sums:  # all clearing comes before these two, so that the second may start while the first ends
            self._prepare(out, dout, lse, delta, lse2)
            self._main(q, k, v, dout, lse2, delta, sums, *sums_kv, dq)
        if case.group > 1:
            self._convert(sums_kv[0], dk, case.softmax_scale)
            self._convert(sums_kv[1], dv, 1.0)
        return dq, dk, dv

    def _sums_of_dq(self, q: Tensor) -> AbstractContextManager[Tensor]:
        if self.library.is_fake_mode():
            return nullcontext(q.new_empty(self.sums.heads, self.sums.floats // self.sums.heads, dtype=self.sums.behind.dtype))
        return self.sums.lent()

    def _batched(self, *tensors: Tensor) -> list[Tensor]:
        return [tensor if self.documents else tensor[None] for tensor in tensors]

    def _prepare(self, out: Tensor, dout: Tensor, lse: Tensor, delta: Tensor, lse2: Tensor) -> None:
        """Computes delta and the base-2 lse, with room after every document, by the library's kernel; it has no sums to clear."""
        out, dout, lse, delta, lse2 = self._batched(out, dout, lse, delta, lse2)
        self.library._bwd_preprocess(
            *(out, dout, delta, lse, lse2, None),
            *(self.documents[0] if self.documents else None, None, None),
            *(self.dtype, self.case.head_dim, self.case.head_dim, self.tiling.rows),
            cu_total_m_blocks=self.searched[0],
            fake_mode=self.library.is_fake_mode(),
        )

    def _convert(self, sums: Tensor, result: Tensor, scale: float) -> None:
        """Converts dk or dv of grouped heads by the library's kernel."""
        self.library._bwd_postprocess_convert(
            *self._batched(sums, result),
            *(scale, self.documents[1] if self.documents else None, None, 90),
            *(self.dtype, self.case.head_dim, self.tiling.keys, WARP_GROUPS * 128, self.config.AtomLayoutNdKV, self.config.dKV_swapAB),
            cu_total_m_blocks=self.searched[1] if self.documents else None,
            fake_mode=self.library.is_fake_mode(),
        )

    def _main(self, *tensors: Tensor) -> None:
        """Runs the kernel on q, k, v, dout, base-2 lse, delta, sums of dq, and dk and dv or their sums; it writes dq, the last of them."""
        given, dq = self._batched(*tensors[:-1]), tensors[-1]
        cu_q, cu_k = self.documents or (None, None)
        lists = None if self.lists is None else (*self.lists[:4], None, None, None, None)
        aux = self.library.AuxData(self.aux_tensors, None)
        rest = (self.case.softmax_scale, cu_q, cu_k, None, None, self.left, self.right, dq, None, None, aux, lists, self.searched[1])
        key = self._key(*given, dq)
        if key not in COMPILED.of(self.library):
            COMPILED.of(self.library)[key] = self._compile(given, rest)
        if not self.library.is_fake_mode():
            COMPILED.of(self.library)[key](*(tensor.detach() for tensor in given), *rest)

    def _key(self, *tensors: Tensor) -> tuple[Any, ...]:
        """Returns all that decides what is compiled. The stride of a dimension of 1 means nothing, and the compiler may keep it."""
        library, case = self.library, self.case
        mask = library.utils.hash_callable(self.mask_mod) if self.mask_mod is not None else None
        aux = library.get_aux_tensor_metadata(self.aux_tensors) if self.aux_tensors is not None else None
        single = tuple(tuple(size == 1 for size in tensor.shape) for tensor in (*tensors, *(self.lists or ())[:4]))
        masked = (self.causal, self.local, self.left is None, self.right is None, mask, aux, None if self.lists is None else self.pattern)
        shape = (case.dtype, case.head_dim, case.group, self.rounds, self.documents is None, self.searched[1] is None)
        return (self.cute.SOURCE, *shape, *masked, single)

    def _compile(self, tensors: list[Tensor], rest: tuple[Any, ...]) -> Any:
        to_cute, config = self.library.to_cute_tensor, self.config
        scale, cu_q, cu_k, _, _, left, right, dq, _, _, _, lists, searched = rest
        kernel = self.cute.FinishingBackward(
            *(self.dtype, self.case.head_dim, self.case.head_dim, self.case.group, self.causal),
            is_local=self.local,
            tile_m=self.tiling.rows,
            tile_n=self.tiling.keys,
            Q_stage=config.num_stages_Q,
            dO_stage=config.num_stages_dO,
            PdS_stage=config.num_stages_PdS,
            SdP_swapAB=config.SdP_swapAB,
            dKV_swapAB=config.dKV_swapAB,
            dQ_swapAB=config.dQ_swapAB,
            AtomLayoutMSdP=config.AtomLayoutMSdP,
            AtomLayoutNdKV=config.AtomLayoutNdKV,
            AtomLayoutMdQ=config.AtomLayoutMdQ,
            num_threads=(WARP_GROUPS + 1) * 128,
            mask_mod=self.mask_mod,
            has_aux_tensors=self.aux_tensors is not None,
        )
        kernel.rounds = self.rounds
        cu_q, cu_k, searched = (None if t is None else to_cute(t, assumed_align=4) for t in (cu_q, cu_k, searched))
        aux = None if self.aux_tensors is None else [self.library.to_cute_aux_tensor(t) for t in self.aux_tensors]
        lists = None if lists is None else self.library.to_cute_block_sparse_tensors(self.lists)
        return self.cute.compiled(
            *(kernel, *map(to_cute, tensors), scale, cu_q, cu_k, None, None, left, right, to_cute(dq), None, None),
            *(self.library.AuxData(aux, None), lists, searched),
        )


class _Compiled:
    """The compiled kernels, which the library keeps on disk where it keeps its own."""

    def __init__(self) -> None:
        self._kept: Any = None

    def of(self, library: Any) -> Any:
        if self._kept is None:
            self._kept = library.get_jit_cache("longca_fused")
        return self._kept


COMPILED = _Compiled()
