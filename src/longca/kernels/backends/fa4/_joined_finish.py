"""dq finished inside the main kernel: the thread block whose part completes the sum of a dq tile converts it, while it is in the L2 cache.

The library adds each product of a query tile and a key tile to an fp32 sum of dq in memory; a kernel before clears these sums, and one
after converts them. Here a thread block, after its last tile, counts its additions: one counter per query tile and head says how many key
tiles were added. The tiles that are complete then are scaled, converted and written by the warps that multiplied, each tile by one warp;
the sum is left cleared for the next call.

A sum lies in memory in the order in which two warp groups hold it, 64 x 64 values each (a *chunk*): 8 groups of 8 columns; 4 warps, of 16
rows each; 8 rows; 4 pairs of columns; two rows, 8 apart; the two columns of a pair.

This file imports the library at the top and is itself imported only when a kernel is prepared. It has no postponed annotations:
the library's compiler reads them.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call,untyped-decorator"

from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, const_expr
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op
from flash_attn.cute import barrier

from longca.kernels.backends.fa4._joined_layout import UNIT

CHUNK = 64  # rows and columns
GROUP_FLOATS = CHUNK * 8  # of 8 neighbouring columns
WARP_FLOATS = 16 * 8  # of 8 neighbouring columns and 16 rows
STEPS_AT_ONCE = 4  # a lane loads 64 bytes per step


class Tensors(NamedTuple):
    """What finishing needs."""

    sums: Any  # pointer, fp32 [heads, tiles, rows x head size]
    dq: Any  # [tokens, heads, head size]
    expected: Any  # [tiles]: key tiles that add to each query tile
    turns: Any  # [tiles]: query tiles, those that are complete first before others
    counters: Any  # [heads x tiles]: key tiles added so far; 0 between calls
    scale: Any


@cute.jit
def count_additions(lists: Any, batch: Any, head: Any, n_block: Any, counters: Any, heads: cutlass.Constexpr) -> None:
    """Called by the warp that adds, after its last addition: counts the key tile in all query tiles that it was added to."""
    partial_count, partial_index, full_count, full_index, *_ = lists
    partial_tiles, full_tiles = partial_count[batch, head, n_block], full_count[batch, head, n_block]
    cute.arch.cp_async_bulk_wait_group(0, read=False)
    cute.arch.fence_proxy("async.global")
    cute.arch.sync_warp()
    lane = cute.arch.lane_idx()
    tiles = counters.shape[0]
    for joined in cutlass.range(heads, unroll=1):
        here = counters.iterator + (head * heads + joined) * tiles
        for number in cutlass.range(lane, partial_tiles, cute.arch.WARP_SIZE, unroll=1):
            barrier.red_release(here + partial_index[batch, head, n_block, number], 1)
        for number in cutlass.range(lane, full_tiles, cute.arch.WARP_SIZE, unroll=1):
            barrier.red_release(here + full_index[batch, head, n_block, number], 1)


@cute.jit
def convert_unit(
    item: Any,
    thread: Any,
    tensors: Any,
    tile_m: cutlass.Constexpr,
    tile_hdim: cutlass.Constexpr,
    threads: cutlass.Constexpr,
    clears: cutlass.Constexpr,
    dtype: cutlass.Constexpr,
) -> None:
    """Converts UNIT tiles of a head, each by one warp, when all parts were added."""
    warp, lane = cute.arch.make_warp_uniform(thread // cute.arch.WARP_SIZE), thread % cute.arch.WARP_SIZE
    tiles = cute.size(tensors.expected.shape[0])
    units = (tiles + UNIT - 1) // UNIT
    head = item // units
    first = (item - head * units) * UNIT
    if head * tiles < cute.size(tensors.counters.shape[0]):
        for number in cutlass.range(warp, UNIT, threads // cute.arch.WARP_SIZE, unroll=1):
            turn = first + number
            if turn < tiles:
                tile = tensors.turns[turn]
                place = head * tiles + tile
                expected = tensors.expected[tile]
                counter = tensors.counters.iterator + place
                if expected > 0:
                    added = barrier.ld_acquire(counter)
                    while added < expected:
                        pause()
                        added = barrier.ld_acquire(counter)
                    convert(place, tiles, lane, tensors, tile_m, tile_hdim, clears, dtype)
                    if lane == 0:
                        store_word(counter.toint(), Int32(0))


@cute.jit
def convert(
    place: Any,
    tiles: Any,
    lane: Any,
    tensors: Any,
    tile_m: cutlass.Constexpr,
    tile_hdim: cutlass.Constexpr,
    clears: cutlass.Constexpr,
    dtype: cutlass.Constexpr,
) -> None:
    """Converts one tile by one warp. At each step a lane takes the 64 bytes that hold 8 neighbouring columns of rows r and r + 8."""
    head = place // tiles
    tile = place - head * tiles
    source = tensors.sums.toint() + Int64(place) * Int64(4 * tile_m * tile_hdim)
    source += Int64(4 * (GROUP_FLOATS * (lane // 8) + 16 * (lane % 8)))
    target = tensors.dq[tile * tile_m + lane % 8, head, None].iterator.toint() + Int64(2 * 8 * (lane // 8))
    row_bytes = Int64(tensors.dq.stride[0]) * 2
    across = const_expr(tile_hdim > CHUNK)  # chunks lie side by side, or else one below the other
    steps = [
        (chunk, rows, columns)
        for chunk in range(tile_m * tile_hdim // (CHUNK * CHUNK))
        for rows in range(CHUNK // 16)
        for columns in range(CHUNK // 32)
    ]
    for begin in cutlass.range_constexpr(0, len(steps), STEPS_AT_ONCE):
        some = steps[begin : begin + STEPS_AT_ONCE]
        offsets = [4 * (CHUNK * CHUNK * chunk + WARP_FLOATS * rows + 4 * GROUP_FLOATS * columns) for chunk, rows, columns in some]
        values = [[load_four(source, offset + 16 * k) for k in range(4)] for offset in offsets]
        for (chunk, rows, columns), offset, quads in zip(some, offsets, values, strict=True):
            row = 16 * rows + (0 if across else CHUNK * chunk)
            column = 32 * columns + (CHUNK * chunk if across else 0)
            for lower in cutlass.range_constexpr(2):
                words = [narrowed(quad[2 * lower], quad[2 * lower + 1], tensors.scale, dtype) for quad in quads]
                store_words(target + row_bytes * Int64(row + 8 * lower), 2 * column, words)
            if const_expr(clears):
                for k in cutlass.range_constexpr(4):
                    store_words(source, offset + 16 * k, [Int32(0)] * 4)


def _asm(code: str, constraints: str, operands: list[Any], result: Any = None) -> Any:
    return llvm.inline_asm(
        result, operands, code, constraints, has_side_effects=True, is_align_stack=False, asm_dialect=llvm.AsmDialect.AD_ATT
    )


@dsl_user_op
def pause(*, loc: Any = None, ip: Any = None) -> None:
    _asm("nanosleep.u32 200;", "", [])


@dsl_user_op
def store_word(address: Int64, word: Int32, *, loc: Any = None, ip: Any = None) -> None:
    _asm("st.global.b32 [$0], $1;", "l,r", [Int64(address).ir_value(loc=loc, ip=ip), Int32(word).ir_value(loc=loc, ip=ip)])


@dsl_user_op
def load_four(address: Int64, offset: int, *, loc: Any = None, ip: Any = None) -> list[Float32]:
    """Returns four neighbouring fp32 values from global memory."""
    kind = llvm.StructType.get_literal([T.f32()] * 4)
    code = f"ld.global.v4.f32 {{$0, $1, $2, $3}}, [$4+{offset}];"
    four = _asm(code, "=f,=f,=f,=f,l", [Int64(address).ir_value(loc=loc, ip=ip)], kind)
    return [Float32(llvm.extractvalue(T.f32(), four, [k], loc=loc, ip=ip)) for k in range(4)]


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
