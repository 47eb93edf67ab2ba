"""From suites to cells: what is asked for is what is planned, and what makes no sense is refused in a sentence."""

import argparse
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from longca import masks
from longca.bench import metrics, plan, runner, suite
from longca.bench.cell import Cell, key
from longca.bench.journal import Journal, load_masks
from longca.bench.suite import Limits, Suite
from longca.bench.workload import read_workload, with_model
from longca.cli import run as run_verb
from longca.errors import BadInput
from strategies import PAPER

SMALL = Suite(kernels=("torch",), masks=("causal", "causal_document"), seqlens=("1K", "512"), heads=("4:2",), head_dims=("32",))
VERSIONS = {"torch": {"torch": "2"}, "sdpa": {"torch": "2"}}


def planned(which: Suite, kernels: tuple[str, ...] = ("torch",)) -> list[plan.Planned]:
    return plan.plan(plan.cells(which, kernels, "cpu"), "a CPU", VERSIONS)


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    run_verb.add_arguments(parser)
    return parser.parse_args(given)


@pytest.mark.parametrize("name", suite.names())
def test_every_suite_of_the_package_is_sound(name: str) -> None:
    found = suite.find(name)
    cells = plan.cells(found, ["torch"], "cpu")
    assert {cell.mask for cell in cells} == set(found.masks) | ({"full"} if found.dense else set())  # by name: a new mask changes no suite
    assert suite.from_table(tomllib.loads(suite.to_toml(found)), "printed") == found


def test_paper_kernel_is_the_papers_grid() -> None:
    cells = plan.cells(suite.find("paper-kernel"), ["fa3"], "cuda")
    assert len(cells) == 12 * 9 * 2
    assert {cell.mask for cell in cells} == set(PAPER)
    assert {(cell.heads_q, cell.heads_kv, cell.head_dim, cell.dtype) for cell in cells} == {(64, 8, 128, "bf16")}
    assert sorted({cell.seqlen >> 10 for cell in cells}) == [1, 2, 4, 8, 16, 24, 32, 40, 48]


def test_magi_kernel_is_the_grid_of_magi_attentions_page() -> None:
    cells = plan.cells(suite.find("magi-kernel"), ["ffa"], "cuda")
    documents = ["full_document", "causal_document", "block_causal_document"]
    assert {cell.mask for cell in cells} == {"full", "causal", "sliding_window_causal", *documents}
    assert {(cell.heads_q, cell.heads_kv, cell.head_dim, cell.dtype) for cell in cells} == {(64, 8, 128, "bf16")}
    assert sorted({cell.seqlen >> 10 for cell in cells}) == [4, 8, 16, 32, 64, 128]
    drawn = {(cell.mask, cell.distribution, cell.packing) for cell in cells if cell.mask in documents}
    assert drawn == {(name, "chatqa2", "chunked") for name in documents}


@pytest.mark.parametrize(("name", "drawn"), [("paper-cp", {(None, "mixed")}), ("magi-cp", {("chatqa2", "chunked")})])
def test_distributed_grids_pack_documents_as_published(name: str, drawn: set[tuple[str | None, str]]) -> None:
    cells = plan.cells(suite.find(name), ["fa3"], "cuda")
    packed = [cell for cell in cells if masks.build(cell.mask, 64).documents is not None]
    assert {(cell.distribution, cell.packing) for cell in packed} == drawn


def test_paper_sparse_is_the_papers_grid_with_dense_fa4_beside_it() -> None:
    cells = plan.cells(suite.find("paper-sparse"), ["block_triton", "flex"], "cuda")
    sparse, dense = ([cell for cell in cells if (cell.level == "sparse") == wanted] for wanted in (True, False))
    lengths, heads = [16 * n << 10 for n in range(1, 9)], [(64, 8), (64, 64)]
    places = {(cell.kernel, cell.mask, cell.params, cell.seqlen, cell.heads_q, cell.heads_kv, cell.which) for cell in sparse}
    ratios = (0.2, 0.5, 0.8)
    patterns = [("uniform_block", (("b", b), ("ratio", ratio))) for b in (64, 128) for ratio in ratios]
    patterns += [("variable_block", (("avg", avg), ("ratio", ratio))) for avg in (128, 256, 512, 1024) for ratio in ratios]
    axes = product(("block_triton", "flex"), patterns, lengths, heads, ("fwd", "bwd"))
    assert places == {(kernel, *pattern, seqlen, *pair, which) for kernel, pattern, seqlen, pair, which in axes}
    assert {(cell.kernel, cell.mask) for cell in dense} == {("fa4", "full")}
    assert len(dense) == 8 * 2 * 2
    jobs = plan.jobs([plan.Planned(cell, "", {}) for cell in cells])
    assert jobs[0].cell.mask == "full"  # at each length before what is compared with it


def test_selected_blocks_are_compared_with_the_causal_mask() -> None:
    found = suite.from_table({"masks": ["uniform_block"], "dense": ["torch"], "source": "nsa", "seqlens": ["512"]}, "mine")
    cells = plan.cells(found, ["flex"], "cpu")
    assert [(cell.kernel, cell.mask, cell.source) for cell in cells[::2]] == [
        ("torch", "causal", "random"),
        ("flex", "uniform_block", "nsa"),
    ]
    assert cells[2].mask_title == "uniform_block nsa"
    assert suite.from_table(tomllib.loads(suite.to_toml(found)), "printed") == found
    with pytest.raises(BadInput, match="the source nsa is for block patterns, and none is asked for"):
        plan.cells(replace(found, masks=("causal",)), ["flex"], "cpu")
    assert plan.cells(replace(found, level="cp", source="random"), ["flex"], "cpu")[0].mask == "uniform_block"


def test_the_source_is_in_the_key_and_older_keys_stay() -> None:
    shape = dict(seqlen=32768, heads_q=64, heads_kv=8, head_dim=128, head_dim_v=128, dtype="bf16", which="fwd", seed=42, device="cuda")
    cell = Cell("fa4", "uniform_block", params=(("b", 128), ("ratio", 0.2)), level="sparse", **shape)  # type: ignore[arg-type]
    assert key(cell, "digest", "H200", {"torch": "2"}) == "913da68836a366028ba6"
    others = [replace(cell, source=source) for source in ("nsa", "moba")]
    assert len({key(each, "digest", "H200", {"torch": "2"}) for each in (cell, *others)}) == 3
    assert all(Cell.from_json(json.loads(json.dumps(each.to_json()))) == each for each in (cell, *others))


def test_an_estimate_counts_each_query_head_once() -> None:
    base = replace(SMALL, masks=("full",), seqlens=("8K",), heads=("16:16",), passes=("fwd",))
    blocks = replace(base, masks=("uniform_block",), params={"uniform_block": {"ratio": 1.0}})
    assert plan.estimate_s(planned(blocks), blocks) == pytest.approx(plan.estimate_s(planned(base), base))


def test_parameters_by_flag_go_to_the_masks_that_have_them() -> None:
    found = run_verb.resolve(arguments("paper-sparse", "--set", "ratio=.2,.5", "--set", "b=128"))
    assert found.params["uniform_block"] == {"b": 128, "ratio": [0.2, 0.5]}
    assert found == run_verb.resolve(arguments("paper-sparse", "--set", "ratio=.2,.5,b=128"))
    assert found.params["variable_block"] == {"avg": [128, 256, 512, 1024], "ratio": [0.2, 0.5]}
    windows = run_verb.resolve(arguments("quick", "--set", "w=1K")).params
    assert windows["sliding_window"] == windows["global_sliding_window"] == {"w": 1024}
    for text, message in (("c=1", "none of these masks has a parameter 'c'"), ("ratio", "is no setting"), ("b=1,x", "is no number")):
        with pytest.raises(BadInput, match=message):
            run_verb.resolve(arguments("paper-sparse", "--set", text))
    with pytest.raises(BadInput, match="ratio is set twice"):
        run_verb.resolve(arguments("paper-sparse", "--set", "ratio=.2", "--set", "ratio=.5"))


def test_a_cell_survives_json() -> None:
    for entry in planned(replace(SMALL, params={"causal": {}}, distribution="pile")):
        assert Cell.from_json(json.loads(json.dumps(entry.cell.to_json()))) == entry.cell


def test_keys_tell_measurements_apart_and_nothing_else() -> None:
    cell = plan.cells(SMALL, ["torch"], "cpu")[0]
    base = key(cell, "digest", "H200", {"torch": "2"})
    assert key(replace(cell), "digest", "H200", {"torch": "2"}) == base
    others = [
        key(replace(cell, which="bwd"), "digest", "H200", {"torch": "2"}),
        key(replace(cell, dtype="fp16"), "digest", "H200", {"torch": "2"}),
        key(cell, "other", "H200", {"torch": "2"}),
        key(cell, "digest", "H100", {"torch": "2"}),
        key(cell, "digest", "H200", {"torch": "3"}),
    ]
    assert len({base, *others}) == 6


def test_seeds_that_draw_the_same_mask_are_measured_once() -> None:
    entries = planned(replace(SMALL, seeds=(0, 1, 2), passes=("fwd",)))
    seeds = {
        (name, size): [e.cell.seed for e in entries if (e.cell.mask, e.cell.seqlen) == (name, size)]
        for name in SMALL.masks
        for size in (512, 1024)
    }
    assert seeds["causal", 512] == seeds["causal", 1024] == [0]
    assert seeds["causal_document", 1024] == [0, 1, 2]


def test_lists_of_parameters_are_axes_and_block_patterns_are_sparse() -> None:
    params = {"uniform_block": {"b": [64, 128], "ratio": [0.2, 0.5, 0.8]}, "sliding_window": {"w": 9}}
    found = suite.from_table(
        {"masks": ["uniform_block", "sliding_window"], "seqlens": ["512"], "passes": ["fwd"], "params": params}, "mine"
    )
    cells = plan.cells(found, ["torch"], "cpu")
    assert [dict(cell.params) for cell in cells[:6]] == [{"b": b, "ratio": ratio} for b in (64, 128) for ratio in (0.2, 0.5, 0.8)]
    assert [cell.level for cell in cells] == ["sparse"] * 6 + ["kernel"]
    assert cells[0].build_mask().heads == cells[0].heads_kv == 8
    assert suite.from_table(tomllib.loads(suite.to_toml(found)), "printed") == found


def test_parameters_that_show_the_same_are_two_cells_and_seeds_that_do_are_one() -> None:
    """8 blocks: a tenth and a fifth of them are both one."""
    blocks = replace(
        SMALL, masks=("uniform_block",), seqlens=("512",), passes=("fwd",), params={"uniform_block": {"ratio": [0.1, 0.2, 1.0]}}
    )
    found = planned(replace(blocks, seeds=(0, 1)))
    assert [(dict(entry.cell.params)["ratio"], entry.cell.seed) for entry in found] == [(0.1, 0), (0.1, 1), (0.2, 0), (0.2, 1), (1.0, 0)]
    assert found[0].digest == found[2].digest
    assert len({entry.key for entry in found}) == 5
    assert [entry.mask["params"]["ratio"] for entry in found] == [0.1, 0.1, 0.2, 0.2, 1.0]


def test_a_run_builds_each_mask_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To plan it; whoever measures it builds it for himself. Records and masks.jsonl need it no more, however many lie between."""
    built, build = list[Cell](), Cell.build_mask
    monkeypatch.setattr(Cell, "build_mask", lambda cell: built.append(cell) or build(cell))
    entries = planned(replace(SMALL, masks=("uniform_block", "causal_document"), seeds=(90, 91, 92), seqlens=("300", "301")))

    class Refusing:
        def __init__(self) -> None:
            self.spent_s = defaultdict[str, float](float)

        def run(self, job: plan.Job) -> Iterator[tuple[str, dict[str, Any]]]:
            yield from ((entry.cell.which, {"status": "unsupported", "reason": "no"}) for entry in job.planned)

        def start(self, jobs: object) -> None: ...

        def close(self) -> None: ...

        def begin(self, job: object) -> None: ...

        def finished(self, record: dict[str, Any]) -> None: ...

        def say(self, text: str) -> None: ...

    with Journal(tmp_path) as journal:
        runner.cache_folder(tmp_path)
        runner.execute(plan.jobs(entries), Refusing(), journal, "here", Refusing())
    assert len(journal.records) == len(entries) == 2 * 2 * 3 * 2
    assert len(built) == len({entry.cell.problem for entry in entries}) == 12
    for entry in entries:
        mask, record = build(entry.cell), journal.records[entry.key]
        assert record["flops"] == metrics.flops(mask, entry.cell.case(mask), entry.cell.which)
        assert (record["params"], record["seqlen_q"], record["area"]) == (mask.params, mask.seqlen_q, mask.area)
    assert {entry["digest"] for entry in load_masks(tmp_path)} == {entry.digest for entry in entries}


def test_jobs_hold_the_passes_of_a_kernel_and_problems_come_one_by_one() -> None:
    jobs = plan.jobs(planned(SMALL, ("torch", "sdpa")))
    assert [tuple(entry.cell.which for entry in job.planned) for job in jobs] == [("fwd", "bwd")] * len(jobs)
    problems = [job.cell.problem for job in jobs]
    assert problems == sorted(problems, key=problems.index)  # every problem once, in a row
    assert all(job.last for job in jobs)  # each worker has one job per problem here
    shared = plan.jobs(planned(SMALL, ("torch", "sdpa")), "one")
    assert [job.last for job in shared] == [False, True] * (len(jobs) // 2)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_shards_split_everything_and_share_nothing(parts: int) -> None:
    entries = planned(replace(SMALL, masks=("all",)), ("torch", "sdpa"))
    found = [plan.shard(entries, f"{part}/{parts}") for part in range(1, parts + 1)]
    assert sorted(entry.key for part in found for entry in part) == sorted(entry.key for entry in entries)
    problems = [{entry.cell.problem for entry in part} for part in found]
    assert sum(map(len, problems)) == len(set().union(*problems))


def test_lengths_without_the_memory_for_a_mask_are_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cell, "build_mask", lambda cell: pytest.fail(f"{cell.seqlen} tokens"))
    with pytest.raises(BadInput, match=r"^100000000K tokens are too many: masks are made for up to 1G; give fewer\.$"):
        planned(replace(SMALL, seqlens=("100000000K",)))
    blocks = replace(SMALL, masks=("uniform_block",), params={"uniform_block": {"b": 64}}, seqlens=("1M",))
    monkeypatch.setattr(plan, "memory_limit", lambda limits: 1 << 28)
    with pytest.raises(BadInput, match=r"^uniform_block takes 1 GiB of host memory for its blocks at 1M tokens, and 256 MiB are free;"):
        planned(blocks)
    larger = replace(blocks, params={"uniform_block": {"b": 128}})
    with pytest.raises(pytest.fail.Exception, match="1048576 tokens"):
        planned(larger)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/2/3"])
def test_a_wrong_shard_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no shard"):
        plan.shard([], text)


def test_what_is_left_to_do() -> None:
    entries = planned(SMALL)
    ok, failed, long, other = (entry.key for entry in entries[:4])
    records = {
        ok: {"status": "ok", "reason": ""},
        failed: {"status": "oom", "reason": "out of memory"},
        long: {"status": "unsupported", "reason": "too long", "limited": True},
        other: {"status": "unsupported", "reason": "O(S²) is too much for me", "limited": False},
    }
    rest = {entry.key for entry in entries[4:]}
    assert {entry.key for entry in plan.left_to_do(entries, records)} == rest
    assert {entry.key for entry in plan.left_to_do(entries, records, retry=True)} == rest | {failed}
    assert {entry.key for entry in plan.left_to_do(entries, records, full=True)} == rest | {long}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"masks": ["causl"]}, "did you mean 'causal'"),
        ({"mask": ["causal"]}, "did you mean 'masks'"),
        ({"seqlens": ["8Q"]}, "no size"),
        ({"seqlens": ["0"]}, "1 or more"),
        ({"heads": ["7:2"]}, "must be a multiple"),
        ({"heads": ["x"]}, "is not understood"),
        ({"passes": ["forward"]}, "unknown pass"),
        ({"dtypes": ["int4"]}, "unknown dtype"),
        ({"seqlens": []}, "has no seqlens"),
        ({"kernels": "torch"}, "must be a list"),
        ({"seeds": [-1]}, "a seed must be"),
        ({"params": {"causal": {"w": 1}}}, "causal has no parameter 'w'"),
        ({"clock": {"budget": 1}}, "did you mean 'budget_s'"),
        ({"clock": {"budget_s": "long"}}, "must be a number"),
        ({"clock": {"least": 9, "most": 3}}, "least <= most"),
        ({"limits": {"memory": "lots"}}, "no size"),
        ({"limits": 3}, "must be a table"),
        ({"limits": {"workers": "two"}}, "unknown kind of workers"),
        ({"level": "planet"}, "unknown level"),
        ({"source": "mobe"}, "did you mean 'moba'"),
        ({"dense": "fa4"}, "dense must be a list"),
        ({"params": {"uniform_block": {"ratio": [0.5, "half"]}}}, "must be a number"),
        ({"params": {"sliding_window": {"w": []}}}, "params.sliding_window: w has no values"),
        ({"seeds": 1.5}, "seeds must be a whole number"),
        ({"seeds": True}, "seeds must be a whole number"),
        ({"seeds": [1.5]}, "a seed must be"),
        ({"packing": 5}, "packing must be a text, not 5"),
        ({"distribution": ["a"]}, "distribution must be a text"),
        ({"level": ["x"]}, "level must be a text"),
        ({"deterministic": "yes"}, "deterministic must be true or false"),
        ({"nproc": True}, "nproc must be a whole number"),
        ({"seqlens": [["1K"]]}, "seqlens must be a list of texts"),
        ({"clock": {"least": 2.5}}, "clock.least must be a whole number"),
        ({"clock": {"budget_s": float("nan")}}, "budget_s must be a finite number over 0"),
        ({"limits": {"time_s": 0}}, "time_s must be a finite number over 0"),
        ({"limits": {"memory": "1M"}}, "needs 1G of memory or more"),
        ({"masks": ["causal"], "packing": "foo"}, "unknown packing 'foo'"),
        ({"masks": ["causal"], "distribution": "foo"}, "unknown length distribution 'foo'"),
    ],
)
def test_a_wrong_suite_is_refused_in_a_sentence(table: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        suite.from_table(table, "mine.toml")
    assert "mine.toml" in str(caught.value)


def test_a_users_file_is_a_suite_and_flags_change_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('kernels = ["torch"]\nseqlens = ["2K"]\n[clock]\nbudget_s = 0.1\n')
    found = run_verb.resolve(
        arguments(str(file), "--masks", "full,causal", "--heads", "8:4", "--seeds", "3", "--budget", "0.2", "--memory", "1G")
    )
    assert (found.kernels, found.masks, found.seqlens, found.heads) == (("torch",), ("full", "causal"), ("2K",), ("8:4",))
    assert (found.seeds, found.clock.budget_s, found.limits.memory) == ((0, 1, 2), 0.2, "1G")
    assert run_verb.resolve(arguments("quick", "--seeds", "42,")).seeds == (42,)


def test_a_deadline_is_for_the_steps_of_a_cell_and_not_for_starting() -> None:
    usual = Limits()
    assert usual.with_deadline(None) == usual
    for seconds in (3.0, 900.0):
        found = usual.with_deadline(seconds)
        assert (found.build_s, found.check_s, found.time_s, found.start_s) == (*[seconds] * 3, max(usual.start_s, seconds))


@pytest.mark.parametrize("flag", ["--budget", "--energy", "--deadline", "--stop-after"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_seconds_that_are_none_are_refused(flag: str, value: str) -> None:
    with pytest.raises(BadInput, match=f"^{flag} must be a number of seconds over 0, not "):
        run_verb.resolve(arguments("quick", flag + "=" + value))


def test_printed_settings_are_read_back_whatever_the_text() -> None:
    found = replace(SMALL, about='a "🦜", a tab\t and an é')
    assert suite.from_table(tomllib.loads(suite.to_toml(found)), "printed") == found


def test_one_work_has_one_key() -> None:
    names = ("causal_document", "share_question")
    plain, drawn = (planned(replace(SMALL, masks=names, packing=packing, passes=("fwd",))) for packing in ("", "draw"))
    for one, other in zip(plain, drawn, strict=True):
        assert (one.key == other.key) == (one.digest == other.digest)
    assert any(one.digest == other.digest for one, other in zip(plain, drawn, strict=True))


def test_a_missing_or_broken_suite_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("kernels = [")
    with pytest.raises(BadInput, match="is not TOML"):
        suite.find(str(tmp_path / "bad.toml"))
    with pytest.raises(BadInput, match="cannot read"):
        suite.find(str(tmp_path / "none.toml"))
    with pytest.raises(BadInput, match="did you mean 'quick'"):
        suite.find("quik")
    with pytest.raises(BadInput, match="name a suite"):
        run_verb.resolve(arguments())


def test_a_workload_becomes_cells(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    steps = [{"mask": "causal_document", "documents": [300, 212]}, {"mask": "sliding_window", "seqlen": 512, "params": {"w": 9}}]
    file.write_text("".join(json.dumps(step) + "\n" for step in [*steps, steps[0]]))
    cells = plan.cells(SMALL, ["torch"], "cpu", read_workload(file))
    assert [(cell.mask, cell.seqlen, cell.which) for cell in cells] == [
        (m, 512, w) for m in ("causal_document", "sliding_window") for w in ("fwd", "bwd")
    ]
    assert cells[0].build_mask().documents == (300, 212)
    assert cells[2].build_mask().params == {"w": 9}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", "must be an object"),
        ('{"mask": "causl", "seqlen": 8}', "did you mean 'causal'"),
        ('{"mask": "causal"}', "needs a seqlen"),
        ('{"mask": "causal", "seqlen": 8, "lengths": [8]}', "unknown field"),
        ('{"mask": "full_document", "documents": [3, 0]}', "documents must be a list"),
        ('{"mask": "full_document", "seqlen": 8, "documents": null}', "line 1: documents must be a list of lengths of 1 or more, not null"),
        ("", "has no steps"),
        ('{"mask": 5, "seqlen": 8}', "line 1 must be an object with a mask"),
        ('{"mask": "causl", "seqlen": 8}', "line 1: unknown mask"),
        ('{"mask": "causal", "seqlen": 8, "params": [1]}', "line 1: params must be an object"),
        ('{"mask": "causal", "seqlen": 8, "params": {"w": 1}}', "line 1: causal has no parameter 'w'"),
        ('{"mask": "causal", "seqlen": 8, "seed": "a"}', "line 1: seed must be a whole number"),
        ('{"mask": "causal", "seqlen": 8, "seed": -1}', "line 1: seed must be a whole number"),
        ('{"mask": "causal", "seqlen": 8, "documents": [8]}', "line 1: causal has no documents"),
        ('{"mask": "full_document", "seqlen": 9, "documents": [8]}', "line 1: "),
    ],
)
def test_a_wrong_workload_is_refused_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "steps.jsonl").write_text(line + "\n")
    with pytest.raises(BadInput, match=message):
        read_workload(tmp_path / "steps.jsonl")


@pytest.mark.parametrize("name", suite.names("models"))
def test_every_model_gives_a_shape(name: str) -> None:
    shaped = with_model(SMALL, name)
    suite.check(shaped)
    assert shaped.heads != SMALL.heads


def test_a_models_window_counts_its_own_key() -> None:
    shaped = with_model(replace(SMALL, masks=("sliding_window_causal",), seqlens=("8K",)), "mistral-7b")
    mask = plan.cells(shaped, ["torch"], "cpu")[0].build_mask()
    starts, ends = mask.row_intervals()
    assert (ends - starts).max() == 4096
