"""Recordings on shapes against the same programs on meta tensors, watched by torch's own dispatch mode; and cuts against cut masks."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from longca import masks
from longca.kernels import registry as kernels
from longca.kernels.inputs import DTYPES
from longca.parallel.balance import balanced
from longca.parallel.comm.base import Transfer
from longca.parallel.comm.null import NullComm
from longca.parallel.cuts import TILE, Cuts
from longca.parallel.method import Plan
from longca.parallel.primitives import local
from longca.parallel.ranges import count, extent
from longca.parallel.recording import RankProgram, mirrored, record, twin_of
from longca.parallel.sharding import contiguous, zigzag
from parallel.running import STATIC, case_of, mask_of, plan_of

RANKS = 4


class Watch(TorchDispatchMode):
    """Bytes of all storages that operations made and that are alive, and bytes that operations which are no views read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, Any] = {}
        self.peak = self.calls = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = function(*args, **(kwargs or {}))
        for x in tree_flatten(results)[0]:
            if isinstance(x, torch.Tensor):
                storage = x.untyped_storage()
                self.live[storage._cdata] = (torch.multiprocessing.reductions.StorageWeakRef(storage), storage.nbytes())
        self.live = {key: entry for key, entry in self.live.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        if "empty" not in str(function) and "promote_types" not in str(function) and not function.is_view:
            self.calls += 1
        return results


class MetaComm(NullComm):
    """Torch's own meta tensors, where a recording has shapes."""

    shapes_only = True

    def __init__(self, rank: int, size: int, members: Any = ()) -> None:
        super().__init__(rank, size, "meta", members)

    def _post(self, operation: Any, sends: Any, receives: Any) -> Transfer:
        held = [*sends, *receives]  # until they have arrived
        return Transfer(held.clear)

    def beside(self, task: Any) -> Any:
        result = [task()]  # at once, as on a device with streams
        return result.pop

    def sub(self, ranks: Any, label: str = "") -> MetaComm:
        members = [self.members[rank] for rank in ranks]
        return MetaComm(members.index(self.members[self.rank]), len(members), members)


def on_meta_tensors(plan: Plan, rank: int) -> Watch:
    program = plan.program(MetaComm(rank, plan.ranks))
    case, length, layout = plan.case, count(plan.rows(rank)), kernels.choices(plan.kernel)[0].layout
    gc.collect()
    with Watch() as watch:

        def born(heads: int, size: int) -> torch.Tensor:
            shape = (length, heads, size) if layout == "LHD" else (heads, length, size)
            made = torch.empty(shape, dtype=DTYPES[case.dtype], device="meta")
            return made if layout == "LHD" else made.transpose(0, 1)

        q, k, v = born(case.heads_q, case.head_dim), born(case.heads_kv, case.head_dim), born(case.heads_kv, case.head_dim_v)
        _, kept = program.forward(q, k, v)
        program.backward(born(case.heads_q, case.head_dim_v), kept)
    return watch


@pytest.mark.parametrize("kernel", ["torch:chunked", "fa4"])
@pytest.mark.parametrize("name", ["causal_document", "sliding_window"])
@pytest.mark.parametrize("method", STATIC)
def test_a_recording_holds_as_much_memory_and_makes_as_many_operations_as_meta_tensors(method: str, name: str, kernel: str) -> None:
    check_recordings(
        plan_of(method, mask_of(name), case_of(197, (4, 2), "bf16"), RANKS, "2x2" if method in ("usp", "loongtrain") else "", kernel)
    )


@pytest.mark.parametrize("options", [{"stages": 0}, {"node": 2}])
@pytest.mark.parametrize("name", ["causal", "causal_document", "global_sliding_window"])
def test_so_does_a_recording_of_one_call_over_all_keys_and_of_relays(name: str, options: dict[str, int]) -> None:
    check_recordings(plan_of("magi", mask_of(name), case_of(197, (4, 2), "bf16"), RANKS, kernel="fa4", options=options))


@pytest.mark.parametrize("options", [{}, {"node": 2}])
@pytest.mark.parametrize("kernel", ["torch:chunked", "fa4"])
@pytest.mark.parametrize("patterns", [1, 2])
def test_so_does_a_recording_of_a_cast_of_blocks(patterns: int, kernel: str, options: dict[str, int]) -> None:
    mask = masks.uniform_block(1024, seed=1, b=128, ratio=0.2, heads=patterns)
    check_recordings(plan_of("block_cast", mask, case_of(1024, (4, 2), "bf16"), RANKS, kernel=kernel, options=options))


def check_recordings(plan: Plan) -> None:
    for rank in (0, RANKS - 1):
        watch, recorded = on_meta_tensors(plan, rank), record(plan, rank)
        events = recorded.forward + recorded.backward
        assert recorded.peak == watch.peak
        assert sum(event.calls for event in events if event.kind == "memory") == watch.calls
        assert {event.number for event in events if event.kind == "post"} == {event.number for event in events if event.kind == "wait"}


SHARDINGS = {"zigzag": zigzag, "balanced": balanced, "contiguous": lambda mask, ranks: contiguous(mask.seqlen_q, ranks)}


@settings(max_examples=60)
@given(st.sampled_from(masks.names()), st.integers(1, 900), st.integers(1, 4), *[st.sampled_from(sorted(SHARDINGS))] * 2)
def test_cuts_are_what_cutting_gives(name: str, seqlen: int, ranks: int, rows: str, keys: str) -> None:
    mask = masks.build(name, seqlen, seed=seqlen)
    row_shards, key_shards = SHARDINGS[rows](mask, ranks), SHARDINGS[keys](mask, ranks)
    cuts = Cuts(mask, row_shards, key_shards)
    for r in range(ranks):
        for k in range(ranks):
            right, cut = mask.rows(row_shards[r]).cols(key_shards[k]), cuts.cut(r, k)
            tiles = right.tiles(TILE, TILE)
            assert (cut.area, cut.tiles, cut.length) == (right.area, tiles.full + tiles.partial, right.seqlen_q)
            if right.area:
                assert (cut.rows, cut.keys) == extent(right)
                assert cut.make().area == right.area


def test_an_attention_call_knows_its_mask() -> None:
    plan = plan_of("ring_p2p", mask_of("causal_document"), case_of(197), RANKS)
    calls = [event.call for event in record(plan, 1).forward if event.call is not None]
    own = mask_of("causal_document").rows(plan.rows(1)).cols(plan.rows(1))
    assert calls[0].mask_digest == local.LocalKernel("torch:chunked", plan.case, NullComm(1, RANKS)).over(own).cut.make().digest
    assert calls[0].bands == len(own.bands.q0) > 1
    assert (calls[0].kernel, calls[0].lse) == ("torch:chunked", True)
    assert np.sum([call.area for call in calls]) == mask_of("causal_document").pair_areas([plan.rows(1)], [[(0, 197)]])[0, 0]


def comparable(program: RankProgram) -> list[Any]:
    """Everything about a program, whatever the order of the messages of one post."""
    posts = [
        (event.number, sorted(event.sends), sorted(event.receives), replace(event, sends=(), receives=()))
        for event in (*program.forward, *program.backward)
    ]
    return [posts, len(program.forward), program.forward_peak, program.peak, program.sent_bytes, program.messages]


@pytest.mark.parametrize("heads", [(8, 8), (8, 2), (6, 2)])
@pytest.mark.parametrize("name", ["causal", "causal_document", "sliding_window"])
@pytest.mark.parametrize(
    ("method", "grid", "ranks"), [("ulysses", "", 4), ("usp", "4x2", 8), ("usp", "2x4", 8), ("loongtrain", "2x4x2", 8)]
)
def test_a_mirrored_program_is_the_one_that_recording_gives(method: str, grid: str, ranks: int, name: str, heads: tuple[int, int]) -> None:
    plan = plan_of(method, mask_of(name, 201), case_of(201, heads, "bf16"), ranks, grid, "fa4")
    for rank in range(ranks):
        mirror = mirrored(record(plan, twin_of(plan, rank)), plan.grid, rank)
        assert comparable(mirror) == comparable(record(plan, rank))


def test_ranks_with_as_many_tokens_and_heads_are_twins() -> None:
    even = plan_of("usp", mask_of("causal", 256), case_of(256, (8, 8), "bf16"), 8, "4x2", "fa4")
    assert [twin_of(even, rank) for rank in range(8)] == [0] * 4 + [4] * 4
    assert [twin_of(plan_of("ring_p2p", mask_of("causal"), case_of(197), 4), rank) for rank in range(4)] == [0, 1, 2, 3]
