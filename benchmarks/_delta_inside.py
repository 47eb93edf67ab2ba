"""A variant of band_cute's main kernel that computes delta itself, for `delta_loads.py`.

The load of `out` takes the place of that of delta: each tile of it comes with the tile of dout, into memory behind that of dout. The warp
that adds to dq, which mostly waits, computes delta of the next tile from the two, a row per lane, and wakes each warp group of the products
by a named barrier. With two warps, the one that loads computes the other half of the rows. The descriptor of dout serves out as well: both
lie in one tensor, dout in the first half of the heads.

This file imports the library at the top. It has no postponed annotations: the library's compiler reads them.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc,no-untyped-call,untyped-decorator"

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import cutlass
import cutlass.cute as cute
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90
from flash_attn.cute.named_barrier import NamedBarrierBwd
from quack import copy_utils

from longca.kernels.backends.band_cute import _main, _walk

READY = max(NamedBarrierBwd) + 1  # the first of the named barriers that say that delta is there: one per stage and warp group
NAMED_BARRIERS = 16  # that a thread block has
PRODUCER_REGISTERS, PRODUCT_REGISTERS = 40, 232  # the library has 24 and 240
CHUNK, CHAINS = 8, 2  # elements that a lane loads at a time, and sums per row


class _Bytes(dict[str, int]):
    """Bytes of loads by name. In place of delta, a tile of out is loaded, which is as large as one of dout."""

    def __setitem__(self, name: str, value: int) -> None:
        super().__setitem__(name, self["dO"] if name == "dPsum" else value)


class _Awaited:
    """The part of delta that a thread reads, stage by stage; it waits until that of the stage is there."""

    def __init__(self, delta: Any, kernel: "DeltaInside", warp_group: Any) -> None:
        self.delta, self.kernel, self.warp_group = delta, kernel, warp_group

    def __getitem__(self, place: Any) -> Any:
        _, stage = place
        cute.arch.barrier(**self.kernel.ready(stage, self.warp_group))
        return self.delta[place]


class DeltaInside(_main.JoinedBackward):  # type: ignore[misc]
    """`joined` heads as usual; mdO has the heads of dout, then those of out. `warps` compute delta."""

    warps = 1

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "num_producer_regs":
            value = PRODUCER_REGISTERS
        elif name.startswith("num_mma_regs"):
            value = PRODUCT_REGISTERS
        elif name == "tma_copy_bytes":
            value = _Bytes(value)
        super().__setattr__(name, value)

    def _get_shared_storage_cls(self) -> Any:
        """With twice the room for tiles of dout: those of out lie behind."""
        assert READY + self.dO_stage * self.num_wg_mma <= NAMED_BARRIERS
        usual = self.dO_stage
        self.dO_stage = 2 * usual
        self._setup_attributes()
        twice = self.sdO_layout
        self.dO_stage = usual
        self._setup_attributes()
        once, self.sdO_layout = self.sdO_layout, twice
        storage = super()._get_shared_storage_cls()
        self.sdO_layout = once
        return storage

    def load(self, mQ: Any, mK: Any, mV: Any, mdO: Any, *others: Any) -> None:
        _, _, _, _, _, sdO, _, sdPsum, _, _, _, atom_dO, _, pipeline_dO, *_ = others
        self.shared = mdO, atom_dO, sdO, sdPsum, pipeline_dO
        FlashAttentionBackwardSm90.load(self, mQ, mK, mV, mdO, *others)

    def behind(self, sdO: Any) -> Any:
        """The tiles of out."""
        return cute.make_tensor(sdO.iterator + self.tile_m * self.tile_hdimv * self.dO_stage, sdO.layout)

    def mma_one_m_block(self, m_block: Any, state_Q: Any, state_dO: Any, tLSEsdPsum: Any, warp_group_idx: Any, **options: Any) -> Any:
        delta = _Awaited(tLSEsdPsum, self, warp_group_idx)
        return FlashAttentionBackwardSm90.mma_one_m_block(
            self, m_block, state_Q, state_dO, tLSEsdPsum=delta, warp_group_idx=warp_group_idx, **options
        )

    def ready(self, stage: Any, warp_group: Any) -> dict[str, Any]:
        """The named barrier by which a warp group learns that delta of a stage is there, for all threads that meet there."""
        return {"barrier_id": READY + stage * self.num_wg_mma + warp_group, "number_of_threads": 128 + self.warps * cute.arch.WARP_SIZE}

    @cute.jit
    def compute_delta(self, stage: Any, phase: Any, part: cutlass.Constexpr) -> None:
        """Computes a warp's part of delta in this stage, once dout and out are there, and wakes the warp groups of the products."""
        _, _, sdO, sdPsum, pipeline_dO = self.shared
        pipeline_dO.consumer_wait_w_index_phase(stage, phase)
        lane = cute.arch.lane_idx()
        atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), self.dtype, num_bits_per_copy=CHUNK * self.dtype.width)
        rows = cute.make_layout((cute.arch.WARP_SIZE, 1))
        mine = cute.make_tiled_copy_tv(atom, rows, cute.make_layout((1, CHUNK))).get_slice(lane)
        here_dO, here_O = mine.partition_S(sdO[None, None, stage]), mine.partition_S(self.behind(sdO)[None, None, stage])
        count = self.tile_m // (self.warps * cute.arch.WARP_SIZE)
        first = part * count
        sums = cute.make_rmem_tensor((count, CHAINS), cutlass.Float32)  # several of a row, as additions wait for each other
        sums.fill(0.0)
        for chunk in cutlass.range_constexpr(self.tile_hdimv // CHUNK):
            for row in cutlass.range_constexpr(count):
                part_dO = cute.make_fragment_like(here_dO[None, first + row, chunk])
                part_O = cute.make_fragment_like(here_O[None, first + row, chunk])
                cute.copy(atom, here_dO[None, first + row, chunk], part_dO)
                cute.copy(atom, here_O[None, first + row, chunk], part_O)
                for number in cutlass.range_constexpr(CHUNK):
                    sums[row, number % CHAINS] += part_dO[number].to(cutlass.Float32) * part_O[number].to(cutlass.Float32)
        for row in cutlass.range_constexpr(count):
            total = sums[row, 0]
            for chain in cutlass.range_constexpr(1, CHAINS):
                total += sums[row, chain]
            sdPsum[(first + row) * cute.arch.WARP_SIZE + lane, stage] = total
        for group in cutlass.range_constexpr(self.num_wg_mma):
            cute.arch.barrier_arrive(**self.ready(stage, group))

    def make_room(self) -> None:
        """Once the sums of the tile before are read, the warp groups may write theirs."""
        for group in range(self.num_wg_dQ):
            cute.arch.cp_async_bulk_wait_group(self.num_wg_dQ - 1 - group, read=True)
            cute.arch.barrier_arrive(barrier_id=int(NamedBarrierBwd.dQEmptyWG0) + group, number_of_threads=128 + cute.arch.WARP_SIZE)

    @cute.jit
    def add(self, sums_here: Any, sums_there: Any, tile: Any) -> None:
        """Adds the sums of a tile to those of dq, once they are written."""
        for group in cutlass.range_constexpr(self.num_wg_dQ):
            cute.arch.barrier(barrier_id=int(NamedBarrierBwd.dQFullWG0) + group, number_of_threads=128 + cute.arch.WARP_SIZE)
            with cute.arch.elect_one():
                here, there = sums_here[None, group], sums_there[(None, group), tile]
                copy_utils.cpasync_reduce_bulk_add_f32(here.iterator, there.iterator, self.tma_copy_bytes["dQ"])
            cute.arch.cp_async_bulk_commit_group()


@cute.jit
def _store(lists: Any, where: Any, stages: cutlass.Constexpr, compute: Any, make_room: Any, add: Any, heads: cutlass.Constexpr) -> None:
    """Computes delta of a tile before it adds to dq of the one before: the warp would otherwise wait for that."""
    partial_count, partial_index, full_count, full_index, *_ = lists
    batch, head, n_block = where
    partial_tiles, full_tiles = partial_count[batch, head, n_block], full_count[batch, head, n_block]
    state = cutlass.pipeline.make_pipeline_state(cutlass.pipeline.PipelineUserType.Consumer, stages)
    before, before_joined, is_first = cutlass.Int32(0), cutlass.Int32(0), cutlass.Boolean(True)
    for joined in cutlass.range(heads, unroll=1):
        for number in cutlass.range(partial_tiles + full_tiles, unroll=1):
            if not is_first:
                make_room()
            compute(state.index, state.phase, 0)
            state.advance()
            if not is_first:
                add((before, before_joined))
            is_first = cutlass.Boolean(False)
            before_joined = joined
            if number < partial_tiles:
                before = partial_index[batch, head, n_block, number]
            else:
                before = full_index[batch, head, n_block, number - partial_tiles]
    make_room()
    add((before, before_joined))


@contextmanager
def delta_inside(warps: int) -> Iterator[None]:
    """The main kernel that is compiled meanwhile computes delta, by one or two warps."""
    current = list[DeltaInside]()

    class Current(DeltaInside):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.warps = warps
            current.append(self)

    def load(lists: Any, batch: Any, head: Any, *arguments: Any) -> Any:
        *before, _load_delta, bytes_k, bytes_v, same_stages, heads = arguments
        (kernel,) = current
        mdO, atom, sdO, _, pipeline = kernel.shared
        out = cute.local_tile(mdO[None, None, head + cute.size(mdO.shape[2]) // 2, batch], (kernel.tile_m, kernel.tile_hdimv), (None, 0))
        load_out, _, _ = copy_utils.tma_get_copy_fn(atom, 0, cute.make_layout(1), out, kernel.behind(sdO))
        load_out = copy_utils.tma_producer_copy_fn(load_out, pipeline)

        def load_and_compute(tile: Any, producer_state: Any) -> None:
            load_out(tile, producer_state=producer_state)
            if warps == 2:
                kernel.compute_delta(producer_state.index, producer_state.phase ^ 1, 1)

        return usual[1](lists, batch, head, *before, load_and_compute, bytes_k, bytes_v, same_stages, heads)

    def store(*arguments: Any, **_sizes: Any) -> None:
        lists, *where, sums_here, sums_there = arguments
        (kernel,) = current
        add = partial(kernel.add, sums_here, sums_there)
        _store(lists, tuple(where), kernel.dO_stage, kernel.compute_delta, kernel.make_room, add, _walk.joined_heads.get())

    library = _main.library_backward
    _main._Patches.install()
    usual = _main.JoinedBackward, _walk._load, library.dQaccum_store_block_sparse_bwd_sm90
    _main.JoinedBackward, _walk._load, library.dQaccum_store_block_sparse_bwd_sm90 = Current, load, store
    try:
        yield
    finally:
        _main.JoinedBackward, _walk._load, library.dQaccum_store_block_sparse_bwd_sm90 = usual
