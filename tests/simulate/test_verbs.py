"""`longca plan`, `simulate` and `calibrate` from the command line, and records that other verbs read."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from longca.cli import main
from longca.masks import own
from longca.results.reading import read_all
from longca.simulate import run as simulator
from longca.simulate.cluster import find

Captured = pytest.CaptureFixture[str]
SMALL = ["--per-gpu", "1K", "--heads", "8:4", "--head-dim", "64", "--masks", "causal_document"]


def lines(capsys: Captured) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def measured(folder: Path, slower: int = 1) -> None:
    """Simulated records become measured ones, the first of them so many times as slow."""
    path = folder / "results.jsonl"
    records = [json.loads(line) | {"simulated": None} for line in path.read_text().splitlines()]
    times = records[0]["timed"]
    times |= {name: times[name] * slower for name in ("median", "p20", "p80")} | {"samples": [times["median"] * slower]}
    times |= {name: times[name] / slower for name in ("tflops", "mfu")}
    assert all(record["status"] == "ok" for record in records)
    for record in records:
        record["check"] = {"out": {"error": 0.0, "allowed": 1.0}}
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_plan_says_what_formulas_say(capsys: Captured) -> None:
    """Full mask, 8 ranks of 1K tokens: (N-1)/N² t D (2 Hq + 2 max(Hkv, N)) for ulysses, (N-1)/N t 2 Hkv D for rings; 2 bytes each."""
    full = ["--per-gpu", "1K", "--heads", "8:4", "--head-dim", "64", "--masks", "full", "--gpus", "8", "--passes", "fwd"]
    assert main(["plan", *full, "--methods", "ulysses,ring_p2p", "--per-node", "4", "--json"]) == 0
    ulysses, ring = lines(capsys)
    assert ulysses["inside_bytes"] + ulysses["between_bytes"] == 7 * 8192 * 64 * (16 + 16) * 2 // 64
    assert ulysses["inside_bytes"] * 4 == ulysses["between_bytes"] * 3  # 3 of 7 others are in the node
    assert ring["inside_bytes"] == ring["between_bytes"] == 7 * 1024 * 2 * 4 * 64 * 2  # a ring's neighbour is in the node or not
    assert ulysses["pairs"] == ring["pairs"] == 8192 * 8192
    assert ring["tiles"] == 8192 * 8192 // 128**2
    assert (ring["attention_calls"], ring["messages"], ring["imbalance"]) == (8, 7, 1.0)


def test_plan_takes_the_lengths_of_documents(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "lengths.txt").write_text("3000 5192")
    shape = ["--seqlen", "8K", "--masks", "causal_document", "--gpus", "2", "--passes", "fwd", "--methods", "ulysses"]
    assert main(["plan", *shape, "--lengths", str(tmp_path / "lengths.txt"), "--json"]) == 0
    (ulysses,) = lines(capsys)
    assert ulysses["pairs"] == 64 // 2 * sum(length * (length + 1) // 2 for length in (3000, 5192))
    assert main(["plan", *shape, "--lengths", str(tmp_path / "lengths.txt")]) == 0
    assert "8K tokens: 2 documents of 3000 to 5192 tokens (given)." in capsys.readouterr().out


def test_plan_lists_what_cannot_be_recorded(capsys: Captured) -> None:
    assert main(["plan", *SMALL[:-1], "causal", "--gpus", "4", "--methods", "torch_cp,yunchang_usp,ring_p2p"]) == 0
    shown = capsys.readouterr().out
    assert "torch_cp calls torch.distributed itself" in shown or "torch_cp is not available here" in shown
    assert "yunchang_usp on 4 GPUs" in shown.replace(" 4x1", "").replace(" 2x2", "")
    assert "ring_p2p " in shown


@pytest.mark.parametrize("flags", [[], ["--json"]])
@pytest.mark.parametrize("verb", ["plan", "simulate"])
def test_what_no_method_supports_is_no_success(verb: str, flags: list[str], capsys: Captured) -> None:
    assert main([verb, *SMALL[:-1], "causal", "--gpus", "4", "--methods", "halo", *flags]) == 2
    assert "use magi, ring_p2p or ring_allgather" in capsys.readouterr().out


def test_simulate_writes_records_that_others_read(tmp_path: Path, capsys: Captured) -> None:
    command = ["simulate", *SMALL, "--gpus", "8", "--methods", "ulysses,ring_p2p", "--out", str(tmp_path / "sim")]
    assert main(command) == 0
    assert "SIMULATED on h100-ib" in capsys.readouterr().out
    assert main(command) == 0  # again: the same keys
    records = read_all((tmp_path / "sim",)).records
    assert [(record.method, record.problem.pass_.value, record.simulated, record.ok) for record in records] == [
        (method, pass_, "h100-ib", True) for _ in range(8) for method in ("ulysses", "ring_p2p") for pass_ in ("fwd", "bwd")
    ]
    assert {record.problem.seed for record in records} == set(range(8))
    assert main(["report", str(tmp_path / "sim"), "--out", str(tmp_path / "page")]) == 0


def test_the_answer_of_the_best_comes_first(capsys: Captured) -> None:
    """What to use, how sure that is, what bounds it and what would change it; then at most ten rows."""
    assert main(["simulate", *SMALL, "--gpus", "16", "--passes", "fwd", "--best"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("causal_document, 16K tokens on 16 GPUs, fwd: use ")
    assert "(mean of 8 packs, " in first
    lines_of_answer, table = rest[: rest.index("")], rest[rest.index("") + 1 :]
    assert [sum(line.startswith(words) for line in lines_of_answer) for words in ("fastest in packs: ", "bound by ")] == [1, 1]
    assert table[: table.index("")][0].startswith("method ")
    assert len(table[: table.index("")]) <= 1 + 10


def test_a_given_grid_is_the_only_one_that_is_tried(capsys: Captured) -> None:
    words = [*SMALL, "--gpus", "8", "--methods", "usp", "--passes", "fwd", "--grid", "2x4"]
    assert main(["simulate", *words, "--best", "--json"]) == 0
    assert [result["grid"] for result in lines(capsys)] == ["2x4"] * 8
    assert main(["plan", *words, "--all-grids"]) == 2
    assert "--grid gives one grid, and --all-grids asks for all of them" in capsys.readouterr().err


def test_the_best_number_of_stages_is_looked_for(capsys: Captured) -> None:
    common = ["simulate", *SMALL, "--gpus", "4", "--methods", "magi", "--passes", "fwd", "--best", "--seeds", "1", "--json"]
    assert main(common) == 0
    assert [row["options"] for row in lines(capsys)] == ["stages=0", "stages=1", "", "stages=4"]
    assert main([*common, "--option", "stages=3"]) == 0
    assert [row["options"] for row in lines(capsys)] == ["stages=3"]


def test_every_grid_of_every_method_that_has_a_choice(capsys: Captured) -> None:
    assert main(["plan", *SMALL, "--gpus", "4", "--methods", "burst,mesh,ring_p2p", "--passes", "fwd", "--all-grids", "--json"]) == 0
    grids = [(row["method"], row["grid"]) for row in lines(capsys)]
    assert grids == [("burst", "1x4"), ("burst", "1x4x2"), ("mesh", "1x4"), ("mesh", "2x2"), ("mesh", "4x1"), ("ring_p2p", "1x4")]


def test_relays_are_planned_and_simulated_where_there_are_several_nodes(capsys: Captured) -> None:
    """A key crosses between nodes once; with --option node=1 every rank gets it from its owner."""
    common = ["plan", *SMALL[:-1], "full", "--gpus", "8", "--methods", "magi", "--passes", "fwd", "--json"]
    assert main([*common, "--per-node", "4"]) == 0
    assert main([*common, "--per-node", "4", "--option", "node=1"]) == 0
    assert main(common) == 0
    relayed, flat, one_node = lines(capsys)
    assert [row["options"] for row in (relayed, flat, one_node)] == ["node=4", "", "stages=1"]
    key = 2 * 4 * 64 * 2
    assert (relayed["between_bytes"], relayed["inside_bytes"]) == (1024 * key, 6 * 1024 * key)
    assert (flat["between_bytes"], flat["inside_bytes"]) == (4 * 1024 * key, 3 * 1024 * key)
    assert (one_node["between_bytes"], one_node["inside_bytes"]) == (0, 7 * 1024 * key)
    assert main(["simulate", *SMALL, "--gpus", "16", "--methods", "magi"]) == 0
    assert "magi    1x16 node=8" in capsys.readouterr().out


def test_options_of_methods(tmp_path: Path, capsys: Captured) -> None:
    """More stages are more calls; records say their options, and are compared with the simulation of the same."""
    stages = [*SMALL, "--gpus", "4", "--methods", "magi", "--masks", "causal", "--option", "stages=1,4"]
    assert main(["plan", *stages, "--passes", "fwd", "--json"]) == 0
    assert [(row["options"], row["attention_calls"]) for row in lines(capsys)] == [("stages=1", 2), ("stages=4", 4)]
    assert main(["simulate", *stages, "--out", str(tmp_path)]) == 0
    assert "magi    1x4 stages=4" in capsys.readouterr().out
    assert {record.split.options for record in read_all((tmp_path,)).records} == {"stages=1", "stages=4"}
    measured(tmp_path)
    assert main(["simulate", "--against", str(tmp_path), "--json"]) == 0
    assert [line["error"] for line in lines(capsys)] == pytest.approx([0.0] * 4, abs=1e-6)
    assert main(["plan", *SMALL, "--methods", "ulysses", "--option", "stages=4"]) == 2
    assert "none of these methods has an option 'stages'" in capsys.readouterr().err


def test_softcap_and_sinks_as_recommend_names_them(tmp_path: Path, capsys: Captured) -> None:
    question = ["--mask", "causal", "--seqlen", "4K", "--heads", "8:4", "--head-dim", "64", "--gpus", "4", "--softcap", "50", "--sinks"]
    assert main(["recommend", *question]) == 4
    (command,) = (line.partition("longca simulate ")[2] for line in capsys.readouterr().out.splitlines() if "longca simulate" in line)
    assert main(["simulate", *shlex.split(command), "--methods", "ulysses", "--out", str(tmp_path)]) == 0
    assert {(record.problem.softcap, record.problem.sinks) for record in read_all((tmp_path,)).records} == {(50.0, True)}


def test_the_simulation_of_a_mask_of_a_plugin_names_its_file(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in ("OWN", "_files"):
        monkeypatch.setattr(own, registry, dict(getattr(own, registry)))
    file = tmp_path / "mine.py"
    file.write_text("import longca\n\n@longca.mask\ndef all_before(seqlen):\n    return longca.masks.causal(seqlen)\n")
    assert main(["recommend", "--plugin", str(file), "--mask", "all_before", "--seqlen", "4K", "--gpus", "4"]) == 4
    (command,) = (line for line in capsys.readouterr().out.splitlines() if "longca simulate" in line)
    assert command.endswith(f"--plugin {file}")


def test_timelines_and_json(tmp_path: Path, capsys: Captured) -> None:
    one = ["simulate", *SMALL, "--gpus", "8", "--methods", "ring_p2p", "--passes", "bwd"]
    assert main([*one, "--json", "--trace", str(tmp_path / "t.json"), "--ranks", "0,5"]) == 0
    (result,) = lines(capsys)
    written = json.loads((tmp_path / "t.json").read_text())
    events = written["traceEvents"]
    assert written["otherData"]["title"].startswith("ring_p2p 1x8 on h100-ib (simulated): causal_document, 8K tokens")
    assert {event["pid"] for event in events} == {0, 5}
    assert max(event["ts"] + event["dur"] for event in events if event["ph"] == "X") <= result["ms"] * 1e3 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--passes", "fwd,bwd"], "a timeline is of one method"),
        (["--methods", "usp", "--best"], "of which --best makes several"),
        (["--ranks", "0,8"], "--ranks must be numbers of ranks from 0 to 7"),
    ],
)
def test_timelines_are_refused_before_anything_is_simulated(
    arguments: list[str], message: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulator, "simulate_job", lambda job: pytest.fail("it was simulated"))
    one = ["simulate", *SMALL, "--gpus", "8", "--methods", "ring_p2p", "--passes", "fwd", "--trace", str(tmp_path / "t.json")]
    assert main([*one, *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--validate", "--gpus", "8"], "--gpus does nothing beside --validate, which takes --cluster, --constant, --json"),
        (["--validate", "--out", "there"], "--out does nothing beside --validate"),
        (["--validate", "--best"], "--best does nothing beside --validate"),
        (["--validate", "--against", "there"], "--against does nothing beside --validate"),
        (["--against", "there", "--head-dim", "64"], "--head-dim does nothing beside --against, which takes --cluster, --constant, --json"),
        (["--ranks", "0"], "--ranks are those of --trace"),
    ],
)
def test_flags_that_would_do_nothing_are_refused(arguments: list[str], message: str, capsys: Captured) -> None:
    assert main(["simulate", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_validation_as_one_json_object(capsys: Captured) -> None:
    """A cluster whose ranks share cores is compared with gloo records alone."""
    assert main(["simulate", "--validate", "--json", "--cluster", "cpu-gloo"]) == 0
    (result,) = lines(capsys)
    points: list[dict[str, float]] = result["points"]  # type: ignore[assignment]
    assert (result["cluster"], result["compared"]) == ("cpu-gloo", len(points))
    assert abs(sum(abs(point["error"]) <= result["error"] for point in points) - len(points) / 2) <= 1  # type: ignore[operator]


def test_the_error_is_of_the_method_on_this_kind_of_mask(capsys: Captured) -> None:
    """And methods, masks and clusters that were never compared are named."""
    common = ["simulate", "--gpus", "8", "--seeds", "1", "--passes", "fwd"]

    def shown(*words: str) -> str:
        assert main([*common, *words]) == 0
        return capsys.readouterr().out

    one = shown("--masks", "causal", "--methods", "ulysses")
    assert "error on full and causal" in one
    both = shown("--masks", "causal", "--methods", "ulysses,ring_p2p,magi", "--passes", "fwd,bwd")
    assert both.count("error on full and causal") == 1  # the order of speed differs between the passes, the errors do not
    assert "never" not in one
    assert "never compared on documents: mesh" in shown("--masks", "causal_document", "--methods", "ulysses,mesh")
    assert "never compared on other masks: ulysses" in shown("--masks", "sliding_window", "--methods", "ulysses")
    layers = shown("--masks", "causal", "--methods", "ulysses", "--model", "gemma3-27b", "--best")
    assert "never compared on other masks: ulysses" in layers, "most of its layers have a window"
    assert "compared with no measurement" in shown("--masks", "causal", "--methods", "ulysses", "--cluster", "a100-ib")
    assert "compared with no measurement" in shown("--masks", "causal", "--methods", "ulysses", "--constant", "compute.host_us=10")


def test_what_was_not_compared_is_named(capsys: Captured) -> None:
    common = ["simulate", "--methods", "ulysses", "--passes", "fwd"]
    assert main([*common, "--per-gpu", "1K", "--gpus", "4", "--head-dim", "192/128"]) == 0
    assert "never compared: 4 GPUs, 1K tokens per GPU, these heads" in capsys.readouterr().out
    assert main([*common, "--gpus", "8"]) == 0
    assert "never" not in capsys.readouterr().out
    assert main([*common, "--gpus", "8", "--constant", "per_node=4", "--softcap", "50", "--sinks"]) == 0
    assert "never compared: 4 GPUs per node, softcap, sinks)" in capsys.readouterr().out
    assert main([*common, "--per-gpu", "1K", "--gpus", "4", "--cluster", "h200-ib"]) == 0
    assert "Transfers and other shapes were not compared" in " ".join(capsys.readouterr().out.split())


def test_the_error_of_attention_calls_is_that_of_the_docs() -> None:
    """doc_tables.py computes it there."""
    page = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()
    found = re.search(r"The median error of the (\d+) cells is (\d+ %) forward and (\d+ %) backward", page)
    assert found is not None
    assert f"within ±{found[2]} forward and ±{found[3]} backward" in find("h200-ib")[1].compared
    assert f"for {found[1]} pairs of method and mask" in find("h200-ib")[1].compared


def test_a_dtype_that_cannot_reach_the_speed_of_the_cluster_is_refused(capsys: Captured) -> None:
    common = ["simulate", *SMALL, "--seeds", "1", "--gpus", "4", "--methods", "ulysses", "--passes", "fwd"]
    for dtype in ("fp32", "fp64"):
        assert main([*common, "--dtype", dtype]) == 2
        assert f"does not reach with {dtype}; give --dtype bf16 or fp16" in capsys.readouterr().err
    assert main([*common, "--dtype", "fp16"]) == 0
    assert main([*common, "--dtype", "fp32", "--kernels", "torch", "--constant", "compute.forward_tflops=50"]) == 0
    assert main(["plan", *common[1:], "--dtype", "fp32", "--kernels", "torch"]) == 0
    capsys.readouterr()
    assert main([*common, "--dtype", "fp32", "--cluster", "cpu-gloo", "--json"]) == 0
    (row,) = lines(capsys)
    assert main([*common, "--dtype", "fp32", "--cluster", "cpu-gloo"]) == 0
    assert f" {row['tflops']:.3g} " in capsys.readouterr().out  # not "0"


def test_one_kernel_runs_on_all_ranks(capsys: Captured) -> None:
    common = ["simulate", *SMALL, "--gpus", "4", "--methods", "ulysses", "--passes", "fwd"]
    assert main([*common, "--kernels", "sdpa,fa4"]) == 2
    assert "methods are compared on one kernel, and --kernels has 2; give one." in capsys.readouterr().err
    assert main([*common, "--kernels", "torch"]) == 0
    assert "--kernels changes memory, copies and what is refused." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("verb", "arguments", "reason"),
    [
        ("plan", ["--masks", "uniform_block", "--kernels", "fa3"], "fa3: fa3 takes masks made of bands, not block patterns"),
        ("simulate", ["--masks", "causal_document", "--kernels", "sdpa:flash"], "sdpa:flash: sdpa:flash takes only full masks on cuda"),
        ("simulate", ["--masks", "causal", "--head-dim", "192/128", "--passes", "bwd"], "fa4: fa4 has no backward for grouped heads"),
        ("simulate", ["--kernels", "fa3", "--cluster", "cpu-gloo", "--dtype", "fp32"], "fa3: fa3 runs on cuda only"),
    ],
)
def test_what_the_kernel_cannot_do_is_refused_with_its_reason(verb: str, arguments: list[str], reason: str, capsys: Captured) -> None:
    common = [verb, "--per-gpu", "1K", "--gpus", "4", "--methods", "ulysses", "--passes", "fwd"]
    assert main([*common, *arguments]) == 2
    shown = capsys.readouterr().out
    assert f": ulysses cannot use the kernel {reason}" in shown
    assert "changes memory and copies only" not in shown


def test_a_kernel_that_can_do_a_part_of_the_methods(tmp_path: Path, capsys: Captured) -> None:
    """On causal masks, fa3 takes the steps of a ring, but not the rows of a rank over the gathered keys."""
    command = ["simulate", *SMALL[:-1], "causal", "--gpus", "4", "--methods", "ring_p2p,ring_allgather", "--kernels", "fa3"]
    assert main([*command, "--passes", "fwd", "--json", "--out", str(tmp_path)]) == 0
    ring, gathered = lines(capsys)
    assert (ring["status"], gathered["status"]) == ("ok", "unsupported")
    assert "for a part of the mask, 1024 queries and 4096 keys: fa3 cannot take this mask" in str(gathered["reason"])
    assert [record.reason for record in read_all((tmp_path,)).records] == ["", gathered["reason"]]
    assert main([*command[:-1], "best", "--passes", "fwd"]) == 0  # it chooses kernels that a cluster has, and not those of this machine


def test_grids_that_are_refused_for_one_reason_share_a_line(capsys: Captured) -> None:
    assert main(["simulate", "--per-gpu", "1K", "--gpus", "4", "--methods", "halo,ulysses", "--passes", "fwd", "--best"]) == 0
    refused = [line for line in capsys.readouterr().out.splitlines() if line.startswith("halo")]
    assert len(refused) == 1
    assert refused[0].startswith("halo 1x4 stages=0, 1x4 stages=1, 1x4, 1x4 stages=4 on 4 GPUs, causal: halo cannot do this: ")


def test_a_faster_network_is_never_slower(capsys: Captured) -> None:
    speeds = []
    for bandwidth in (10, 50, 400):
        constant = ["--constant", f"between.gb_s={bandwidth}"]
        assert main(["simulate", *SMALL, "--gpus", "16", "--methods", "ring_allgather", "--json", *constant]) == 0
        speeds.append([line["ms"] for line in lines(capsys)])
    assert all(slow >= fast for slow, fast in zip(speeds[0], speeds[1], strict=True))
    assert all(slow >= fast for slow, fast in zip(speeds[1], speeds[2], strict=True))


def test_what_does_not_fit_is_out_of_memory(capsys: Captured) -> None:
    """A rank that holds more than a GPU has is as little an answer as a method that cannot do it."""
    command = ["simulate", *SMALL, "--gpus", "8", "--methods", "ulysses", "--constant", "memory_gib=0.001"]
    assert main([*command, "--json"]) == 2
    assert {line["status"] for line in lines(capsys)} == {"oom"}
    assert main(command) == 2
    assert "and a GPU has" in capsys.readouterr().out


def test_calibrate_writes_a_cluster(tmp_path: Path, capsys: Captured) -> None:
    sizes = [1 << shift for shift in range(10, 28, 2)]
    common = {"op": "p2p", "ranks": 2, "nodes": 1, "backend": "nccl", "device": "cuda"}
    transfers = [{**common, "bytes": size, "seconds": [1e-5 + size / 2e11]} for size in sizes]
    (tmp_path / "transfers.jsonl").write_text("\n".join(map(json.dumps, transfers)))
    assert main(["calibrate", str(tmp_path), "--out", str(tmp_path / "mine.toml")]) == 0
    assert "inside.gb_s = 200 from 9 measurements" in capsys.readouterr().err
    assert main(["simulate", *SMALL, "--gpus", "8", "--methods", "ulysses", "--cluster", str(tmp_path / "mine.toml"), "--json"]) == 0
    assert {line["cluster"] for line in lines(capsys)} == {"mine"}
    assert main(["calibrate", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "many"], "--gpus must be numbers such as 8,16,64"),
        (["--gpus", "99999999999999"], "--gpus must be from 1 to 4096, not 99999999999999"),
        (["--gpus", "9999"], "--gpus must be from 1 to 4096"),
        (["--seqlen", "1K"], "give one of them"),
        (["--cluster", "h1000"], "h100-ib"),
        (["--constant", "between.speed=2"], "is no constant of a cluster"),
        (["--constant", "between.gb_s=-1"], "between.gb_s"),
        (["--constant", "per_node=2.5"], "per_node"),
        (["--constant", "between.gb_s"], "write a constant such as between.gb_s=100"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], message: str, capsys: Captured) -> None:
    assert main(["simulate", *SMALL, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_measured_records_are_compared_with_their_simulation(tmp_path: Path, capsys: Captured) -> None:
    """Records that say what the simulation says have no error; others have theirs."""
    command = ["simulate", *SMALL, "--seeds", "1", "--gpus", "4", "--methods", "ring_p2p,usp", "--out", str(tmp_path)]
    assert main(command) == 0
    measured(tmp_path, slower=2)
    capsys.readouterr()
    assert main(["simulate", "--against", str(tmp_path), "--json"]) == 0
    assert [line["error"] for line in lines(capsys)] == pytest.approx([-0.5, 0.0, 0.0, 0.0], abs=1e-6)
    assert main(["simulate", "--against", str(tmp_path / "none")]) == 2


def test_a_simulation_does_not_load_the_compiler() -> None:
    """It takes a second, and torch loads it for some operations on meta tensors."""
    asked = 'gpus=8, grid="4x2", per_gpu="1K", seeds=1, passes="bwd", progress=False'
    code = f'import sys, longca; longca.simulate("mesh", "causal_document", {asked}); assert "torch._dynamo" not in sys.modules'
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0
