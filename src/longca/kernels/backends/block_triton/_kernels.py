"""Block-sparse attention in Triton: forward, and a backward without atomics (dq by query tile, dk and dv by key tile).

A query tile holds ROWS rows of PACK query heads that share a KV head, so a tile fills the tensor cores even where blocks are small;
place m of a tile is row m // PACK, head m % PACK. With TMA, k and v (or q and dout) are tensor descriptors over [tokens, heads * D].
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _dot(a, b, PRECISION: tl.constexpr):
    if PRECISION == "upcast":  # the interpreter's arrays have no bf16: it would multiply the bits
        product = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:
        product = tl.dot(a, b, input_precision=PRECISION)
    return product


@triton.jit
def _add_dot(acc, a, b, PRECISION: tl.constexpr):
    if PRECISION == "upcast":
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    else:
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    return acc


@triton.jit
def _tile(x, start, count, head, HEADS: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr, TMA: tl.constexpr):
    """SIZE tokens of one head; behind `count` there are zeros or, with TMA, the tokens that follow."""
    if TMA:
        tile = x.load([start, head * D])
    else:
        place = tl.arange(0, SIZE)
        offset = (start + place).to(tl.int64)[:, None] * (HEADS * D) + head * D + tl.arange(0, D)[None, :]
        tile = tl.load(x + offset, mask=place[:, None] < count, other=0.0)
    return tile


@triton.jit
def _packed(start, first_head, HEADS: tl.constexpr, PACK: tl.constexpr, M: tl.constexpr, D: tl.constexpr):
    """Offsets of a packed query tile in [tokens, HEADS, D]."""
    place = tl.arange(0, M)
    row, head = (start + place // PACK).to(tl.int64), first_head + place % PACK
    return (row * HEADS + head)[:, None] * D + tl.arange(0, D)[None, :]


@triton.jit
def _seen(start, count, row, KEYS: tl.constexpr, CAUSAL: tl.constexpr):
    """Which of the keys from `start` on each row sees of a tile with an end, and with CAUSAL of one that the diagonal cuts."""
    key = tl.arange(0, KEYS)[None, :]
    seen = key < count
    if CAUSAL:
        seen = seen & (start + key <= row[:, None])
    return seen


@triton.jit
def _attend(acc, top, total, q, k, v, start, count, row, kv_head, scale_log2, HEADS_KV: tl.constexpr, KEYS: tl.constexpr,
            D: tl.constexpr, DV: tl.constexpr, SHORT: tl.constexpr, CAUSAL: tl.constexpr, TMA: tl.constexpr,
            PRECISION: tl.constexpr):  # fmt: skip
    k_tile = _tile(k, start, count, kv_head, HEADS_KV, KEYS, D, TMA)
    score = _dot(q, tl.trans(k_tile), PRECISION)
    if SHORT:
        score = tl.where(_seen(start, count, row, KEYS, CAUSAL), score, float("-inf"))
    new_top = tl.maximum(top, tl.max(score, 1) * scale_log2)
    base = new_top
    if SHORT and CAUSAL:  # a row may see nothing of a tile above the diagonal, and have seen nothing before
        base = tl.where(new_top == float("-inf"), 0.0, new_top)
    p = tl.math.exp2(score * scale_log2 - base[:, None])
    shrink = tl.math.exp2(top - base)
    total = total * shrink + tl.sum(p, 1)
    v_tile = _tile(v, start, count, kv_head, HEADS_KV, KEYS, DV, TMA)
    acc = _add_dot(acc * shrink[:, None], p.to(v_tile.dtype), v_tile, PRECISION)
    return acc, new_top, total


@triton.jit
def forward_kernel(q, k, v, out, lse, tile_start, tile_count, tile_block, whole_ptr, whole_start, short_ptr, short_start, short_count,
                   scale_log2, tokens, blocks, HEADS_Q: tl.constexpr, HEADS_KV: tl.constexpr, PATTERNS: tl.constexpr, PACK: tl.constexpr,
                   ROWS: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, ALL_WHOLE: tl.constexpr,
                   CAUSAL: tl.constexpr, TMA: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    tile, first_head = tl.program_id(0), tl.program_id(1) * PACK
    M: tl.constexpr = ROWS * PACK
    kv_head = first_head // (HEADS_Q // HEADS_KV)
    start, count = tl.load(tile_start + tile), tl.load(tile_count + tile)
    number = tl.load(tile_block + tile) + (kv_head * blocks if PATTERNS > 1 else 0)
    place = tl.arange(0, M)
    row = start + place // PACK
    inside = place // PACK < count
    q_tile = tl.load(q + _packed(start, first_head, HEADS_Q, PACK, M, D), mask=inside[:, None], other=0.0)
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, DV], tl.float32)
    for i in range(tl.load(whole_ptr + number), tl.load(whole_ptr + number + 1)):
        acc, top, total = _attend(acc, top, total, q_tile, k, v, tl.load(whole_start + i), KEYS, row, kv_head, scale_log2, HEADS_KV,
                                  KEYS, D, DV, False, CAUSAL, TMA, PRECISION)  # fmt: skip
    if not ALL_WHOLE:
        for i in range(tl.load(short_ptr + number), tl.load(short_ptr + number + 1)):
            acc, top, total = _attend(acc, top, total, q_tile, k, v, tl.load(short_start + i), tl.load(short_count + i), row,
                                      kv_head, scale_log2, HEADS_KV, KEYS, D, DV, True, CAUSAL, TMA, PRECISION)  # fmt: skip
    seen = tl.where(total == 0.0, 1.0, total)
    tl.store(out + _packed(start, first_head, HEADS_Q, PACK, M, DV), (acc / seen[:, None]).to(out.dtype.element_ty), mask=inside[:, None])
    head = first_head + place % PACK
    tl.store(lse + head.to(tl.int64) * tokens + row, (top + tl.math.log2(seen)) * LN2, mask=inside)


@triton.jit
def delta_kernel(out, dout, delta, tokens, HEADS: tl.constexpr, ROWS: tl.constexpr, DV: tl.constexpr):
    """delta = sum over D of out * dout, fp32 [heads, tokens]."""
    row, head = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    inside = row < tokens
    offset = (row.to(tl.int64) * HEADS + head)[:, None] * DV + tl.arange(0, DV)[None, :]
    left = tl.load(out + offset, mask=inside[:, None], other=0.0).to(tl.float32)
    right = tl.load(dout + offset, mask=inside[:, None], other=0.0).to(tl.float32)
    tl.store(delta + head.to(tl.int64) * tokens + row, tl.sum(left * right, 1), mask=inside)


@triton.jit
def _query_gradient(dq, q, dout, lse_log2, delta, k, v, start, count, row, kv_head, scale_log2, HEADS_KV: tl.constexpr,
                    KEYS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, SHORT: tl.constexpr, CAUSAL: tl.constexpr, TMA: tl.constexpr,
                    PRECISION: tl.constexpr):  # fmt: skip
    k_tile = _tile(k, start, count, kv_head, HEADS_KV, KEYS, D, TMA)
    v_tile = _tile(v, start, count, kv_head, HEADS_KV, KEYS, DV, TMA)
    score = _dot(q, tl.trans(k_tile), PRECISION)
    p = tl.math.exp2(score * scale_log2 - lse_log2[:, None])
    if SHORT:
        p = tl.where(_seen(start, count, row, KEYS, CAUSAL), p, 0.0)
    dp = _dot(dout, tl.trans(v_tile), PRECISION)
    ds = p * (dp - delta[:, None])
    return _add_dot(dq, ds.to(k_tile.dtype), k_tile, PRECISION)


@triton.jit
def dq_kernel(q, k, v, dout, lse, delta, dq, tile_start, tile_count, tile_block, whole_ptr, whole_start, short_ptr, short_start,
              short_count, scale, scale_log2, tokens, blocks, HEADS_Q: tl.constexpr, HEADS_KV: tl.constexpr, PATTERNS: tl.constexpr,
              PACK: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, ALL_WHOLE: tl.constexpr,
              CAUSAL: tl.constexpr, TMA: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    tile, first_head = tl.program_id(0), tl.program_id(1) * PACK
    M: tl.constexpr = ROWS * PACK
    kv_head = first_head // (HEADS_Q // HEADS_KV)
    start, count = tl.load(tile_start + tile), tl.load(tile_count + tile)
    number = tl.load(tile_block + tile) + (kv_head * blocks if PATTERNS > 1 else 0)
    place = tl.arange(0, M)
    row = start + place // PACK
    inside = place // PACK < count
    offset = _packed(start, first_head, HEADS_Q, PACK, M, D)
    q_tile = tl.load(q + offset, mask=inside[:, None], other=0.0)
    dout_tile = tl.load(dout + _packed(start, first_head, HEADS_Q, PACK, M, DV), mask=inside[:, None], other=0.0)
    at = (first_head + place % PACK).to(tl.int64) * tokens + start + place // PACK
    lse_log2 = tl.load(lse + at, mask=inside, other=float("inf")) * LOG2E
    delta_tile = tl.load(delta + at, mask=inside, other=0.0)
    acc = tl.zeros([M, D], tl.float32)
    for i in range(tl.load(whole_ptr + number), tl.load(whole_ptr + number + 1)):
        acc = _query_gradient(acc, q_tile, dout_tile, lse_log2, delta_tile, k, v, tl.load(whole_start + i), KEYS, row, kv_head, scale_log2,
                              HEADS_KV, KEYS, D, DV, False, CAUSAL, TMA, PRECISION)  # fmt: skip
    if not ALL_WHOLE:
        for i in range(tl.load(short_ptr + number), tl.load(short_ptr + number + 1)):
            acc = _query_gradient(acc, q_tile, dout_tile, lse_log2, delta_tile, k, v, tl.load(short_start + i),
                                  tl.load(short_count + i), row, kv_head, scale_log2, HEADS_KV, KEYS, D, DV, True, CAUSAL, TMA,
                                  PRECISION)  # fmt: skip
    tl.store(dq + offset, (acc * scale).to(dq.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _key_gradient(dk, dv, k, v, q, dout, lse, delta, start, count, key, head, scale_log2, tokens, HEADS_Q: tl.constexpr,
                  ROWS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, CAUSAL: tl.constexpr, TMA: tl.constexpr,
                  PRECISION: tl.constexpr):  # fmt: skip
    q_tile = _tile(q, start, count, head, HEADS_Q, ROWS, D, TMA)
    place = tl.arange(0, ROWS)
    at = head.to(tl.int64) * tokens + start + place
    # rows behind the end of the tile belong to other lists: an infinite lse makes their probability 0
    lse_log2 = tl.load(lse + at, mask=place < count, other=float("inf")) * LOG2E
    score = _dot(k, tl.trans(q_tile), PRECISION)
    p = tl.math.exp2(score * scale_log2 - lse_log2[None, :])
    if CAUSAL:
        p = tl.where(key[:, None] <= (start + place)[None, :], p, 0.0)
    dout_tile = _tile(dout, start, count, head, HEADS_Q, ROWS, DV, TMA)
    dv = _add_dot(dv, p.to(dout_tile.dtype), dout_tile, PRECISION)
    dp = _dot(v, tl.trans(dout_tile), PRECISION)
    ds = p * (dp - tl.load(delta + at, mask=place < count, other=0.0)[None, :])
    dk = _add_dot(dk, ds.to(q_tile.dtype), q_tile, PRECISION)
    return dk, dv


@triton.jit
def dkv_kernel(q, k, v, dout, lse, delta, dk, dv, tile_start, tile_count, tile_block, whole_ptr, whole_start, short_ptr, short_start,
               short_count, scale, scale_log2, tokens, blocks, HEADS_Q: tl.constexpr, HEADS_KV: tl.constexpr, PATTERNS: tl.constexpr,
               ROWS: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, ALL_WHOLE: tl.constexpr, CAUSAL: tl.constexpr,
               TMA: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """One key tile of one KV head: the sum over the query heads of its group and over the rows that see it, in a fixed order."""
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    GROUP: tl.constexpr = HEADS_Q // HEADS_KV
    start, count = tl.load(tile_start + tile), tl.load(tile_count + tile)
    number = tl.load(tile_block + tile) + (kv_head * blocks if PATTERNS > 1 else 0)
    place = tl.arange(0, KEYS)
    inside = place < count
    k_tile = _tile(k, start, count, kv_head, HEADS_KV, KEYS, D, False)
    v_tile = _tile(v, start, count, kv_head, HEADS_KV, KEYS, DV, False)
    dk_acc, dv_acc = tl.zeros([KEYS, D], tl.float32), tl.zeros([KEYS, DV], tl.float32)
    for member in range(GROUP):
        head = kv_head * GROUP + member
        for i in range(tl.load(whole_ptr + number), tl.load(whole_ptr + number + 1)):
            dk_acc, dv_acc = _key_gradient(dk_acc, dv_acc, k_tile, v_tile, q, dout, lse, delta, tl.load(whole_start + i), ROWS,
                                           start + place, head, scale_log2, tokens, HEADS_Q, ROWS, D, DV, False, TMA,
                                           PRECISION)  # fmt: skip
        if not ALL_WHOLE:
            for i in range(tl.load(short_ptr + number), tl.load(short_ptr + number + 1)):
                dk_acc, dv_acc = _key_gradient(dk_acc, dv_acc, k_tile, v_tile, q, dout, lse, delta, tl.load(short_start + i),
                                               tl.load(short_count + i), start + place, head, scale_log2, tokens, HEADS_Q, ROWS,
                                               D, DV, CAUSAL, TMA, PRECISION)  # fmt: skip
    row = ((start + place).to(tl.int64) * HEADS_KV + kv_head)[:, None]
    tl.store(dk + row * D + tl.arange(0, D)[None, :], (dk_acc * scale).to(dk.dtype.element_ty), mask=inside[:, None])
    tl.store(dv + row * DV + tl.arange(0, DV)[None, :], dv_acc.to(dv.dtype.element_ty), mask=inside[:, None])
