"""FlashAttention-4's Hopper backward, with dQ finished inside the main kernel.

The library adds each product of a query tile and a key tile to an fp32 sum of dQ in memory. One kernel before clears these sums, one after
scales them and writes dQ. Here the thread block whose part completes a sum does both at once, while the sum is in the L2 cache: it copies
the sum to shared memory, scales it, writes dQ, and leaves zeros for the next call.

Warp 1 of each thread block issues the additions, as in the library, and counts in shared memory those that are complete. Warps 2 and 3,
which are idle in the library, follow it: each looks after one half of every sum (a *chunk*, 64 x 64 values, what one warp group computes).
A counter per chunk says how many key tiles were added. Nobody waits for warps 2 and 3, and they wait for nobody but warp 1.

This file imports the library at the top and is itself imported only when a kernel is prepared. It has no postponed annotations:
the library's compiler reads them.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call,untyped-decorator"

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, const_expr
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op
from flash_attn.cute import copy_utils
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90
from flash_attn.cute.named_barrier import NamedBarrierBwd
from flash_attn.cute.tile_scheduler import SingleTileScheduler

from longca.kernels.backends.fa4 import _chunks
from longca.kernels.backends.fa4._chunks import CHUNK, STEPS, column_of, distance, first_place, in_order, row_of, turn_of
from longca.kernels.backends.fa4._sums import SCALE_FLOATS

SOURCE = hashlib.sha256(b"".join(path.read_bytes() for path in (Path(__file__), Path(_chunks.__file__)))).hexdigest()
ADDING_WARP, FIRST_FINISHING_WARP = 1, 2
STARTED = max(NamedBarrierBwd) + 1  # the named barrier of warps 1 to 3, after those of the library
PAUSE_NS = 100
_warps_store_together: ContextVar[bool] = ContextVar("warps_store_together", default=False)


class Extras(NamedTuple):
    """What finishing needs beside the library's arguments. All but dQ, which takes the place of the library's semaphore, lies behind the
    sums in memory: the library hands nothing more through."""

    scale: cute.Pointer
    expected: cute.Pointer  # [tiles]: key tiles that add to each query tile
    counters: cute.Pointer  # [tiles, chunks] of one head: key tiles added so far
    dq: cute.Tensor  # [tokens, heads, head size]


class FinishingBackward(FlashAttentionBackwardSm90):
    """The library's backward, whose warps 1 to 3 also finish dQ. `rounds` is how many copies move one chunk to shared memory."""

    rounds: int = 1
    sdQaccum_layout: Any  # noqa: N815

    def _get_shared_storage_cls(self) -> Any:
        """Asks the library for room behind the dQ tile: for two chunks, two barriers and a count."""
        layout: Any = self.sdQaccum_layout
        self.tile_floats = cute.cosize(layout)
        self.staging_floats = CHUNK * CHUNK // self.rounds
        try:
            self.sdQaccum_layout = cute.make_layout(self.tile_floats + 2 * self.staging_floats + 8)
            return super()._get_shared_storage_cls()
        finally:
            self.sdQaccum_layout = layout

    @cute.jit
    def dQaccum_store(
        self,
        mdQaccum: cute.Tensor,
        sdQaccum: cute.Tensor,
        block_info: Any,
        TileSchedulerCls: cutlass.Constexpr[Callable],
        SeqlenInfoCls: cutlass.Constexpr[Callable],
        blocksparse_tensors: Any = None,
        mdQ_semaphore: Any = None,
    ) -> None:
        thread = cute.arch.thread_idx()[0]
        warp = cute.arch.make_warp_uniform(thread // cute.arch.WARP_SIZE)
        lane = thread % cute.arch.WARP_SIZE
        staging = sdQaccum.iterator + self.tile_floats
        copied = cute.recast_ptr(staging + 2 * self.staging_floats, dtype=Int64)
        added = cute.recast_ptr(staging + 2 * self.staging_floats + 4, dtype=Int32)
        if lane == 0:
            if warp == ADDING_WARP:
                cute.arch.store(added, Int32(0), ss="cta")
            else:
                cute.arch.mbarrier_init(copied + (warp - FIRST_FINISHING_WARP), 1)
                cute.arch.mbarrier_init_fence()
        cute.arch.barrier(barrier_id=STARTED, number_of_threads=3 * cute.arch.WARP_SIZE)

        tile = TileSchedulerCls().initial_work_tile_info()
        if tile.is_valid_tile:
            n_block, head, batch, _ = tile.tile_idx
            seqlen = SeqlenInfoCls(batch)
            lists = None
            if const_expr(self.use_block_sparsity):
                partial_count, partial, full_count, full, *_ = blocksparse_tensors
                first, listed = Int32(0), partial_count[batch, head, n_block]
                count = listed + full_count[batch, head, n_block]
                lists = listed, partial[batch, head, n_block, None], full[batch, head, n_block, None]
            else:
                first, end = block_info.get_m_block_min_max(seqlen, n_block)
                count = end - first
            if const_expr(not seqlen.has_cu_seqlens_q):
                sums, tiles_before = mdQaccum[None, head, batch].iterator, Int32(0)
            else:
                sums, tiles_before = mdQaccum[None, head].iterator, seqlen.padded_offset_q // self.tile_m
            if warp == ADDING_WARP:
                self.add_tiles(first, count, lists, tiles_before, sums, sdQaccum, added, lane)
            else:
                extras = self.extras(mdQaccum, head, mdQ_semaphore)
                self.finish_tiles(
                    first, count, lists, tiles_before, sums, staging, copied, added, warp - FIRST_FINISHING_WARP, lane, head, seqlen, extras
                )

    @cute.jit
    def extras(self, mdQaccum: cute.Tensor, head: Int32, dq: cute.Tensor) -> Any:
        tiles = mdQaccum.shape[0] // self.tile_floats
        behind = mdQaccum.iterator + Int64(mdQaccum.shape[0]) * Int64(mdQaccum.shape[1])
        expected = cute.recast_ptr(behind + SCALE_FLOATS, dtype=Int32)
        return Extras(behind, expected, expected + tiles + head * tiles * self.num_wg_dQ, dq)

    @cute.jit
    def query_tile(self, first: Int32, i: Int32, lists: Any) -> Any:
        """Returns the i-th query tile of this key tile: from the lists, partial tiles first, or counted from `first`."""
        if const_expr(lists is None):
            return first + i
        listed, partial, full = lists
        m_block = Int32(0)
        if i < listed:
            m_block = partial[i]
        else:
            m_block = full[i - listed]
        return m_block

    @cute.jit
    def add_tiles(
        self,
        first: Int32,
        count: Int32,
        lists: Any,
        tiles_before: Int32,
        sums: cute.Pointer,
        sdQaccum: cute.Tensor,
        added: cute.Pointer,
        lane: Int32,
    ) -> None:
        """Adds the parts that the warp groups leave in shared memory, and counts in `added` the tiles whose additions are complete."""
        chunks, floats = self.num_wg_dQ, CHUNK * CHUNK
        threads = self.num_threads_per_warp_group + cute.arch.WARP_SIZE
        for i in cutlass.range(count, unroll=1):
            m_block = self.query_tile(first, i, lists)
            target = sums + (tiles_before + m_block) * (chunks * floats)
            for chunk in cutlass.range_constexpr(chunks):
                cute.arch.cp_async_bulk_wait_group(chunks - 1 - chunk, read=True)
                cute.arch.barrier_arrive(barrier_id=int(NamedBarrierBwd.dQEmptyWG0) + chunk, number_of_threads=threads)
            for chunk in cutlass.range_constexpr(chunks):
                cute.arch.barrier(barrier_id=int(NamedBarrierBwd.dQFullWG0) + chunk, number_of_threads=threads)
                with cute.arch.elect_one():
                    copy_utils.cpasync_reduce_bulk_add_f32(sdQaccum[None, chunk].iterator, target + chunk * floats, 4 * floats)
                cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(chunks, read=False)  # all but this tile's: those of the tile before are complete
            self.report(added, i, lane)
        cute.arch.cp_async_bulk_wait_group(0, read=False)
        self.report(added, count, lane)

    @cute.jit
    def report(self, added: cute.Pointer, count: Int32, lane: Int32) -> None:
        cute.arch.fence_proxy("async.global")
        cute.arch.sync_warp()
        if lane == 0:
            cute.arch.store(added, count, sem="release", scope="cta", ss="cta")

    @cute.jit
    def finish_tiles(
        self,
        first: Int32,
        count: Int32,
        lists: Any,
        tiles_before: Int32,
        sums: cute.Pointer,
        staging: cute.Pointer,
        copied: cute.Pointer,
        added: cute.Pointer,
        chunk: Int32,
        lane: Int32,
        head: Int32,
        seqlen: Any,
        extras: Any,
    ) -> None:
        """Counts each addition of warp 1, and finishes the chunks that were thereby completed."""
        chunks, floats = self.num_wg_dQ, CHUNK * CHUNK
        room = staging + chunk * self.staging_floats
        full = copied + chunk
        phase = Int32(0)
        for i in cutlass.range(count, unroll=1):
            m_block = self.query_tile(first, i, lists)
            last = cute.arch.load(extras.expected + (tiles_before + m_block), Int32) - 1
            seen = cute.arch.load(added, Int32, sem="acquire", scope="cta", ss="cta")
            while seen <= i:
                pause()
                seen = cute.arch.load(added, Int32, sem="acquire", scope="cta", ss="cta")
            before = Int32(0)
            if lane == 0:
                before = count_up(extras.counters + ((tiles_before + m_block) * chunks + chunk), last)
            before = cute.arch.shuffle_sync(before, 0)
            if before == last:
                source = sums + ((tiles_before + m_block) * chunks + chunk) * floats
                for r in cutlass.range(self.rounds, unroll=1):
                    part = source + r * self.staging_floats
                    if lane == 0:
                        cute.arch.fence_proxy("async")
                        cute.arch.mbarrier_arrive_and_expect_tx(full, 4 * self.staging_floats)
                        copy_utils.cpasync_bulk_g2s(part, room, full, 4 * self.staging_floats)
                    cute.arch.mbarrier_wait(full, phase)
                    phase ^= 1
                    self.clear(part, lane)
                    self.write(room, r, chunk, lane, m_block, head, seqlen, extras)
                    cute.arch.sync_warp()

    @cute.jit
    def clear(self, part: cute.Pointer, lane: Int32) -> None:
        """Leaves zeros in memory for the next call."""
        address = part.toint() + Int64(lane * 16)
        for offset in cutlass.range_constexpr(0, 4 * self.staging_floats, 16 * cute.arch.WARP_SIZE):
            store_words(address, offset, [Int32(0)] * 4)

    @cute.jit
    def write(self, room: cute.Pointer, r: Int32, chunk: Int32, lane: Int32, m_block: Int32, head: Int32, seqlen: Any, extras: Any) -> None:
        """Writes dQ from the chunk, or from part `r` of its columns, in shared memory: 16 bytes per lane, 32 neighbouring bytes per row."""
        across = const_expr(self.AtomLayoutMdQ == 1)  # chunks lie side by side, or else one below the other
        steps = const_expr(STEPS // self.rounds)  # of columns
        turn = turn_of(lane)
        row = m_block * self.tile_m + row_of(lane, 0) + (0 if const_expr(across) else chunk * CHUNK)
        column = column_of(lane, r * steps) + (chunk * CHUNK if const_expr(across) else 0)
        rows_left = seqlen.seqlen_q - row
        target = extras.dq[seqlen.offset_q + row, head, None].iterator.toint() + Int64(2 * column)
        row_bytes = Int64(extras.dq.stride[0]) * 2
        source = Int32(room.toint()) + 4 * first_place(lane)
        scale = cute.arch.load(extras.scale, Float32)
        for row_step in cutlass.range(STEPS, unroll=1):
            if row_of(0, row_step) < rows_left:
                for column_step in cutlass.range_constexpr(steps):
                    pairs = []
                    for k in cutlass.range_constexpr(4):
                        place = source + 4 * distance(row_step, column_step, (turn + k) % 4)
                        pairs.append(narrowed(*load_two(place), scale, self.dtype))
                    words = in_order(pairs, turn, cutlass.select_)
                    store_words(target + row_bytes * Int64(row_of(0, row_step)), 2 * column_of(0, column_step), words)


def _asm(code: str, constraints: str, operands: list[Any], result: Any = None) -> Any:
    return llvm.inline_asm(
        result, operands, code, constraints, has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT
    )


@dsl_user_op
def count_up(counter: cute.Pointer, last: Int32, *, loc: Any = None, ip: Any = None) -> Int32:
    """Returns the counter before it was counted up; the count after `last` is 0. What others did before they counted is seen here."""
    operands = [counter.toint(loc=loc, ip=ip).ir_value(), Int32(last).ir_value(loc=loc, ip=ip)]
    return Int32(_asm("atom.acq_rel.gpu.global.inc.u32 $0, [$1], $2;", "=r,l,r", operands, T.i32()))


@dsl_user_op
def pause(*, loc: Any = None, ip: Any = None) -> None:
    _asm(f"nanosleep.u32 {PAUSE_NS};", "", [])


@dsl_user_op
def load_two(place: Int32, *, loc: Any = None, ip: Any = None) -> tuple[Float32, Float32]:
    """Returns two neighbouring fp32 values from shared memory."""
    kind = llvm.StructType.get_literal([T.f32(), T.f32()])
    pair = _asm("ld.shared.v2.f32 {$0, $1}, [$2];", "=f,=f,r", [Int32(place).ir_value(loc=loc, ip=ip)], kind)
    low, high = (llvm.extractvalue(T.f32(), pair, [k], loc=loc, ip=ip) for k in range(2))
    return Float32(low), Float32(high)


@dsl_user_op
def narrowed(low: Float32, high: Float32, scale: Float32, dtype: Any, *, loc: Any = None, ip: Any = None) -> Int32:
    """Returns two values times the scale as one word of two bf16 or fp16 values."""
    kind = "bf16x2" if dtype is cutlass.BFloat16 else "f16x2"
    operands = [(value * scale).ir_value(loc=loc, ip=ip) for value in (high, low)]
    return Int32(_asm(f"cvt.rn.{kind}.f32 $0, $1, $2;", "=r,f,f", operands, T.i32()))


@dsl_user_op
def store_words(address: Int64, offset: int, words: list[Int32], *, loc: Any = None, ip: Any = None) -> None:
    """Stores 16 bytes in global memory."""
    operands = [Int64(address).ir_value(loc=loc, ip=ip), *(Int32(word).ir_value(loc=loc, ip=ip) for word in words)]
    _asm(f"st.global.v4.b32 [$0+{offset}], {{$1, $2, $3, $4}};", "l,r,r,r,r", operands)


def _together(original: Callable[..., Any]) -> Callable[..., Any]:
    def warp_idx(**where: Any) -> Any:
        warp = original(**where)
        return warp - Int32(warp == 2) - 2 * Int32(warp == 3) if _warps_store_together.get() else warp

    return warp_idx


def _with_order_given(original: Callable[..., Any]) -> Callable[..., Any]:
    """The scheduler of single tiles has no use for places of documents: what comes as such is the order of the key tiles, and the scheduler
    keeps it where other kernels keep numbers of splits."""

    def create(args: Any, **where: Any) -> Any:
        params = original(args, **where)
        if _warps_store_together.get():
            params.num_splits_dynamic_ptr = args.cu_total_m_blocks_ptr
        return params

    return create


def _in_order(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(params: Any, *args: Any, **kwargs: Any) -> Any:
        scheduler = original(params, *args, **kwargs)
        if _warps_store_together.get() and params.num_splits_dynamic_ptr is not None:
            tile, head, batch = scheduler._blk_coord
            place = tile + head * params.num_block
            scheduler._blk_coord = (params.num_splits_dynamic_ptr[place // params.num_head], place % params.num_head, batch)
        return scheduler

    return create


class _Patches:
    """Replaces functions of the library by ones that do more while `compiled` runs, and are otherwise unchanged."""

    installed: ClassVar[bool] = False

    @classmethod
    def install(cls) -> None:
        if not cls.installed:
            cls.installed = True
            cute.arch.warp_idx = _together(cute.arch.warp_idx)
            SingleTileScheduler.Params.create = staticmethod(_with_order_given(SingleTileScheduler.Params.create))
            SingleTileScheduler.create = staticmethod(_in_order(SingleTileScheduler.create))


def compiled(*arguments: Any) -> Any:
    """Returns the compiled kernel for arguments like these, on the current stream of each call."""
    with _compiling():
        stream = cute.runtime.make_fake_stream(use_tvm_ffi_env_stream=True)
        return cute.compile(*arguments, stream, options="--enable-tvm-ffi")


@contextmanager
def _compiling() -> Iterator[None]:
    """Kernels compiled inside this context send warps 2 and 3 where warp 1 goes, so that `dQaccum_store` gets them too: the library asks
    for the number of a warp only to choose between its roles."""
    _Patches.install()
    token = _warps_store_together.set(True)
    try:
        yield
    finally:
        _warps_store_together.reset(token)
