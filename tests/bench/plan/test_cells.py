"""From suites to cells and their keys: what is asked for is what is planned, once."""

from itertools import product
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from longca.bench.plan.cell import Cell, key
from longca.bench.plan.cells import Planned, make_cells, plan
from longca.bench.plan.jobs import make_jobs
from longca.bench.plan.suite import Suite, find
from longca.errors import BadInput
from longca.processes import host_memory
from longca.results.problem import Pass, Problem, Sharing, Split
from longca.results.record import LevelName, MaskEntry
from made_cells import make_cell
from strategies import PAPER

SMALL = Suite(kernels=("torch",), masks=("causal", "causal_document"), seqlens=("1K", "512"), heads=("4:2",), head_dims=("32",))
CHANGES: list[dict[str, Any]] = [{"dtype": "fp16"}, {"softcap": 50.0}, {"sinks": True}, {"scale": 0.2}]
VERSIONS = {"torch": {"torch": "2"}, "sdpa": {"torch": "2"}}
NO_MASK = MaskEntry(digest="", mask="", seqlen_q=1, seqlen_k=1, area=0, bands=None)


def planned(suite: Suite, kernels: tuple[str, ...] = ("torch",)) -> list[Planned]:
    return plan(make_cells(suite, kernels, "cpu"), "a CPU", VERSIONS)


def through_json(cell: Cell) -> Cell:
    return msgspec.json.decode(msgspec.json.encode(cell), type=Cell)


def test_paper_kernel_is_the_papers_grid() -> None:
    cells = make_cells(find("paper-kernel"), ["fa3"], "cuda")
    assert len(cells) == 12 * 9 * 2
    assert {cell.problem.mask for cell in cells} == set(PAPER)
    assert {cell.problem.title for cell in cells} == {"64:8 heads of 128 · bf16"}
    assert sorted({cell.problem.seqlen >> 10 for cell in cells}) == [1, 2, 4, 8, 16, 24, 32, 40, 48]


def test_paper_sparse_is_the_papers_grid_with_dense_fa4_beside_it() -> None:
    cells = make_cells(find("paper-sparse"), ["block_triton", "flex"], "cuda")
    sparse, dense = ([cell for cell in cells if (cell.level == "sparse") == wanted] for wanted in (True, False))
    lengths, heads = [16 * n << 10 for n in range(1, 9)], [(64, 8), (64, 64)]
    problems = [(cell.kernel, cell.problem) for cell in sparse]
    places = {(kernel, one.mask, one.params, one.seqlen, one.heads_q, one.heads_kv, one.pass_) for kernel, one in problems}
    ratios = (0.2, 0.5, 0.8)
    patterns = [("uniform_block", (("b", b), ("ratio", ratio))) for b in (64, 128) for ratio in ratios]
    patterns += [("variable_block", (("avg", avg), ("ratio", ratio))) for avg in (128, 256, 512, 1024) for ratio in ratios]
    axes = product(("block_triton", "flex"), patterns, lengths, heads, ("fwd", "bwd"))
    assert places == {(kernel, *pattern, seqlen, *pair, which) for kernel, pattern, seqlen, pair, which in axes}
    assert {(cell.kernel, cell.problem.mask) for cell in dense} == {("fa4", "full")}
    assert len(dense) == 8 * 2 * 2
    jobs = make_jobs([Planned(cell, "", NO_MASK, {}) for cell in cells])
    assert jobs[0].cell.problem.mask == "full"  # at each length before what is compared with it


def test_selected_blocks_are_compared_with_the_causal_mask() -> None:
    found = Suite(masks=("uniform_block",), dense=("torch",), source="nsa", seqlens=("512",))
    cells = make_cells(found, ["flex"], "cpu")
    assert [(cell.kernel, cell.problem.mask, cell.problem.source) for cell in cells[::2]] == [
        ("torch", "causal", "random"),
        ("flex", "uniform_block", "nsa"),
    ]
    assert cells[2].problem.mask_title == "uniform_block nsa"
    with pytest.raises(BadInput, match="the source nsa is for block patterns, and none is asked for"):
        make_cells(replace(found, masks=("causal",)), ["flex"], "cpu")
    assert make_cells(replace(found, level=LevelName.CP, source="random"), ["flex"], "cpu")[0].problem.mask == "uniform_block"


def test_the_source_is_in_the_key_and_keys_stay() -> None:
    shape = dict(seqlen=32768, heads_q=64, heads_kv=8, head_dim=128, head_dim_v=128, dtype="bf16", pass_=Pass.FWD, seed=42, device="cuda")
    cell = make_cell(kernel="fa4", mask="uniform_block", params=(("b", 128), ("ratio", 0.2)), level=LevelName.SPARSE, **shape)  # type: ignore[arg-type]
    assert key(cell, "digest", "H200", {"torch": "2"}) == "718854936a2ddfa934b9"  # another one would measure every journal anew
    others = [cell.with_problem(source=source) for source in ("nsa", "moba")]
    assert len({key(each, "digest", "H200", {"torch": "2"}) for each in (cell, *others)}) == 3
    assert all(through_json(each) == each for each in (cell, *others, cell.with_problem(documents=(3, 5), distribution="pile")))


def test_keys_tell_measurements_apart_and_nothing_else() -> None:
    cell = make_cells(SMALL, ["torch"], "cpu")[0]
    base = key(cell, "digest", "H200", {"torch": "2"})
    assert key(replace(cell), "digest", "H200", {"torch": "2"}) == base
    others = [
        key(cell.with_problem(pass_=Pass.BWD), "digest", "H200", {"torch": "2"}),
        *(key(cell.with_problem(**change), "digest", "H200", {"torch": "2"}) for change in CHANGES),
        key(cell, "other", "H200", {"torch": "2"}),
        key(cell, "digest", "H100", {"torch": "2"}),
        key(cell, "digest", "H200", {"torch": "3"}),
    ]
    split = replace(cell, split=Split("usp", "1x2"))
    for sharing in (None, Sharing(ranks=2), Sharing(ranks=2, nodes=2)):  # ranks that share a GPU say nothing of ranks that have one each
        others.append(key(split.with_problem(ranks=2, sharing=sharing), "digest", "H200", {"torch": "2"}))
    assert len({base, *others}) == 8 + len(CHANGES)


def test_parameters_that_show_the_same_are_two_cells_and_seeds_that_do_are_one() -> None:
    """8 blocks: a tenth and a fifth of them are both one."""
    blocks = replace(
        SMALL, masks=("uniform_block",), seqlens=("512",), passes=(Pass.FWD,), params={"uniform_block": {"ratio": [0.1, 0.2, 1.0]}}
    )
    found = planned(replace(blocks, seeds=(0, 1)))
    assert [(dict(entry.cell.problem.params)["ratio"], entry.cell.problem.seed) for entry in found] == [
        (0.1, 0),
        (0.1, 1),
        (0.2, 0),
        (0.2, 1),
        (1.0, 0),
    ]
    assert found[0].mask.digest == found[2].mask.digest
    assert len({entry.key for entry in found}) == 5
    assert [entry.mask.params["ratio"] for entry in found] == [0.1, 0.1, 0.2, 0.2, 1.0]


def test_lengths_without_the_memory_for_a_mask_are_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Problem, "build_mask", lambda problem: pytest.fail(f"{problem.seqlen} tokens"))
    with pytest.raises(BadInput, match=r"^100000000K tokens are too many: masks are made for up to 1G; give fewer\.$"):
        planned(replace(SMALL, seqlens=("100000000K",)))
    blocks = replace(SMALL, masks=("uniform_block",), params={"uniform_block": {"b": 64}}, seqlens=("1M",))
    monkeypatch.setattr(host_memory, "limit", lambda: 1 << 28)
    with pytest.raises(BadInput, match=r"^uniform_block takes 1 GiB of host memory for its blocks at 1M tokens, and 256 MiB are free;"):
        planned(blocks)
    larger = replace(blocks, params={"uniform_block": {"b": 128}})
    with pytest.raises(pytest.fail.Exception, match="1048576 tokens"):
        planned(larger)


def test_one_work_has_one_key() -> None:
    names = ("causal_document", "share_question")
    plain, drawn = (planned(replace(SMALL, masks=names, packing=packing, passes=(Pass.FWD,))) for packing in ("", "draw"))
    for one, other in zip(plain, drawn, strict=True):
        assert (one.key == other.key) == (one.mask.digest == other.mask.digest)
    assert any(one.mask.digest == other.mask.digest for one, other in zip(plain, drawn, strict=True))


def test_a_split_cell_has_the_versions_of_kernel_and_method() -> None:
    (cell,) = make_cells(replace(SMALL, masks=("full",), seqlens=(64,), passes=(Pass.FWD,), level=LevelName.CP), ["torch"], "cpu")
    split = replace(cell, split=Split("usp", "2x2"))
    versions = {"torch": {"torch": "2", "code": "a"}, "usp": {"method_code": "b"}}
    (entry,) = plan([split], "a CPU", versions)
    assert entry.versions == {"torch": "2", "code": "a", "method_code": "b"}
    (other,) = plan([split], "a CPU", versions | {"usp": {"method_code": "c"}})
    assert entry.key != other.key
    assert through_json(split) == split
