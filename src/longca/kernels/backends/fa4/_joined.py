"""`fa4:joined`: the forward of fa4:bands, and a backward in which a thread block takes several query heads of one KV head in turn.

With n heads joined, keys and values are loaded, and the fp32 sums of dk and dv added, n times less often; where all query heads of a KV
head are joined, dk and dv need no sums. The library's host function knows no joined heads; this one replaces it. The library's kernels
before (delta, base-2 lse, cleared sums of dq) and after (sums to dq, dk and dv) are called as they are; its main kernel gets other layouts.

No other label chooses it until it has run on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from longca.kernels.backends.fa4._bands import BandAttention, Tuning, backward_rows
from longca.kernels.backends.fa4._joined_layout import HEAD_BITS, HEADS, TILES, UNIT, WHOLE_HEADS
from longca.kernels.lower import upload

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from longca.kernels.base import Case, Gradients
    from longca.masks import Mask
    from longca.masks.tiles import TileLists

KEYS, HALF_KEYS = 128, 64  # of a tile
MULTIPROCESSORS = 132  # of an H200
LONGEST_SHARE, LONGEST_SHARE_IN_FRONT = 0.1, 0.5  # of the whole time, that a thread block may take: anywhere, or where the longest begin
ARCH, WARP_GROUP = 90, 128  # threads


@dataclass(frozen=True)
class Joining:
    """Options to try; None leaves the choice to this adapter."""

    joined: int | None = None  # query heads of one KV head that a thread block takes
    order: str = (
        TILES  # of query tiles: tile 0 of each head, then tile 1 of each, ...; HEADS: partial tiles of head 0, of head 1, ..., then
    )
    # full tiles of head 0, of head 1, ...; WHOLE_HEADS: partial and full tiles of head 0, then of head 1, ...
    heavy_first: bool = False  # thread blocks of the key tiles with the most queries begin first, those of all heads
    documents_first: bool = False  # thread blocks of the longest documents begin first, those of a head and document together
    keys: int = KEYS  # of a tile: 128, or 64
    finishes: str = ""  # dq inside the main kernel: "clear", "keep"


def heads_to_join(query_tiles: NDArray[np.int64], heads_q: int, group: int, longest: float = LONGEST_SHARE) -> int:
    """Returns how many query heads of one KV head a thread block takes: as many as leave the longest block short beside the whole.

    `query_tiles` are the query tiles of each key tile.
    """
    whole = float(query_tiles.sum()) * heads_q / MULTIPROCESSORS
    divisors = [heads for heads in range(group, 0, -1) if group % heads == 0]
    return next((heads for heads in divisors if int(query_tiles.max(initial=0)) * heads <= longest * whole), 1)


def heavy_first(query_tiles: NDArray[np.int64], heads: int) -> NDArray[np.int32]:
    """Returns the thread blocks as key tile + 2^16 * head, all heads of a key tile together, key tiles with the most query tiles first.
    Tiles of about the same work stay in order: neighbours read the same queries."""
    work = np.floor(2 * np.log2(np.maximum(query_tiles, 1)))
    tile = np.argsort(-work, kind="stable")
    return np.asarray(tile[:, None] + (np.arange(heads) << HEAD_BITS), np.int32).ravel()


def documents(lists: TileLists) -> NDArray[np.int64]:
    """Returns a number for each key tile. Neighbours with the same number share more than half of their query tiles, as those of one
    document do, or of one window."""
    both = [(lists.full_ptr, lists.full_idx), (lists.partial_ptr, lists.partial_idx)]
    tiles = [np.concatenate([index[ptr[key] : ptr[key + 1]] for ptr, index in both]) for key in range(len(lists.full_ptr) - 1)]
    shared = [len(np.intersect1d(one, other, assume_unique=True)) for one, other in pairwise(tiles)]
    begins = [2 * size <= max(len(one), len(other)) for size, (one, other) in zip(shared, pairwise(tiles), strict=True)]
    return np.cumsum([False, *begins])


def documents_first(query_tiles: NDArray[np.int64], document: NDArray[np.int64], heads: int) -> NDArray[np.int32]:
    """Returns the thread blocks as key tile + 2^16 * head: the document with the longest list of query tiles first, there one head after
    the other, and there the key tiles in order. So blocks that run at the same time still share their queries."""
    longest = np.zeros(len(query_tiles), np.int64)
    np.maximum.at(longest, document, query_tiles)
    tile, head = (numbers.ravel() for numbers in np.meshgrid(np.arange(len(query_tiles)), np.arange(heads)))
    order = np.lexsort((tile, head, document[tile], -longest[document[tile]]))
    return np.asarray(tile + (head << HEAD_BITS), np.int32)[order]


def with_conversions(
    blocks: NDArray[np.int32], lists: TileLists, joined: int, heads_q: int, tiles: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Returns the thread blocks with those that convert UNIT query tiles of a head, some time after the last block that adds to them; and
    the query tiles in the order in which they are complete, from which units are cut. The key tile of a converting block is behind the last
    one, and its head is the number of the unit. The end is filled with units that do not exist."""
    key_tiles, units = len(lists.full_ptr) - 1, -(-tiles // UNIT)
    place = np.empty((heads_q // joined, key_tiles), np.int64)
    place[blocks >> HEAD_BITS, blocks & ((1 << HEAD_BITS) - 1)] = np.arange(len(blocks))
    last_key = np.full(tiles, -1, np.int64)  # of head 0: the place of the last block that adds to a tile
    for ptr, index in ((lists.full_ptr, lists.full_idx), (lists.partial_ptr, lists.partial_idx)):
        np.maximum.at(last_key, index, place[0, np.repeat(np.arange(key_tiles), np.diff(ptr))])
    turns = np.argsort(last_key, kind="stable")
    key_of_place = np.empty(len(blocks), np.int64)
    key_of_place[place[0]] = np.arange(key_tiles)
    last_turn = np.minimum(np.arange(1, units + 1) * UNIT, tiles) - 1
    last = place[:, key_of_place[np.maximum(last_key[turns[last_turn]], place[0].min())]]
    item = np.arange(heads_q * units)
    after = last[item // units // joined, item % units] + MULTIPROCESSORS * 3 // 2
    missing = -(len(blocks) + len(item)) % key_tiles
    numbers = np.concatenate([blocks, key_tiles + (np.arange(len(item) + missing) << HEAD_BITS)])
    when = np.concatenate([np.arange(len(blocks)), after, np.full(missing, len(blocks) + len(item) + MULTIPROCESSORS * 2)])
    return np.asarray(numbers[np.argsort(when, kind="stable")], np.int32), np.asarray(turns, np.int32)


def with_joined_heads(lists: TileLists, heads: int, tiles: int = 0) -> TileLists:
    """Returns the lists of query tiles for rows in which tile 0 of each head comes first, then tile 1 of each head, and so on; or, if the
    number of `tiles` of a head is given, for rows in which all tiles of a head come before those of the next."""

    def several(ptr: NDArray[np.int32], index: NDArray[np.int32]) -> NDArray[np.int32]:
        if not tiles:
            return np.asarray(index[:, None] * heads + np.arange(heads), np.int32).ravel()
        length = np.repeat(np.diff(ptr), np.diff(ptr))
        place = np.arange(len(index)) + np.repeat(ptr[:-1], np.diff(ptr)) * (heads - 1)  # of head 0
        joined = np.empty(len(index) * heads, np.int32)
        for head in range(heads):
            joined[place + head * length] = index + head * tiles
        return joined

    return type(lists)(
        full_ptr=lists.full_ptr * heads,
        full_idx=several(lists.full_ptr, lists.full_idx),
        partial_ptr=lists.partial_ptr * heads,
        partial_idx=several(lists.partial_ptr, lists.partial_idx),
    )


class JoinedAttention(BandAttention):
    def __init__(self, mask: Mask, case: Case, joining: Joining) -> None:
        self.joining, self.heads, self.order = joining, 1, TILES
        super().__init__(mask, case, Tuning())

    def _lower_backward(self, mask: Mask) -> dict[str, Any]:
        from longca.kernels.backends.fa4 import _joined_main

        case, joining = self.case, self.joining
        self.config = self._config()
        tile = self.config.m_block_size, self.config.n_block_size
        lists = mask.tiles(*tile).by_col()
        lengths = (np.diff(lists.full_ptr) + np.diff(lists.partial_ptr)).astype(np.int64)
        longest = LONGEST_SHARE_IN_FRONT if joining.heavy_first or joining.documents_first else LONGEST_SHARE
        self.heads = gcd(joining.joined, case.group) if joining.joined else heads_to_join(lengths, case.heads_q, case.group, longest)
        options = self._intervals(mask, tile, anchors_are_keys=self.config.SdP_swapAB)
        if not self.config.SdP_swapAB and mask.seqlen_k % tile[1] == 0:
            options["aux_tensors"] *= 2  # full tiles need no test of the end (see `_intervals.bounds_tensors`)
        self.order = joining.order if self.heads > 1 or joining.finishes else TILES
        options["mask_mod"] = _joined_main.JoinedIntervals(options["mask_mod"], self.heads, self.order)
        in_lists = 1 if self.order == WHOLE_HEADS else self.heads
        finishes = bool(joining.finishes)
        if finishes:  # a list without tiles, behind the last: that of the thread blocks that convert dq
            ends = {name: np.append(getattr(lists, name), getattr(lists, name)[-1]) for name in ("full_ptr", "partial_ptr")}
            lists_here = type(lists)(full_idx=lists.full_idx, partial_idx=lists.partial_idx, **ends)
        else:
            lists_here = lists
        options["lists"], options["pattern"] = self.library.normalize_block_sparse_config_bwd(
            self._lists(with_joined_heads(lists_here, in_lists, case.seqlen_q // tile[0] if self.order == HEADS else 0), tile, packed=False),
            batch_size=1,
            num_head=case.heads_q // self.heads,
            seqlen_q=case.seqlen_q * in_lists,
            seqlen_k=(-(-case.seqlen_k // tile[1]) + finishes) * tile[1],
            block_size=tile,
            q_subtile_factor=1,
        )
        self.masking, self.kept = len(options["aux_tensors"]), None
        tiles = case.seqlen_q // tile[0]
        counts = np.bincount(np.concatenate([lists.full_idx, lists.partial_idx]), minlength=tiles).astype(np.int32)
        self.expected, self.covers = upload(counts, case.device), bool(counts.all())
        self.counters = upload(np.zeros(case.heads_q * tiles, np.int32), case.device)
        for tensor in (self.expected, self.counters):
            tensor.__leading_dim__, tensor.__assumed_align__ = 0, 4  # type: ignore[attr-defined]
        return options | dict(order=self._order(lists, lengths))

    def _order(self, lists: TileLists, lengths: NDArray[np.int64]) -> Tensor | None:
        """Returns the thread blocks in the order in which they begin, or None for that of the library."""
        blocks, heads = None, self.case.heads_q // self.heads
        if self.joining.heavy_first:
            blocks = heavy_first(lengths, heads)
        elif self.joining.documents_first:
            blocks = documents_first(lengths, documents(lists), heads)
        if self.joining.finishes and blocks is not None:
            blocks, turns = with_conversions(blocks, lists, self.heads, self.case.heads_q, self.case.seqlen_q // self.config.m_block_size)
            self.turns = upload(turns, self.case.device)
            self.turns.__leading_dim__, self.turns.__assumed_align__ = 0, 4  # type: ignore[attr-defined]
        return None if blocks is None else upload(blocks, self.case.device)

    def _config(self) -> Any:
        size = self.case.head_dim
        if self.joining.keys == HALF_KEYS:  # the library's table has such tiles only for head size 256
            no_swaps = dict(SdP_swapAB=False, dKV_swapAB=False, dQ_swapAB=False)
            stages = dict(num_stages_Q=2, num_stages_dO=2, num_stages_PdS=2)
            return self.library.BwdConfig(64, HALF_KEYS, **stages, **no_swaps, AtomLayoutMSdP=1, AtomLayoutNdKV=1, AtomLayoutMdQ=1)
        return self.library._tile_size_bwd_sm90(size, size, False, False, sparse_block_size_q=backward_rows(self.case))

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        import torch

        assert lse_HL is not None
        case, config = self.case, self.config
        dout, q, k, v, out, lse = (
            self.library.maybe_contiguous(tensor)[None] for tensor in (dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD, lse_HL)
        )
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        rows, keys = (
            -(-length // tile) * tile for length, tile in ((case.seqlen_q, config.m_block_size), (case.seqlen_k, config.n_block_size))
        )
        delta, lse2 = (q.new_empty(1, case.heads_q, rows, dtype=torch.float32) for _ in range(2))
        finishes = self.joining.finishes
        sums_q = self._sums(q, rows)
        self.aux = list(self.backward_options["aux_tensors"])
        if finishes:
            if not self.covers:
                dq.zero_()
            target = dq[0]
            target.__leading_dim__, target.__assumed_align__ = 2, 16
            self.aux += [target, self.expected, self.turns, self.counters]
        sums_kv, has_sums = [dk, dv], self.heads < case.group
        if has_sums:
            sums_kv = [k.new_zeros(1, case.heads_kv, keys * case.head_dim, dtype=torch.float32) for _ in range(2)]
        # all clearing comes before these two kernels, the second of which may start while the first ends
        self._prepare(out, dout, lse, delta, lse2, sums_q)
        self._main(q, k, v, dout, lse2, delta, sums_q, *sums_kv)
        if not finishes:
            self._convert(sums_q, dq, case.softmax_scale, config.m_block_size, config.AtomLayoutMdQ, config.dQ_swapAB)
        if has_sums:
            for sums, result, scale in ((sums_kv[0], dk, case.softmax_scale), (sums_kv[1], dv, 1.0)):
                self._convert(sums, result, scale, config.n_block_size, config.AtomLayoutNdKV, config.dKV_swapAB)
        return dq[0], dk[0], dv[0]

    def _sums(self, q: Tensor, rows: int) -> Tensor:
        import torch

        shape = 1, self.case.heads_q, rows * self.case.head_dim
        if self.joining.finishes != "keep" or self.library.is_fake_mode():
            return q.new_empty(*shape, dtype=torch.float32)
        if self.kept is None:
            self.kept = q.new_zeros(*shape, dtype=torch.float32)
        return self.kept

    @property
    def _dtype(self) -> Any:
        import torch

        return self.library.torch2cute_dtype_map[{"bf16": torch.bfloat16, "fp16": torch.float16}[self.case.dtype]]

    def _prepare(self, out: Tensor, dout: Tensor, lse: Tensor, delta: Tensor, lse2: Tensor, sums_q: Tensor) -> None:
        """Computes delta and the base-2 lse, and clears the sums of dq, by the library's kernel."""
        size = self.case.head_dim
        self.library._bwd_preprocess(
            *(out, dout, delta, lse, lse2, None if self.joining.finishes == "keep" else sums_q),
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
        lists = (*options["lists"][:4], None, None, None, None)
        rest = (self.case.softmax_scale, library.AuxData(self.aux, None), lists, options["order"], self._counters())
        kept, key = COMPILED.of(library), self._key(*tensors)
        if key not in kept:
            kept[key] = self._compile(*tensors)
        if not library.is_fake_mode():
            kept[key](*(tensor.detach() for tensor in tensors), *rest)

    def _key(self, *tensors: Tensor) -> tuple[Any, ...]:
        """Returns all that decides what is compiled. The stride of a dimension of 1 means nothing, and the compiler may keep it."""
        from longca.kernels.backends.fa4 import _joined_main

        library, case, options = self.library, self.case, self.backward_options
        single = tuple(tuple(size == 1 for size in tensor.shape) for tensor in (*tensors, *options["lists"][:4]))
        masked = library.utils.hash_callable(options["mask_mod"]), library.get_aux_tensor_metadata(self.aux)
        shape = case.dtype, case.head_dim, case.group, self.heads, self.config.n_block_size
        return (_joined_main.SOURCE, *shape, self.order, self.joining.finishes, options["order"] is None, *masked, options["pattern"], single)

    def _compile(self, *tensors: Tensor) -> Any:
        from longca.kernels.backends.fa4 import _joined_main

        library, case, config, options = self.library, self.case, self.config, self.backward_options
        kernel = _joined_main.JoinedBackward(
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
        kernel.joined, kernel.order, kernel.finishes, kernel.masking = self.heads, self.order, self.joining.finishes, self.masking
        aux = library.AuxData([library.to_cute_aux_tensor(tensor) for tensor in self.aux], None)
        order = None if options["order"] is None else library.to_cute_tensor(options["order"], assumed_align=4)
        lists = library.to_cute_block_sparse_tensors(options["lists"])
        counters = self._counters()
        counters = None if counters is None else library.to_cute_tensor(counters, assumed_align=4, leading_dim=0)
        return _joined_main.compiled(kernel, *map(library.to_cute_tensor, tensors), case.softmax_scale, aux, lists, order, counters)

    def _counters(self) -> Tensor | None:
        """Returns the counters as [tiles, 1, heads, 1]."""
        if not self.joining.finishes:
            return None
        return self.counters.view(1, self.case.heads_q, 1, -1).permute(3, 2, 1, 0)


class _Compiled:
    """The compiled kernels, which the library keeps on disk where it keeps its own."""

    def __init__(self) -> None:
        self._kept: Any = None

    def of(self, library: Any) -> Any:
        if self._kept is None:
            self._kept = library.get_jit_cache("longca_joined")
        return self._kept


COMPILED = _Compiled()
