"""Every method, every mask, forward and backward, against one rank in fp64."""

from __future__ import annotations

import pytest
import torch

from longca import masks
from longca.errors import BadInput, Refused
from longca.kernels.backends.torch_attention import TorchKernel
from longca.masks import Mask
from longca.parallel import registry
from longca.parallel.comm.local import LocalComm, World
from parallel.running import STATIC, assert_right, case_of, mask_of, plan_if_taken, plan_of, reference, run_local, verdict_of

SEQLEN = 197  # a prime
RANKS = (1, 2, 3, 4, 6, 8)
# fewer KV heads than ranks; heads that no number of ranks divides; no groups; another length
SHAPES = (((8, 2), SEQLEN), ((9, 3), SEQLEN), ((8, 8), SEQLEN), ((8, 4), 401))
GRIDS = {
    "usp": ("2x2", "2x4", "3x2"),
    "loongtrain": ("1x4x2", "2x4x2", "1x6x3", "2x3x3"),
    "burst": ("1x6x3", "1x6x2", "1x8x4"),
    "mesh": ("2x3", "3x2", "2x4", "4x2", "4x1"),
}


def check(method: str, mask: Mask, heads: tuple[int, int], ranks: int, grid: str = "", kernel: str = "torch:chunked") -> None:
    case = case_of(mask.seqlen_q, heads)
    plan = plan_if_taken(method, mask, case, ranks, grid, kernel=kernel)
    if plan is not None:
        assert_right(run_local(plan), reference(mask, case))


@pytest.mark.parametrize("method", STATIC)
@pytest.mark.parametrize("name", masks.names())
def test_every_mask_on_three_or_eight_ranks(name: str, method: str) -> None:
    odd = (masks.names().index(name) + STATIC.index(method)) % 2
    check(method, mask_of(name), (9, 3) if odd else (8, 2), 3 if odd else 8)


@pytest.mark.parametrize("name", masks.names())
@pytest.mark.parametrize(
    ("method", "grid", "heads"),
    [
        ("loongtrain", "1x4x2", (4, 2)),
        ("loongtrain", "2x4x2", (4, 2)),
        ("burst", "1x3", (3, 3)),  # with equal heads its backward moves queries
        ("burst", "1x4x2", (3, 3)),
        ("mesh", "2x2", (4, 2)),
        ("mesh", "3x1", (4, 2)),
    ],
)
def test_every_mask_on_double_rings_rings_of_queries_and_meshes(name: str, method: str, grid: str, heads: tuple[int, int]) -> None:
    check(method, mask_of(name), heads, int(grid[0]) * int(grid[2]), grid)


def shape_at(*places: int) -> tuple[tuple[int, int], int]:
    """One of SHAPES in turn: in a grid of settings each of them meets all others."""
    return SHAPES[sum(places) % len(SHAPES)]


@pytest.mark.slow
@pytest.mark.parametrize("method", STATIC)
@pytest.mark.parametrize("name", masks.names())
def test_every_mask_heads_and_number_of_ranks(name: str, method: str) -> None:
    """Any three of mask, method, shape and number of ranks meet in a run."""
    for place, ranks in enumerate(RANKS):
        heads, seqlen = shape_at(masks.names().index(name), STATIC.index(method), place)
        check(method, mask_of(name, seqlen), heads, ranks)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "grid"), [(method, grid) for method, grids in GRIDS.items() for grid in grids])
@pytest.mark.parametrize("name", masks.names())
def test_every_mask_and_grid(name: str, method: str, grid: str) -> None:
    """Any two of mask, grid and shape meet in a run."""
    heads, ring = (int(number) for number in grid.split("x")[:2])
    shape, seqlen = shape_at(masks.names().index(name), GRIDS[method].index(grid))
    check(method, mask_of(name, seqlen), shape, heads * ring, grid)


@pytest.mark.parametrize("method", STATIC)
@pytest.mark.parametrize("name", ["share_question", "global_sliding_window", "prefix_lm_document", "sliding_window"])
def test_by_the_rule_of_the_check_with_loud_edges(name: str, method: str) -> None:
    plan = plan_if_taken(method, mask_of(name), case_of(SEQLEN, (8, 2)), 4)
    if plan is None:
        return
    verdict = verdict_of(plan)
    assert set(verdict.errors) == {"out", "lse", "dq", "dk", "dv"}
    assert verdict.ok, verdict.reason


@pytest.mark.parametrize("method", STATIC)
def test_that_rule_finds_one_key_too_few(method: str) -> None:
    """A program of another mask, that hides a single key of each row from the 50th on."""
    right, short = masks.causal(SEQLEN), Mask.of(SEQLEN, SEQLEN, [(0, 50, 0, 0, 1, 1), (50, SEQLEN, 0, 0, 50, 1)])
    plan = plan_if_taken(method, short, case_of(SEQLEN, (8, 2)), 4)
    if plan is None:  # a mask that every method takes
        right, short = (masks.sliding_window_causal(SEQLEN, w=w) for w in (50, 49))
        plan = plan_of(method, short, case_of(SEQLEN, (8, 2)), 4)
    wrong = verdict_of(plan, right)
    assert not wrong.errors["out"].ok
    assert not wrong.errors["dq"].ok


ODD = {  # a mask, and ranks
    "queries 60..139 see nothing, and keys 100..149 are seen by nobody": (
        Mask.of(SEQLEN, SEQLEN, [(0, 60, 0, 0, 1, 1), (140, SEQLEN, 0, 0, 100, 0), (150, SEQLEN, 150, 0, 151, 1)]),
        4,
    ),
    "nobody sees anything": (Mask(50, 50, []), 3),
    "fewer tokens than ranks": (masks.causal(5), 8),
    "fewer tokens than ranks, and a window": (masks.sliding_window_causal(5, w=1), 8),
}


@pytest.mark.parametrize("method", STATIC)
@pytest.mark.parametrize("odd", ODD)
def test_what_sees_nothing_is_zero_and_never_nan(odd: str, method: str) -> None:
    mask, ranks = ODD[odd]
    check(method, mask, (8, 2), ranks)


@pytest.mark.parametrize("method", STATIC)
def test_another_head_size_for_v(method: str) -> None:
    mask, case = mask_of("share_question"), case_of(SEQLEN, (6, 3), head_dim=16, head_dim_v=8)
    assert_right(run_local(plan_of(method, mask, case, 3)), reference(mask, case))


@pytest.mark.parametrize("method", STATIC)
@pytest.mark.parametrize("heads", [(8, 1), (8, 8)])
def test_results_have_the_dtype_of_the_inputs(method: str, heads: tuple[int, int]) -> None:
    """In bf16, where sums are fp32 on the way; with one KV head a mesh is a ring."""
    mask, case = mask_of("sliding_window_causal"), case_of(SEQLEN, heads, "bf16")
    assert_right(run_local(plan_of(method, mask, case, 4)), reference(mask, case), tolerance=0.05)


@pytest.mark.parametrize(("method", "grid"), [("ring_allgather", ""), ("mesh", "4x1")])
@pytest.mark.parametrize("name", ["full", "causal", "share_question", "sliding_window"])
def test_parts_of_a_sum_are_the_same_numbers_in_fp32(name: str, method: str, grid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is a kernel's result in bf16, so that the type in which it crosses nodes changes no bit of the sum."""
    monkeypatch.setattr(LocalComm, "own_collectives", True)  # parts of a sum over nodes travel in fp32
    mask, case = mask_of(name, 192), case_of(192, (4, 4), "bf16")
    across, inside = (run_local(plan_of(method, mask, case, 4, grid, options={"node": node})) for node in (2, 1))
    assert all(torch.equal(getattr(across, name), getattr(inside, name)) for name in ("out", "lse", "dq", "dk", "dv"))


@pytest.mark.parametrize("method", STATIC)
def test_other_kernels_serve_as_well(method: str) -> None:
    """sdpa wants another memory order than torch:chunked."""
    check(method, mask_of("causal_document"), (4, 2), 4, kernel="sdpa:flash")
    check(method, mask_of("causal"), (8, 2), 3, kernel="torch:plain")


@pytest.mark.parametrize("stages", [0, 1, 3, 7, 20])
@pytest.mark.parametrize("method", ["magi", "halo"])
def test_remote_keys_come_in_any_number_of_stages(method: str, stages: int) -> None:
    for name in ("causal_document", "sliding_window"):
        mask, case = mask_of(name), case_of(SEQLEN, (4, 2))
        plan = plan_of(method, mask, case, 5, options={"stages": stages})
        assert_right(run_local(plan), reference(mask, case))


def test_options_are_refused_with_what_would_work() -> None:
    mask, case = mask_of("causal"), case_of(SEQLEN)
    for method, options, words in (
        ("ulysses", {"stages": 2}, "ulysses cannot do this: it has no option 'stages'; leave it out."),
        ("magi", {"windows": 2}, "magi cannot do this: it has no option 'windows'; use node, stages."),
        ("burst", {"windows": 3}, "burst cannot do this: 3 windows do not divide a ring of 4; use windows=1 or 2 or 4."),
        ("loongtrain", {"windows": 2}, "loongtrain cannot do this: 2 windows do not divide a ring of 1; use windows=1, or grid 2x2."),
        ("loongtrain", {"windows": 8}, "loongtrain cannot do this: 8 windows do not divide a ring of 1; use windows=1."),
    ):
        with pytest.raises(Refused) as refused:
            registry.plan(method, mask, case, 4, options=options)
        assert str(refused.value) == words
    with pytest.raises(BadInput, match="the grid 1x4x2 and the option windows=4 differ"):
        registry.plan("burst", mask, case, 4, "1x4x2", options={"windows": 4})
    for value in (-1, 1 << 17, 2.5, "4", True, None):
        with pytest.raises(Refused, match=rf"stages .* is {value!r}; use a whole number from 0 to 65536"):
            registry.plan("magi", mask, case, 4, options={"stages": value})  # type: ignore[dict-item]
    with pytest.raises(Refused, match=r"node .* is 0; use a whole number from 1 to 65536"):
        registry.plan("magi", mask, case, 4, options={"node": 0})
    assert str(registry.plan("loongtrain", mask, case, 4, "1x4", options={"windows": 2}).grid) == "1x4x2"
    assert str(registry.plan("loongtrain", mask, case, 4, "2x2", options={"windows": 2}).grid) == "2x2x2"
    assert dict(registry.plan("magi", mask, case, 4).options) == {"stages": 2, "node": 1}


@pytest.mark.parametrize("method", STATIC)
def test_no_ranks_are_refused(method: str) -> None:
    for ranks in (0, -3):
        with pytest.raises(BadInput, match=f"{ranks} ranks cannot share a sequence; give 1 or more"):
            registry.plan(method, masks.causal(SEQLEN), case_of(SEQLEN), ranks)


def test_kernels_are_prepared_once_per_distinct_mask_and_not_while_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a full mask all steps of a ring are the same rectangle."""
    prepared = []
    prepare = TorchKernel.prepare
    monkeypatch.setattr(TorchKernel, "prepare", lambda self, mask, case: (prepared.append(mask.digest), prepare(self, mask, case))[1])
    plan = plan_of("ring_p2p", masks.full(64), case_of(64), 4)
    programs = [plan.program(comm) for comm in World(4).comms()]
    assert len(prepared) == len(programs)
    run_local(plan)
    assert len(prepared) == 2 * len(programs)
