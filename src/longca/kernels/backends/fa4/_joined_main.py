"""FlashAttention-4's main Hopper backward kernel for joined heads: a thread block takes several query heads of one KV head in turn.

The library's kernel walks over the query tiles of one head. Here the rows of its tensors are the tiles of several heads, in an order of
`_joined.Joining`. Only layouts change; nothing is copied.

This file imports the library at the top and is itself imported only when a kernel is prepared. It has no postponed annotations:
the library's compiler reads them.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call,untyped-decorator"

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar

import cutlass
import cutlass.cute as cute
import flash_attn.cute.flash_bwd_sm90 as library_backward
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90
from flash_attn.cute.seqlen_info import SeqlenInfoQK
from flash_attn.cute.tile_scheduler import SingleTileScheduler

from longca.kernels.backends.fa4 import _joined_finish, _joined_layout, _joined_walk
from longca.kernels.backends.fa4._intervals import Intervals
from longca.kernels.backends.fa4._joined_layout import HEAD_BITS, HEADS, TILES, WHOLE_HEADS, joined_layout

FILES = __file__, _joined_layout.__file__, _joined_walk.__file__, _joined_finish.__file__
SOURCE = hashlib.sha256(b"".join(Path(path).read_bytes() for path in FILES)).hexdigest()
_takes_order: ContextVar[bool] = ContextVar("takes_order", default=False)


class JoinedIntervals(Intervals):
    """Intervals for a kernel whose query tiles are those of several heads, all under the same mask."""

    def __init__(self, intervals: Intervals, joined: int, order: str) -> None:
        super().__init__(intervals.count, intervals.anchors_are_keys, per_fragment=True)
        self.joined, self.order = joined, order
        self.__cute_hash__ = f"{self.__cute_hash__}-{SOURCE}-{joined}-{order}"

    def apply(self, mask: Any, acc_S: Any, m_block: Any, n_block: Any, thr_mma: Any, aux_data: Any) -> None:
        if self.order == TILES:
            m_block = m_block // self.joined
        elif self.order == HEADS:
            m_block = m_block % (mask.seqlen_q // (mask.tile_m * self.joined))
        super().apply(mask, acc_S, m_block, n_block, thr_mma, aux_data)


class JoinedBackward(FlashAttentionBackwardSm90):
    """The library's backward. `joined` heads share the rows of q and dout, of the base-2 lse and delta, and of the sums of dq."""

    joined: int = 1
    order: str = TILES
    finishes: str = ""  # dq inside: "" no, "clear": every call clears the sums before, "keep": finishing clears them
    masking: int = 1  # auxiliary tensors of the mask; those behind them belong to finishing

    def mma(self, *arguments: Any, is_dQ_wg: bool) -> None:
        if self.finishes:
            sums, scale, aux_data, lists = arguments[8], arguments[25], arguments[30], arguments[32]
            self.finishing = lists, _joined_finish.Tensors(sums.iterator, *aux_data.tensors[self.masking :], scale)
        super().mma(*arguments, is_dQ_wg=is_dQ_wg)

    def dQaccum_store(self, *arguments: Any) -> None:
        token = _joined_walk.counters_of_walk.set(arguments[6])
        try:
            super().dQaccum_store(*arguments)
        finally:
            _joined_walk.counters_of_walk.reset(token)

    def epilogue_dKV(self, *arguments: Any) -> None:
        if self.finishes:
            self.store_or_convert(*arguments)
        else:
            super().epilogue_dKV(*arguments)

    @cute.jit
    def store_or_convert(
        self,
        acc_dV: Any,
        mdV: Any,
        sV: Any,
        acc_dK: Any,
        mdK: Any,
        sK: Any,
        seqlen: Any,
        tma_atom_dK: Any,
        tma_atom_dV: Any,
        tiled_mma_dK: Any,
        tiled_mma_dV: Any,
        tidx: Any,
        n_block: Any,
        head_idx: Any,
        batch_idx: Any,
        qhead_per_kvhead_divmod: Any,
        mdK_semaphore: Any,
        mdV_semaphore: Any,
    ) -> None:
        """A thread block behind the last key tile converts dq; the number of its head says which part."""
        lists, tensors = self.finishing
        if n_block + 1 < lists[0].shape[2]:
            FlashAttentionBackwardSm90.epilogue_dKV(
                self,
                acc_dV,
                mdV,
                sV,
                acc_dK,
                mdK,
                sK,
                seqlen,
                tma_atom_dK,
                tma_atom_dV,
                tiled_mma_dK,
                tiled_mma_dV,
                tidx,
                n_block,
                head_idx,
                batch_idx,
                qhead_per_kvhead_divmod,
                mdK_semaphore,
                mdV_semaphore,
            )
        else:
            _joined_finish.convert_unit(
                head_idx,
                tidx,
                tensors,
                self.tile_m,
                self.tile_hdim,
                self.num_mma_threads,
                self.finishes == "keep",
                self.dtype,
            )

    @cute.jit
    def __call__(
        self,
        mQ: cute.Tensor,
        mK: cute.Tensor,
        mV: cute.Tensor,
        mdO: cute.Tensor,
        mLSE: cute.Tensor,
        mdPsum: cute.Tensor,
        mdQaccum: cute.Tensor,
        mdK: cute.Tensor,
        mdV: cute.Tensor,
        softmax_scale: cutlass.Float32,
        aux_data: Any,
        lists: Any,
        order: Any,
        counters: Any,
        stream: Any,
    ) -> None:
        rows, row_sums = self.tile_m, self.tile_m * self.tile_hdim
        joined_Q = self.with_joined_heads(mQ, 1, 2, rows)
        joined_dO = self.with_joined_heads(mdO, 1, 2, rows)
        joined_LSE = self.with_joined_heads(mLSE, 2, 1, rows)
        joined_dPsum = self.with_joined_heads(mdPsum, 2, 1, rows)
        joined_sums = self.with_joined_heads(mdQaccum, 2, 1, row_sums)
        FlashAttentionBackwardSm90.__call__(
            self,
            joined_Q,
            mK,
            mV,
            joined_dO,
            joined_LSE,
            joined_dPsum,
            joined_sums,
            mdK,
            mdV,
            softmax_scale,
            mdQ_semaphore=counters,
            aux_data=aux_data,
            blocksparse_tensors=lists,
            mCuTotalMBlocks=order,
            stream=stream,
        )

    def with_joined_heads(self, tensor: cute.Tensor, row_mode: int, head_mode: int, tile: int) -> cute.Tensor:
        if self.joined == 1 and self.order == TILES:
            return tensor
        aligned = 128 // tensor.element_type.width
        stride = tuple(step if isinstance(step, int) else cute.assume(step, divby=aligned) for step in tensor.stride)
        shape, stride = joined_layout(tensor.shape, stride, row_mode, head_mode, tile, self.joined, self.order)
        return cute.make_tensor(tensor.iterator, cute.make_layout(shape, stride=stride))


def _with_joined(original: Callable[..., Any]) -> Callable[..., Any]:
    """Tensors with joined heads have aligned strides already; the library would not take a stride that is a tuple."""

    def assume_tensor_aligned(tensor: Any, **options: Any) -> Any:
        has_joined_heads = tensor is not None and any(isinstance(step, tuple) for step in tensor.stride)
        return tensor if has_joined_heads else original(tensor, **options)

    return assume_tensor_aligned


def _with_joined_length(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(batch_idx: Any, seqlen_q_static: Any, *args: Any, **options: Any) -> Any:
        length = cute.size(seqlen_q_static) if isinstance(seqlen_q_static, tuple) else seqlen_q_static
        return original(batch_idx, length, *args, **options)

    return create


def _with_order_given(original: Callable[..., Any]) -> Callable[..., Any]:
    """The scheduler of single tiles has no use for places of documents: what comes as such is the order of thread blocks, and the scheduler
    keeps it where other kernels keep numbers of splits."""

    def create(args: Any, **where: Any) -> Any:
        params = original(args, **where)
        if _takes_order.get():
            params.num_splits_dynamic_ptr = args.cu_total_m_blocks_ptr
            if _joined_walk.masking_tensors.get():
                params.num_head = cute.size(args.cu_total_m_blocks_ptr.shape) // params.num_block
        return params

    return create


def _in_order(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(params: Any, *args: Any, **kwargs: Any) -> Any:
        scheduler = original(params, *args, **kwargs)
        if _takes_order.get() and params.num_splits_dynamic_ptr is not None:
            tile, head, batch = scheduler._blk_coord
            block = params.num_splits_dynamic_ptr[tile + head * params.num_block]
            scheduler._blk_coord = (block % (1 << HEAD_BITS), block // (1 << HEAD_BITS), batch)
        return scheduler

    return create


class _Patches:
    """Replaces functions of the library by ones that also take joined heads and, while `compiled` runs, an order of thread blocks."""

    installed: ClassVar[bool] = False

    @classmethod
    def install(cls) -> None:
        if not cls.installed:
            cls.installed = True
            library_backward.assume_tensor_aligned = _with_joined(library_backward.assume_tensor_aligned)
            SeqlenInfoQK.create = staticmethod(_with_joined_length(SeqlenInfoQK.create))
            SingleTileScheduler.Params.create = staticmethod(_with_order_given(SingleTileScheduler.Params.create))
            SingleTileScheduler.create = staticmethod(_in_order(SingleTileScheduler.create))
            names = "produce_block_sparse_q_loads_bwd_sm90", "consume_block_sparse_mma_bwd_sm90", "dQaccum_store_block_sparse_bwd_sm90"
            walks = _joined_walk.with_loads, _joined_walk.with_products, _joined_walk.with_stores
            for name, walk in zip(names, walks, strict=True):
                setattr(library_backward, name, walk(getattr(library_backward, name)))


def compiled(kernel: JoinedBackward, *arguments: Any) -> Any:
    """Returns the compiled kernel for arguments like these, on the current stream of each call."""
    with _compiling(kernel):
        stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
        return cute.compile(kernel, *arguments, stream, options="--enable-tvm-ffi")


@contextmanager
def _compiling(kernel: JoinedBackward) -> Iterator[None]:
    _Patches.install()
    heads = kernel.joined if kernel.order == WHOLE_HEADS else 0
    takes_order, heads_of_walk = _takes_order.set(True), _joined_walk.heads_of_walk.set(heads)
    masking_tensors = _joined_walk.masking_tensors.set(kernel.masking if kernel.finishes else 0)
    try:
        yield
    finally:
        _takes_order.reset(takes_order)
        _joined_walk.heads_of_walk.reset(heads_of_walk)
        _joined_walk.masking_tensors.reset(masking_tensors)
