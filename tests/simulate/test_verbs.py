"""`longca plan`, `simulate` and `calibrate` from the command line, and records that other verbs read."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longca.cli import main
from longca.results.reading import read_all
from longca.simulate import run as simulator
from longca.simulate.cluster import find

SHAPE = "--per-gpu 1K --heads 8:4 --head-dim 64"
SMALL = f"{SHAPE} --masks causal_document --seeds 1"
ONE = f"simulate {SMALL} --gpus 4 --methods ulysses --passes fwd"


class Longca:
    """Runs commands, with the exit code that is expected."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def text(self, words: str, code: int = 0) -> str:
        """What a person reads."""
        assert main(shlex.split(words)) == code
        return "".join(self.capsys.readouterr())

    def rows(self, words: str, code: int = 0) -> list[dict[str, Any]]:
        assert main(shlex.split(f"{words} --json")) == code
        return [json.loads(line) for line in self.capsys.readouterr().out.splitlines()]


@pytest.fixture
def longca(capsys: pytest.CaptureFixture[str]) -> Longca:
    return Longca(capsys)


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


def test_plan_says_what_formulas_say(longca: Longca) -> None:
    """Full mask, 8 ranks of 1K tokens: (N-1)/N² t D (2 Hq + 2 max(Hkv, N)) for ulysses, (N-1)/N t 2 Hkv D for rings; 2 bytes each."""
    ulysses, ring = longca.rows(f"plan {SHAPE} --masks full --gpus 8 --passes fwd --methods ulysses,ring_p2p --per-node 4")
    assert ulysses["inside_bytes"] + ulysses["between_bytes"] == 7 * 8192 * 64 * (16 + 16) * 2 // 64
    assert ulysses["inside_bytes"] * 4 == ulysses["between_bytes"] * 3  # 3 of 7 others are in the node
    assert ring["inside_bytes"] == ring["between_bytes"] == 7 * 1024 * 2 * 4 * 64 * 2  # a ring's neighbour is in the node or not
    assert ulysses["pairs"] == ring["pairs"] == 8192 * 8192
    assert ring["tiles"] == 8192 * 8192 // 128**2
    assert (ring["attention_calls"], ring["messages"], ring["imbalance"]) == (8, 7, 1.0)


def test_plan_takes_the_lengths_of_documents(tmp_path: Path, longca: Longca) -> None:
    (tmp_path / "lengths.txt").write_text("3000 5192")
    command = "plan --seqlen 8K --masks causal_document --gpus 2 --passes fwd --methods ulysses"
    command += f" --lengths {tmp_path / 'lengths.txt'}"
    (ulysses,) = longca.rows(command)
    assert ulysses["pairs"] == 64 // 2 * sum(length * (length + 1) // 2 for length in (3000, 5192))
    assert "8K tokens: 2 documents of 3000 to 5192 tokens (given)." in longca.text(command)


def test_plan_lists_what_cannot_be_recorded(longca: Longca) -> None:
    shown = longca.text(f"plan {SHAPE} --masks causal --gpus 4 --methods torch_cp,yunchang_usp,ring_p2p")
    assert "torch_cp calls torch.distributed itself" in shown or "torch_cp is not available here" in shown
    assert "yunchang_usp on 4 GPUs" in shown.replace(" 4x1", "").replace(" 2x2", "")
    assert "ring_p2p " in shown


@pytest.mark.parametrize("flags", ["", "--json"])
@pytest.mark.parametrize("verb", ["plan", "simulate"])
def test_what_no_method_supports_is_no_success(verb: str, flags: str, longca: Longca) -> None:
    shown = longca.text(f"{verb} {SHAPE} --masks causal --gpus 4 --methods halo {flags}", code=2)
    assert "use magi, ring_p2p or ring_allgather" in shown


def test_simulate_writes_records_that_others_read(tmp_path: Path, longca: Longca) -> None:
    command = f"simulate {SMALL} --seeds 2 --gpus 8 --methods ulysses,ring_p2p --out {tmp_path / 'sim'}"
    assert "SIMULATED on h100-ib" in longca.text(command)
    longca.text(command)  # again: the same keys
    records = read_all((tmp_path / "sim",)).records
    assert [(record.method, record.problem.pass_.value, record.problem.seed, record.simulated, record.ok) for record in records] == [
        (method, pass_, seed, "h100-ib", True) for seed in (0, 1) for method in ("ulysses", "ring_p2p") for pass_ in ("fwd", "bwd")
    ]
    longca.text(f"report {tmp_path / 'sim'} --out {tmp_path / 'page'}")


def test_the_answer_of_the_best_comes_first(longca: Longca) -> None:
    """What to use, how sure that is, what bounds it and what would change it; then at most ten rows."""
    shown = longca.text(f"simulate {SMALL} --seeds 2 --gpus 16 --passes fwd --best")
    first, *rest = shown[shown.index("causal_document, 16K tokens on 16 GPUs, fwd: use ") :].splitlines()
    assert "(mean of 2 packs, " in first
    lines_of_answer, table = rest[: rest.index("")], rest[rest.index("") + 1 :]
    assert [sum(line.startswith(words) for line in lines_of_answer) for words in ("fastest in packs: ", "bound by ")] == [1, 1]
    assert table[: table.index("")][0].startswith("method ")
    assert len(table[: table.index("")]) <= 1 + 10


def test_the_best_of_what_is_given(longca: Longca) -> None:
    """A given grid is the only one that is tried; stages are looked for where none are given."""
    command = f"simulate {SMALL} --gpus 4 --passes fwd --best"
    assert [row["grid"] for row in longca.rows(f"{command} --methods usp --grid 2x2")] == ["2x2"]
    assert [row["options"] for row in longca.rows(f"{command} --methods magi")] == ["stages=0", "stages=1", "", "stages=4"]
    assert [row["options"] for row in longca.rows(f"{command} --methods magi --option stages=3")] == ["stages=3"]


def test_every_grid_of_every_method_that_has_a_choice(longca: Longca) -> None:
    rows = longca.rows(f"plan {SMALL} --gpus 4 --methods burst,mesh,ring_p2p --passes fwd --all-grids")
    grids = [(row["method"], row["grid"]) for row in rows]
    assert grids == [("burst", "1x4"), ("burst", "1x4x2"), ("mesh", "1x4"), ("mesh", "2x2"), ("mesh", "4x1"), ("ring_p2p", "1x4")]


def test_relays_are_planned_and_simulated_where_there_are_several_nodes(longca: Longca) -> None:
    """A key crosses between nodes once; with --option node=1 every rank gets it from its owner."""
    command = f"plan {SHAPE} --masks full --gpus 8 --methods magi --passes fwd"
    flags = ("--per-node 4", "--per-node 4 --option node=1", "")
    relayed, flat, one_node = (row for more in flags for row in longca.rows(f"{command} {more}"))
    assert [row["options"] for row in (relayed, flat, one_node)] == ["node=4", "", "stages=1"]
    key = 2 * 4 * 64 * 2
    assert (relayed["between_bytes"], relayed["inside_bytes"]) == (1024 * key, 6 * 1024 * key)
    assert (flat["between_bytes"], flat["inside_bytes"]) == (4 * 1024 * key, 3 * 1024 * key)
    assert (one_node["between_bytes"], one_node["inside_bytes"]) == (0, 7 * 1024 * key)
    packs = f"simulate {SMALL} --seeds 8 --gpus 16 --methods magi --passes fwd"  # on all cores
    assert "magi    1x16 node=8" in longca.text(packs)


def test_options_of_methods_and_measured_records(tmp_path: Path, longca: Longca) -> None:
    """More stages are more calls; records say their options, and are compared with the simulation of the same: those that say what the
    simulation says have no error, others have theirs."""
    stages = f"{SHAPE} --masks causal --gpus 4 --methods magi --option stages=1,4"
    assert [(row["options"], row["attention_calls"]) for row in longca.rows(f"plan {stages} --passes fwd")] == [
        ("stages=1", 2),
        ("stages=4", 4),
    ]
    assert "magi    1x4 stages=4" in longca.text(f"simulate {stages} --out {tmp_path}")
    assert {record.split.options for record in read_all((tmp_path,)).records if record.split} == {"stages=1", "stages=4"}
    measured(tmp_path, slower=2)
    errors = [row["error"] for row in longca.rows(f"simulate --against {tmp_path}")]
    assert errors == pytest.approx([-0.5, 0.0, 0.0, 0.0], abs=1e-6)


def test_the_simulation_that_recommend_names(tmp_path: Path, longca: Longca) -> None:
    """With softcap and sinks; and with the file of a plugin's mask."""
    question = "recommend --mask causal --seqlen 4K --heads 8:4 --head-dim 64 --gpus 4 --softcap 50 --sinks"
    (command,) = (line for line in longca.text(question, code=4).splitlines() if "longca simulate" in line)
    longca.text(f"simulate {command.partition('longca simulate ')[2]} --methods ulysses --out {tmp_path}")
    assert {(record.problem.softcap, record.problem.sinks) for record in read_all((tmp_path,)).records} == {(50.0, True)}
    file = tmp_path / "mine.py"
    file.write_text("import longca\n\n@longca.mask\ndef all_before(seqlen):\n    return longca.masks.causal(seqlen)\n")
    shown = longca.text(f"recommend --plugin {file} --mask all_before --seqlen 4K --gpus 4", code=4)
    assert f"--plugin {file}" in next(line for line in shown.splitlines() if "longca simulate" in line)


def test_timelines_and_json(tmp_path: Path, longca: Longca) -> None:
    command = f"simulate {SMALL} --gpus 8 --methods ring_p2p --passes bwd --trace {tmp_path / 't.json'} --ranks 0,5"
    (result,) = longca.rows(command)
    written = json.loads((tmp_path / "t.json").read_text())
    events = written["traceEvents"]
    assert written["otherData"]["title"].startswith("ring_p2p 1x8 on h100-ib (simulated): causal_document, 8K tokens")
    assert {event["pid"] for event in events} == {0, 5}
    assert max(event["ts"] + event["dur"] for event in events if event["ph"] == "X") <= result["ms"] * 1e3 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"{ONE} --trace t.json --passes fwd,bwd", "a timeline is of one method"),
        (f"{ONE} --trace t.json --methods usp --best", "of which --best makes several"),
        (f"{ONE} --trace t.json --ranks 0,4", "--ranks must be numbers of ranks from 0 to 3"),
        ("simulate --ranks 0", "--ranks are those of --trace"),
        ("simulate --validate --gpus 8", "--gpus does nothing beside --validate, which takes --cluster, --constant, --json"),
        ("simulate --validate --best", "--best does nothing beside --validate"),
        ("simulate --validate --against there", "--against does nothing beside --validate"),
        ("simulate --against there --head-dim 64", "--head-dim does nothing beside --against, which takes --cluster, --constant, --json"),
        ("simulate --against nowhere", "nowhere"),
        (f"{ONE} --gpus many", "--gpus must be numbers such as 8,16,64"),
        (f"{ONE} --gpus 9999", "--gpus must be from 1 to 4096"),
        (f"{ONE} --seqlen 1K", "give one of them"),
        (f"{ONE} --cluster h1000", "h100-ib"),
        (f"{ONE} --constant between.speed=2", "is no constant of a cluster"),
        (f"{ONE} --constant between.gb_s=-1", "between.gb_s"),
        (f"{ONE} --constant per_node=2.5", "per_node"),
        (f"{ONE} --constant between.gb_s", "write a constant such as between.gb_s=100"),
        (f"{ONE} --kernels sdpa,fa4", "methods are compared on one kernel, and --kernels has 2; give one."),
        (f"{ONE} --option stages=4", "none of these methods has an option 'stages'"),
        (f"{ONE} --dtype fp32", "does not reach with fp32; give --dtype bf16 or fp16"),
        (f"plan {SMALL} --gpus 8 --grid 2x4 --all-grids", "--grid gives one grid, and --all-grids asks for all of them"),
        ("calibrate nowhere", "nowhere"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_simulated(
    words: str, message: str, longca: Longca, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulator, "simulate_job", lambda job: pytest.fail("it was simulated"))
    assert message in longca.text(words, code=2)


def test_the_error_is_of_the_method_on_this_kind_of_mask(longca: Longca) -> None:
    """And methods, masks, clusters and shapes that were never compared are named."""
    common = "simulate --seeds 1 --passes fwd --gpus"
    one = longca.text(f"{common} 8 --masks causal --methods ulysses")
    assert "error on full and causal" in one
    assert "never" not in one
    both = longca.text(f"{common} 8 --masks causal --methods ulysses,ring_p2p,magi --passes fwd,bwd")
    assert both.count("error on full and causal") == 1  # the order of speed differs between the passes, the errors do not
    layers = f"{common} 8 --masks causal --methods ulysses --model gemma3-27b --best"  # most of its layers have a window
    for words, sentence in (
        (f"{common} 8 --masks causal_document --methods ulysses,mesh", "never compared on documents: mesh"),
        (layers, "never compared on other masks: ulysses"),
        (f"{common} 8 --methods ulysses --cluster a100-ib", "compared with no measurement"),
        (f"{common} 8 --methods ulysses --constant compute.host_us=10", "compared with no measurement"),
        (f"{common} 4 --methods ulysses --per-gpu 1K --head-dim 192/128", "never compared: 4 GPUs, 1K tokens per GPU, these heads"),
        (f"{common} 8 --methods ulysses --constant per_node=4 --softcap 50 --sinks", "never compared: 4 GPUs per node, softcap, sinks)"),
        (f"{common} 4 --methods ulysses --per-gpu 1K --cluster h200-ib", "Transfers and other shapes were not compared"),
    ):
        assert sentence in " ".join(longca.text(words).split()), words


def test_the_error_of_attention_calls_is_that_of_the_docs() -> None:
    """doc_tables.py computes it there."""
    page = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()
    found = re.search(r"The median error of the (\d+) cells is (\d+ %) forward and (\d+ %) backward", page)
    assert found is not None
    assert f"within ±{found[2]} forward and ±{found[3]} backward" in find("h200-ib")[1].compared
    assert f"for {found[1]} pairs of method and mask" in find("h200-ib")[1].compared


def test_dtypes_that_reach_the_speed_of_the_cluster(longca: Longca) -> None:
    for more in ("--dtype fp16", "--dtype fp32 --kernels torch --constant compute.forward_tflops=50"):
        longca.rows(f"{ONE} {more}")
    (row,) = longca.rows(f"{ONE} --dtype fp32 --cluster cpu-gloo")
    assert f" {row['tflops']:.3g} " in longca.text(f"{ONE} --dtype fp32 --cluster cpu-gloo")  # not "0"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("plan --masks uniform_block --kernels fa3", "fa3: fa3 takes masks made of bands, not block patterns"),
        ("simulate --masks causal_document --seeds 1 --kernels sdpa:flash", "sdpa:flash: sdpa:flash takes only full masks on cuda"),
        ("simulate --masks causal --head-dim 192/128 --passes bwd", "fa4: fa4 has no backward for grouped heads"),
        ("simulate --kernels fa3 --cluster cpu-gloo --dtype fp32", "fa3: fa3 runs on cuda only"),
    ],
)
def test_what_the_kernel_cannot_do_is_refused_with_its_reason(words: str, reason: str, longca: Longca) -> None:
    verb, _, more = words.partition(" ")
    shown = longca.text(f"{verb} --per-gpu 1K --gpus 4 --methods ulysses --passes fwd {more}", code=2)
    assert f": ulysses cannot use the kernel {reason}" in shown
    assert "changes memory" not in shown


def test_a_kernel_that_can_do_a_part_of_the_methods(tmp_path: Path, longca: Longca) -> None:
    """On causal masks, fa3 takes the steps of a ring, but not the rows of a rank over the gathered keys."""
    command = f"simulate {SHAPE} --masks causal --gpus 4 --methods ring_p2p,ring_allgather --passes fwd --kernels"
    ring, gathered = longca.rows(f"{command} fa3 --out {tmp_path}")
    assert (ring["status"], gathered["status"]) == ("ok", "unsupported")
    assert "for a part of the mask, 1024 queries and 4096 keys: fa3 cannot take this mask" in gathered["reason"]
    assert [record.reason for record in read_all((tmp_path,)).records] == ["", gathered["reason"]]
    # `best` chooses kernels that a cluster has, and not those of this machine
    assert "--kernels changes memory, copies and what is refused." in longca.text(f"{command} best")


def test_grids_that_are_refused_for_one_reason_share_a_line(longca: Longca) -> None:
    shown = longca.text("simulate --per-gpu 1K --gpus 4 --methods halo,ulysses --passes fwd --best")
    (refused,) = (line for line in shown.splitlines() if line.startswith("halo"))
    assert refused.startswith("halo 1x4 stages=0, 1x4 stages=1, 1x4, 1x4 stages=4 on 4 GPUs, causal: halo cannot do this: ")


def test_a_faster_network_is_never_slower(longca: Longca) -> None:
    command = f"simulate {SMALL} --gpus 16 --methods ring_allgather --constant between.gb_s"
    speeds = [[row["ms"] for row in longca.rows(f"{command}={bandwidth}")] for bandwidth in (10, 50, 400)]
    assert all(list(times) == sorted(times, reverse=True) for times in zip(*speeds, strict=True))


def test_what_does_not_fit_is_out_of_memory(longca: Longca) -> None:
    """A rank that holds more than a GPU has is as little an answer as a method that cannot do it."""
    assert [row["status"] for row in longca.rows(f"{ONE} --constant memory_gib=0.001", code=2)] == ["oom"]
    assert "and a GPU has" in longca.text(f"{ONE} --constant memory_gib=0.001", code=2)


def test_calibrate_writes_a_cluster(tmp_path: Path, longca: Longca) -> None:
    sizes = [1 << shift for shift in range(10, 28, 2)]
    common = {"op": "p2p", "ranks": 2, "nodes": 1, "backend": "nccl", "device": "cuda"}
    transfers = [{**common, "bytes": size, "seconds": [1e-5 + size / 2e11]} for size in sizes]
    (tmp_path / "transfers.jsonl").write_text("\n".join(map(json.dumps, transfers)))
    assert "inside.gb_s = 200 from 9 measurements" in longca.text(f"calibrate {tmp_path} --out {tmp_path / 'mine.toml'}")
    assert {row["cluster"] for row in longca.rows(f"{ONE} --cluster {tmp_path / 'mine.toml'}")} == {"mine"}


def test_a_simulation_does_not_load_the_compiler() -> None:
    """It takes a second, and torch loads it for some operations on meta tensors."""
    asked = 'gpus=8, grid="4x2", per_gpu="1K", seeds=1, passes="bwd", progress=False'
    code = f'import sys, longca; longca.simulate("mesh", "causal_document", {asked}); assert "torch._dynamo" not in sys.modules'
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0
