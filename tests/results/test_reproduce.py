"""The command of a record plans the same cell again: the same key, whatever was given to measure it."""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longca import masks as known_masks
from longca.api.request import RunRequest, resolve
from longca.bench.many_devices.level import ManyDevices
from longca.bench.plan.cells import Planned, make_cells, plan
from longca.bench.plan.workload import read_workload
from longca.bench.run.outcomes import make_record as record_of
from longca.cli import main
from longca.cli import run as run_verb
from longca.cli._flags import call
from longca.results.reading import read
from longca.results.record import Environment, LevelName, Masks, Outcome, Record, Status
from longca.results.reproduce import command
from longca.results.schema import decode_environments, decode_record
from longca.results.settings import ClockSettings
from report.made import line, make_record

VERSIONS = {name: {"torch": "2"} for name in ("torch", "torch:plain", "torch:chunked", "flex", "fa4:bands")}
OWN_MASKS = str(Path(__file__).parents[1] / "bench" / "plugins" / "own_masks.py")
SHAPE = ["--heads", "8:2", "--head-dim", "32", "--dtype", "fp32"]


def refused(entry: Planned, **fields: Any) -> Record:
    """The record of a cell that the kernel refused."""
    return record_of(entry, Outcome(status=Status.UNSUPPORTED, reason="not today", **fields), "e")


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    run_verb.add_arguments(parser)
    return parser.parse_args(words)


def planned(words: list[str], device: str) -> list[Planned]:
    args = arguments(words)
    suite = resolve(call(RunRequest, args))
    steps = read_workload(args.workload) if args.workload else []
    place = args.device or device
    if suite.level is LevelName.CP:
        many = ManyDevices(suite, place, nproc=args.nproc, grid=args.grid)
        return plan(many.cells(steps), "a device", VERSIONS | many.catalogue.methods)
    return plan(make_cells(suite, list(suite.kernels), place, steps), "a device", VERSIONS)


def again(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Planned]:
    """What the command plans, after doing what stands before it."""
    words = shlex.split(text)
    if words[0] == "echo":
        monkeypatch.chdir(folder)
        (folder / words[3]).write_text(words[1] + "\n")
        words = words[words.index("&&") + 1 :]
    assert words[:2] == ["longca", "run"]
    return planned(words[2:], "cuda")


ASKED = [
    ["--kernels", "torch,flex", "--masks", "all", "--seqlens", "997,2K", "--passes", "fwd,bwd", "--seeds", "2"],
    ["--kernels", "torch:plain", "--masks", "causal", "--seqlens", "512", "--passes", "fwd+bwd", "--deterministic"],
    ["--kernels", "fa4:bands", "--masks", "causal", "--seqlens", "1K", "--passes", "bwd", "--head-dim", "192/128", "--dtype", "bf16"],
    ["--kernels", "torch", "--masks", "sliding_window,global_sliding_window", "--seqlens", "512", "--set", "w=7", "--passes", "fwd"],
    ["--kernels", "torch", "--masks", "causal_document", "--seqlens", "40K", "--packing", "mixed", "--distribution", "pile"],
    ["--kernels", "torch", "--masks", "block_causal_document", "--seqlens", "8K", "--packing", "draw", "--set", "B=64"],
    ["--kernels", "flex", "--masks", "uniform_block", "--seqlens", "1K", "--set", "b=64,128", "--set", "ratio=0.2"],
    ["--kernels", "flex", "--masks", "uniform_block", "--seqlens", "512", "--source", "nsa", "--set", "ratio=0.5", "--passes", "fwd"],
    ["--kernels", "flex", "--masks", "variable_block", "--seqlens", "2K", "--set", "avg=128", "--seeds", "3,"],
    ["--kernels", "torch", "--workload", "steps.jsonl", "--passes", "fwd,bwd"],
    ["--kernels", "torch", "--masks", "causal_document&sink_window_causal(s=2, w=1K),~full|causal", "--seqlens", "512", "--seeds", "2"],
    ["--kernels", "torch", "--masks", "full_document - sliding_window,causal", "--seqlens", "512", "--set", "w=3,5", "--passes", "fwd"],
    ["--kernels", "torch", "--masks", "causal_document & 'mine.json',mine.json", "--seqlens", "64", "--lengths", "lengths.txt"],
    ["--kernels", "flex", "--masks", "uniform_block(b=64) & causal", "--seqlens", "512", "--source", "nsa", "--set", "ratio=0.5"],
]


@pytest.mark.parametrize(("asked", "device"), [*((asked, "cuda") for asked in ASKED), (ASKED[0], "cpu")])
def test_the_same_key_comes_back(asked: list[str], device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = [{"mask": "causal_document", "documents": [100, 156], "seed": 3}, {"mask": "sliding_window", "seqlen": 64, "params": {"w": 5}}]
    known_masks.write_mask(known_masks.causal(64) - known_masks.sliding_window(64, w=3), "mine.json")
    Path("lengths.txt").write_text("20 30 20")
    Path("steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    shape = [word for pair in zip(SHAPE[::2], SHAPE[1::2], strict=True) if pair[0] not in asked for word in pair]
    check(planned([*asked, *shape, "--device", device], device), device, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("split", "masks"),
    [
        (["--methods", "all", "--nproc", "4", "--grid", "2x2"], ["--masks", "causal_document,sliding_window", "--set", "w=64"]),
        (["--methods", "ulysses,ring_p2p", "--nproc", "2"], ["--masks", "all", "--set", "w=64"]),
        (["--methods", "loongtrain", "--nproc", "4"], ["--masks", "all", "--set", "w=64"]),
        (["--methods", "ulysses,ring_allgather", "--nproc", "2"], ["--masks", "uniform_block", "--set", "b=128"]),
    ],
)
def test_the_same_key_comes_back_of_many_ranks(split: list[str], masks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--kernels", "torch:chunked", "--seqlens", "512", "--passes", "fwd,bwd", *masks, *SHAPE]
    check(planned([*words, "--level", "cp", *split, "--device", "cpu"], "cpu"), "cpu", tmp_path, monkeypatch)


def check(cells: list[Planned], device: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cells
    facts = Environment(device="a device", device_kind=device)
    for entry in cells:
        # a refused backward: the forward is then measured alone, but it was planned beside one
        made = refused(entry, grad=False)
        masks: Masks = {(entry.mask.digest, entry.cell.problem.mask): entry.mask}
        assert entry.key in {other.key for other in again(command(made, facts, masks), folder, monkeypatch)}


def made(**fields: Any) -> Record:
    return decode_record(line(make_record(**fields)).encode())


def environment(**facts: Any) -> Environment:
    return decode_environments(json.dumps({"e": facts}).encode())["e"]


NO_FACTS = Environment()


def test_what_else_a_command_needs() -> None:
    long = made(seqlen=32768, kernel="torch", asked="torch:plain", variant="plain")
    assert command(long, NO_FACTS, {}).endswith("--full")
    assert "--full" not in command(made(seqlen=32768), NO_FACTS, {})
    assert command(made(kernel="$(rm -rf /)", asked="$(rm -rf /)"), NO_FACTS, {}).startswith("longca run --kernels '$(rm -rf /)'")
    assert command(made(level="cp", method="usp", ranks=8, grid="8x1", simulated="a-cluster"), NO_FACTS, {}) == ""


def test_a_plugin_is_named_by_its_file() -> None:
    """As the journal keeps it; a made-up name would be run in vain."""
    mine = made(kernel="mine", asked="mine:two", variant="two")
    kept = environment(plugins={"my kernels/good.py": ["mine", "other"], "bad.py": ["third"]})
    assert command(mine, kept, {}).endswith("--plugin 'my kernels/good.py'")
    assert "--plugin" not in command(made(), kept, {})
    split = {"level": "cp", "method": "ours", "ranks": 2, "grid": "1x2"}
    assert command(made(**split), environment(plugins={"ours.py": [], "more.py": []}), {}).endswith("--plugin ours.py --plugin more.py")


def test_the_clock_and_the_threads_are_those_of_the_record() -> None:
    usual = msgspec.structs.asdict(ClockSettings())
    assert "--clock" not in command(made(), environment(clock=usual, threads=None), {})
    other = environment(clock=usual | {"warmup_s": 0.06, "most": 9, "of_another_version": 1, "target": "text"}, threads="2")
    text = command(made(), other, {})
    assert text.startswith("OMP_NUM_THREADS=2 longca run --kernels ")
    assert text.endswith(" --clock warmup_s=0.06,most=9")


@pytest.mark.usefixtures("in_process")
def test_what_is_measured_again_can_be_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Really: a suite with a clock of its own, the command that its record shows, and what `compare` says of the two."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    suite = tmp_path / "small.toml"
    suite.write_text('masks = ["causal"]\nseqlens = ["64"]\nheads = ["2:1"]\nhead_dims = ["16"]\ndtypes = ["fp32"]\n'
                     'passes = ["fwd"]\n[clock]\nwarmup_s = 0\nbudget_s = 1\ntarget = 0.5\nleast = 6\nmost = 8\n')  # fmt: skip
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert main(["run", str(suite), "--kernels", "torch:plain", "--device", "cpu", "--out", first]) == 0
    results = read(first)
    (record,) = results.records
    threads, *words = shlex.split(command(record, results.environment(record), results.masks))
    assert threads == "OMP_NUM_THREADS=1"
    assert words[:2] == ["longca", "run"]
    assert main([*words[1:], "--out", second]) == 0
    repeated = read(second)
    assert [again.key for again in repeated.records] == [record.key]
    assert repeated.environments.keys() == results.environments.keys(), "the same machine, versions and settings"
    capsys.readouterr()
    assert main(["compare", first, second]) in (0, 1), capsys.readouterr().err
