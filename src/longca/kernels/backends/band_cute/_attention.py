"""The host side of `band_cute`: lists, order and compiled kernels of a mask, and the call of the backward.

With n heads joined, keys and values are loaded, and the fp32 sums of dk and dv added, n times less often; where all query heads of a KV
head are joined, dk and dv need no sums. The library's host function knows no joined heads; this one replaces it. The library's kernels
before (delta, base-2 lse, cleared sums of dq) and after (sums to dq, dk and dv) are called as they are; its main kernel is `_main`'s.
"""

from __future__ import annotations

from functools import cache
from math import gcd
from typing import TYPE_CHECKING, Any

from longca.kernels.backends.band_cute._order import documents, documents_first, heads_to_join, query_tiles
from longca.kernels.backends.fa4._bands import BandAttention, Tuning, backward_rows
from longca.kernels.lower import upload

if TYPE_CHECKING:
    from torch import Tensor

    from longca.kernels.base import Case, Gradients
    from longca.masks import Mask

ARCH, WARP_GROUP = 90, 128  # threads


class JoinedAttention(BandAttention):
    """The forward of fa4:bands, and a backward in which a thread block takes `heads` query heads of one KV head, one after the other."""

    def __init__(self, mask: Mask, case: Case, joined: int | None = None) -> None:
        self.joined, self.heads = joined, 1
        super().__init__(mask, case, Tuning())

    def _lower_backward(self, mask: Mask) -> dict[str, Any]:
        case, size = self.case, self.case.head_dim
        self.config = self.library._tile_size_bwd_sm90(size, size, False, False, sparse_block_size_q=backward_rows(case))
        tile = self.config.m_block_size, self.config.n_block_size
        lists = mask.tiles(*tile).by_col()
        count, document = query_tiles(lists), documents(lists)
        self.heads = gcd(self.joined, case.group) if self.joined else heads_to_join(count, document, case.heads_q, case.group)
        options = self._intervals(mask, tile, anchors_are_keys=self.config.SdP_swapAB)
        if not self.config.SdP_swapAB and mask.seqlen_k % tile[1] == 0:
            options["aux_tensors"] *= 2  # full tiles need no test of the end (see `fa4._intervals.bounds_tensors`)
        options["lists"], options["pattern"] = self.library.normalize_block_sparse_config_bwd(
            self._lists(lists, tile, packed=False),
            batch_size=1,
            num_head=case.heads_q // self.heads,
            seqlen_q=case.seqlen_q,
            seqlen_k=case.seqlen_k,
            block_size=tile,
            q_subtile_factor=1,
        )
        options["order"] = upload(documents_first(count, document, case.heads_q // self.heads), case.device)
        return options

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        import torch

        assert lse_HL is not None
        case, config = self.case, self.config
        dout, q, k, v, out, lse = (
            self.library.maybe_contiguous(tensor)[None] for tensor in (dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD, lse_HL)
        )
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        delta, lse2 = (q.new_empty(1, case.heads_q, case.seqlen_q, dtype=torch.float32) for _ in range(2))
        sums_q = q.new_empty(1, case.heads_q, case.seqlen_q * case.head_dim, dtype=torch.float32)
        sums_kv, has_sums = [dk, dv], self.heads < case.group
        if has_sums:
            keys = -(-case.seqlen_k // config.n_block_size) * config.n_block_size
            sums_kv = [k.new_zeros(1, case.heads_kv, keys * case.head_dim, dtype=torch.float32) for _ in range(2)]
        # all clearing comes before these two kernels, the second of which may start while the first ends
        self._prepare(out, dout, lse, delta, lse2, sums_q)
        self._main(q, k, v, dout, lse2, delta, sums_q, *sums_kv)
        self._convert(sums_q, dq, case.softmax_scale, config.m_block_size, config.AtomLayoutMdQ, config.dQ_swapAB)
        if has_sums:
            for sums, result, scale in ((sums_kv[0], dk, case.softmax_scale), (sums_kv[1], dv, 1.0)):
                self._convert(sums, result, scale, config.n_block_size, config.AtomLayoutNdKV, config.dKV_swapAB)
        return dq[0], dk[0], dv[0]

    @property
    def _dtype(self) -> Any:
        import torch

        return self.library.torch2cute_dtype_map[{"bf16": torch.bfloat16, "fp16": torch.float16}[self.case.dtype]]

    def _prepare(self, out: Tensor, dout: Tensor, lse: Tensor, delta: Tensor, lse2: Tensor, sums_q: Tensor) -> None:
        """Computes delta and the base-2 lse, and clears the sums of dq, by the library's kernel."""
        size = self.case.head_dim
        self.library._bwd_preprocess(
            *(out, dout, delta, lse, lse2, sums_q),
            *(None, None, None),
            *(self._dtype, size, size, self.config.m_block_size),
            fake_mode=self.library.is_fake_mode(),
        )

    def _convert(self, sums: Tensor, result: Tensor, scale: float, tile: int, atoms: int, swapped: bool) -> None:
        """Converts fp32 sums to a gradient by the library's kernel."""
        self.library._bwd_postprocess_convert(
            *(sums, result, scale, None, None, ARCH),
            *(self._dtype, self.case.head_dim, tile, self.config.num_wg * WARP_GROUP, atoms, swapped),
            fake_mode=self.library.is_fake_mode(),
        )

    def _main(self, *tensors: Tensor) -> None:
        """Runs the main kernel on q, k, v, dout, base-2 lse, delta, sums of dq, and dk and dv or their sums."""
        library, options = self.library, self.backward_options
        compiled, key = compiled_kernels(library.get_jit_cache), self._key(*tensors)
        if key not in compiled:
            compiled[key] = self._compile(*tensors)
        if not library.is_fake_mode():
            lists, aux = (*options["lists"][:4], None, None, None, None), library.AuxData(options["aux_tensors"], None)
            compiled[key](*(tensor.detach() for tensor in tensors), self.case.softmax_scale, aux, lists, options["order"])

    def _key(self, *tensors: Tensor) -> tuple[Any, ...]:
        """Returns all that decides what is compiled. The stride of a dimension of 1 means nothing, and the compiler may keep it."""
        from longca.kernels.backends.band_cute import _main

        library, case, options = self.library, self.case, self.backward_options
        single = tuple(tuple(size == 1 for size in tensor.shape) for tensor in (*tensors, *options["lists"][:4], options["order"]))
        masked = library.utils.hash_callable(options["mask_mod"]), library.get_aux_tensor_metadata(options["aux_tensors"])
        return (_main.SOURCE, case.dtype, case.head_dim, case.group, self.heads, *masked, options["pattern"], single)

    def _compile(self, *tensors: Tensor) -> Any:
        from longca.kernels.backends.band_cute import _main

        library, case, config, options = self.library, self.case, self.config, self.backward_options
        kernel = _main.JoinedBackward(
            *(self._dtype, case.head_dim, case.head_dim, case.group // self.heads),
            tile_m=config.m_block_size,
            tile_n=config.n_block_size,
            Q_stage=config.num_stages_Q,
            dO_stage=config.num_stages_dO,
            PdS_stage=config.num_stages_PdS,
            SdP_swapAB=config.SdP_swapAB,
            dKV_swapAB=config.dKV_swapAB,
            dQ_swapAB=config.dQ_swapAB,
            AtomLayoutMSdP=config.AtomLayoutMSdP,
            AtomLayoutNdKV=config.AtomLayoutNdKV,
            AtomLayoutMdQ=config.AtomLayoutMdQ,
            num_threads=(config.num_wg + 1) * WARP_GROUP,
            mask_mod=options["mask_mod"],
            has_aux_tensors=True,
        )
        kernel.joined = self.heads
        aux = library.AuxData([library.to_cute_aux_tensor(tensor) for tensor in options["aux_tensors"]], None)
        lists = library.to_cute_block_sparse_tensors(options["lists"])
        order = library.to_cute_tensor(options["order"], assumed_align=4)
        return _main.compiled(kernel, *map(library.to_cute_tensor, tensors), case.softmax_scale, aux, lists, order)


@cache
def compiled_kernels(get_jit_cache: Any) -> Any:
    """Returns the compiled main kernels by key; the library keeps them on disk where it keeps its own."""
    return get_jit_cache("longca_band_cute")
