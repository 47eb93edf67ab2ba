"""FlashAttention-4's main Hopper backward kernel for joined heads: a thread block takes several query heads of one KV head in turn, and
thread blocks begin in a given order.

The library's kernel walks over the query tiles of one head. Here the rows of its tensors are those of several heads, one whole head after
the other. Only layouts and loops change; nothing is copied.

This file imports the library at the top and is itself imported only when a kernel is prepared. It has no postponed annotations:
the library's compiler reads them.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call,untyped-decorator"

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import cutlass
import cutlass.cute as cute
import flash_attn.cute.flash_bwd_sm90 as library_backward
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90
from flash_attn.cute.seqlen_info import SeqlenInfoQK
from flash_attn.cute.tile_scheduler import SingleTileScheduler

from longca.kernels.backends.band_cute import _layout, _walk
from longca.kernels.backends.band_cute._layout import TILE_BITS, joined_layout
from longca.kernels.backends.band_cute._walk import joined_heads

FILES = __file__, _layout.__file__, _walk.__file__
SOURCE = hashlib.sha256(b"".join(Path(path).read_bytes() for path in FILES)).hexdigest()


class JoinedBackward(FlashAttentionBackwardSm90):
    """The library's backward. `joined` heads share the rows of q and dout, of the base-2 lse and delta, and of the sums of dq."""

    joined: int = 1

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
        order: cute.Tensor,
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
            aux_data=aux_data,
            blocksparse_tensors=lists,
            mCuTotalMBlocks=order,
            stream=stream,
        )

    def with_joined_heads(self, tensor: cute.Tensor, row_mode: int, head_mode: int, tile: int) -> cute.Tensor:
        aligned = 128 // tensor.element_type.width
        stride = tuple(step if isinstance(step, int) else cute.assume(step, divby=aligned) for step in tensor.stride)
        shape, stride = joined_layout(tensor.shape, stride, row_mode, head_mode, tile, self.joined)
        return cute.make_tensor(tensor.iterator, cute.make_layout(shape, stride=stride))


def compiled(kernel: JoinedBackward, *arguments: Any) -> Any:
    """Returns the compiled kernel for arguments like these, on the current stream of each call."""
    _Patches.install()
    token = joined_heads.set(kernel.joined)
    try:
        stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
        return cute.compile(kernel, *arguments, stream, options="--enable-tvm-ffi")
    finally:
        joined_heads.reset(token)


class _Patches:
    """Replaces functions of the library. While `compiled` runs, they take joined heads and an order of thread blocks; else, and in other
    threads, they do what they did."""

    installed: ClassVar[bool] = False

    @classmethod
    def install(cls) -> None:
        if cls.installed:
            return
        cls.installed = True
        library_backward.assume_tensor_aligned = _with_joined(library_backward.assume_tensor_aligned)
        SeqlenInfoQK.create = staticmethod(_with_joined_length(SeqlenInfoQK.create))
        SingleTileScheduler.Params.create = staticmethod(_with_order_given(SingleTileScheduler.Params.create))
        SingleTileScheduler.create = staticmethod(_in_order(SingleTileScheduler.create))
        for name, own in _walk.LOOPS.items():
            setattr(library_backward, name, own(getattr(library_backward, name)))


def _with_joined(original: Callable[..., Any]) -> Callable[..., Any]:
    """Tensors with joined heads have aligned strides already; the library would not take a stride that is a tuple."""

    def assume_tensor_aligned(tensor: Any, **options: Any) -> Any:
        has_joined_heads = tensor is not None and any(isinstance(step, tuple) for step in tensor.stride)
        return tensor if has_joined_heads else original(tensor, **options)

    return assume_tensor_aligned


def _with_joined_length(original: Callable[..., Any]) -> Callable[..., Any]:
    """Takes the number of rows also as a tuple of the sizes of their modes."""

    def create(batch_idx: Any, seqlen_q_static: Any, *args: Any, **options: Any) -> Any:
        length = cute.size(seqlen_q_static) if isinstance(seqlen_q_static, tuple) else seqlen_q_static
        return original(batch_idx, length, *args, **options)

    return create


def _with_order_given(original: Callable[..., Any]) -> Callable[..., Any]:
    """The scheduler of single tiles has no use for places of documents: what comes as such is the order of thread blocks, and the scheduler
    keeps it where other kernels keep numbers of splits."""

    def create(args: Any, **where: Any) -> Any:
        params = original(args, **where)
        if joined_heads.get():
            params.num_splits_dynamic_ptr = args.cu_total_m_blocks_ptr
        return params

    return create


def _in_order(original: Callable[..., Any]) -> Callable[..., Any]:
    """Gives each thread block the key tile and head that the order has at its place."""

    def create(params: Any, *args: Any, **kwargs: Any) -> Any:
        scheduler = original(params, *args, **kwargs)
        if joined_heads.get():
            tile, head, batch = scheduler._blk_coord
            block = params.num_splits_dynamic_ptr[tile + head * params.num_block]
            scheduler._blk_coord = (block % (1 << TILE_BITS), block // (1 << TILE_BITS), batch)
        return scheduler

    return create
