"""The loops of FlashAttention-4's Hopper backward over the query tiles of a key tile, for joined heads: partial and full tiles of one head,
then those of the next. The library's loops walk over all partial tiles first, and so come twice to each head.

The lists are those of one head, which all joined heads share. Every list that is walked has a tile.

This file imports the library at the top and is itself imported only when a kernel is prepared. It has no postponed annotations:
the library's compiler reads them.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call,untyped-decorator"

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import cutlass
import cutlass.cute as cute
import flash_attn.cute.block_sparse_utils as sparse_loops

from longca.kernels.backends.fa4._joined_finish import count_additions

heads_of_walk: ContextVar[int] = ContextVar("heads_of_walk", default=0)  # 0: the library's own loops
masking_tensors: ContextVar[int] = ContextVar("masking_tensors", default=0)  # auxiliary tensors of the mask; 0: all of them
counters_of_walk: ContextVar[Any] = ContextVar("counters_of_walk", default=None)


@cute.jit
def _load(
    lists: Any,
    batch: Any,
    head: Any,
    n_block: Any,
    state_Q: Any,
    state_dO: Any,
    pipeline_Q: Any,
    pipeline_dO: Any,
    load_K: Any,
    load_V: Any,
    load_Q: Any,
    load_dO: Any,
    load_LSE: Any,
    load_dPsum: Any,
    bytes_K: Any,
    bytes_V: Any,
    same_stages: cutlass.Constexpr,
    heads: cutlass.Constexpr,
) -> Any:
    partial_count, partial_index, full_count, full_index, *_ = lists
    partial_tiles, full_tiles = partial_count[batch, head, n_block], full_count[batch, head, n_block]
    has_keys = False
    for joined in cutlass.range(heads, unroll=1):
        for number in cutlass.range(partial_tiles, unroll=1):
            tile = partial_index[batch, head, n_block, number]
            state_Q, state_dO = sparse_loops._load_q_do_block_sm90(
                (tile, joined),
                state_Q,
                state_dO,
                pipeline_Q,
                pipeline_dO,
                load_K,
                load_V,
                load_Q,
                load_dO,
                load_LSE,
                load_dPsum,
                bytes_K,
                bytes_V,
                same_stages,
                load_kv=not has_keys,
            )
            has_keys = True
        for number in cutlass.range(full_tiles, unroll=1):
            tile = full_index[batch, head, n_block, number]
            state_Q, state_dO = sparse_loops._load_q_do_block_sm90(
                (tile, joined),
                state_Q,
                state_dO,
                pipeline_Q,
                pipeline_dO,
                load_K,
                load_V,
                load_Q,
                load_dO,
                load_LSE,
                load_dPsum,
                bytes_K,
                bytes_V,
                same_stages,
                load_kv=not has_keys,
            )
            has_keys = True
    return state_Q, state_dO


@cute.jit
def _multiply(
    lists: Any,
    batch: Any,
    head: Any,
    n_block: Any,
    state_Q: Any,
    state_dO: Any,
    multiply_tile: Any,
    mask_partial: Any,
    mask_full: Any,
    heads: cutlass.Constexpr,
) -> Any:
    partial_count, partial_index, full_count, full_index, *_ = lists
    partial_tiles, full_tiles = partial_count[batch, head, n_block], full_count[batch, head, n_block]
    adds = False  # to dk and dv, which the first tile overwrites
    for _joined in cutlass.range(heads, unroll=1):
        for number in cutlass.range(partial_tiles, unroll=1):
            tile = partial_index[batch, head, n_block, number]
            state_Q, state_dO = multiply_tile(tile, state_Q, state_dO, mask_fn=mask_partial, dKV_accumulate=adds)
            adds = True
        for number in cutlass.range(full_tiles, unroll=1):
            tile = full_index[batch, head, n_block, number]
            state_Q, state_dO = multiply_tile(tile, state_Q, state_dO, mask_fn=mask_full, dKV_accumulate=adds)
            adds = True
    return state_Q, state_dO


@cute.jit
def _store(lists: Any, batch: Any, head: Any, n_block: Any, store_tile: Any, heads: cutlass.Constexpr) -> None:
    partial_count, partial_index, full_count, full_index, *_ = lists
    partial_tiles, full_tiles = partial_count[batch, head, n_block], full_count[batch, head, n_block]
    for joined in cutlass.range(heads, unroll=1):
        for number in cutlass.range(partial_tiles, unroll=1):
            store_tile((partial_index[batch, head, n_block, number], joined))
        for number in cutlass.range(full_tiles, unroll=1):
            store_tile((full_index[batch, head, n_block, number], joined))


def with_loads(original: Callable[..., Any]) -> Callable[..., Any]:
    def produce(*arguments: Any, Q_stage_eq_dO_stage: bool, **options: Any) -> Any:
        if heads := heads_of_walk.get():
            return _load(*arguments, Q_stage_eq_dO_stage, heads)
        return original(*arguments, Q_stage_eq_dO_stage=Q_stage_eq_dO_stage, **options)

    return produce


def with_products(original: Callable[..., Any]) -> Callable[..., Any]:
    def consume(*arguments: Any, **options: Any) -> Any:
        heads = heads_of_walk.get()
        if not heads:
            return original(*arguments, **options)
        *where, multiply_tile, mask, mask_mod = arguments
        aux_data, masking = options["aux_data"], masking_tensors.get()
        if masking:
            aux_data = type(aux_data)(aux_data.tensors[:masking], None)
        masks = dict(batch_idx=where[1], head_idx=where[2], n_block=where[3], thr_mma=options["thr_mma_SdP"])
        masks |= dict(mask_seqlen=True, mask_causal=False, aux_data=aux_data, fastdiv_mods=options["fastdiv_mods"])
        mask_full = partial(mask.apply_mask, **masks)
        return _multiply(*where, multiply_tile, partial(mask_full, mask_mod=mask_mod), mask_full, heads)

    return consume


def with_stores(original: Callable[..., Any]) -> Callable[..., Any]:
    def store(*arguments: Any, **options: Any) -> Any:
        heads = heads_of_walk.get()
        if not heads:
            return original(*arguments, **options)
        *where, sums_here, sums_there = arguments
        sizes = options["num_dQ_warp_groups"], options["num_threads_per_warp_group"], options["tma_copy_bytes_dQ"]

        def store_tile(tile: Any) -> None:
            sparse_loops._store_one_dQaccum_sm90(tile, sums_here, sums_there, *sizes)

        _store(*where, store_tile, heads)
        if counters_of_walk.get() is not None:
            count_additions(*where, counters_of_walk.get(), heads)

    return store
