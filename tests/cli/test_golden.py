"""What verbs print, word for word: one text each in golden/. `LONGCA_GOLDEN=write` writes the texts anew; read the difference then."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from journals import Write, writer
from longca.bench.one_device import words as verify_words
from longca.bench.one_device.verify import Finding
from longca.bench.run import words as run_words
from longca.cli import main
from longca.cli._tables import show_parts
from longca.recommend.rank import NO_RECORD
from longca.results.record import Environment, Status, TensorError
from recommend.cells import cell
from report.made import kernel, make_record, split

GOLDEN = Path(__file__).parent / "golden"
STEADY = [1.0, 1.001, 0.999, 1.002, 0.998, 1.0, 1.001, 0.999]
SLOW = [1.1 * time for time in STEADY]
LOOSE = [0.9, 1.1, 0.95, 1.05, 1.0, 1.02, 0.93, 1.08]
SPLIT = ["--per-gpu", "1K", "--heads", "8:4", "--head-dim", "64", "--masks", "causal_document", "--gpus", "16"]


def compare(write: Write) -> None:
    """Every verdict, a cell of A alone, too few samples, older code, and a clock that explains a change."""
    before = [STEADY, STEADY, SLOW, LOOSE, STEADY, None, None, [1.0] * 3, STEADY]
    after = [STEADY, SLOW, STEADY, LOOSE, None, STEADY, None, [2.0] * 3]
    a = [make_record(samples, seed=seed) for seed, samples in enumerate(before)]
    b = [make_record(samples, seed=seed) for seed, samples in enumerate(after)]
    a, b = [*a, make_record(STEADY, seed=20, clock_mhz=1980)], [*b, make_record(SLOW, seed=20, clock_mhz=1782)]
    write("a", a, {"power_limit_w": 700.0})
    write("b", b, {"power_limit_w": 400.0})
    assert main(["compare", "a", "b", "--force"]) == 1


def compare_busy(write: Write) -> None:
    write("a", [make_record(STEADY, seed=seed) for seed in range(3)])
    write("b", [make_record(SLOW, seed=seed, noisy=True, spread=0.05 if seed < 2 else 0.015) for seed in range(3)])
    assert main(["compare", "a", "b", "--md"]) == 0


def compare_kernel(write: Write) -> None:
    write("a", [kernel("mine", [0.02] * 5, "fwd"), kernel("fa4:bands", [0.0125] * 5, "fwd", noisy=True), kernel("flex", [0.04] * 5, "fwd")])
    assert main(["compare", "a", "--kernel", "mine"]) == 0


def compare_history(write: Write) -> None:
    """A step, a creep, an outlier, and records that are left out."""
    rng = np.random.default_rng(0)
    levels = [[1.0, 1.0, 1.0, 1.2, 1.2], [1.04**run for run in range(5)], [1.0, 1.0, 1.3, 1.0, 1.0]]
    for run in range(5):
        times = [(line[run] * np.exp(0.003 * rng.standard_normal(30))).tolist() for line in levels]
        write(f"run-{run}", [*(make_record(samples, seed=seed) for seed, samples in enumerate(times)), make_record(None, seed=9)])
    assert main(["compare", "--history", *(f"run-{run}" for run in range(5)), "--threshold", "5%", "--all"]) == 0


def recommend(write: Write) -> None:
    """A pair, with and without details; nearest answers, of a known and an unknown error; a window; simulated methods; no answer."""
    made = [kernel("flex", None, "fwd", mask="causal_document", mask_digest="d0", status="oom", reason="out of memory")]
    for seed, factor in enumerate((1.0, 2.0)):
        about = {"mask": "causal_document", "seed": seed, "mask_digest": f"d{seed}", "flops": round(11e9 * factor * 2)}
        times = {"fa3": (1.0, 5.0), "fa4:varlen": (2.0, 3.0)}
        made += [kernel(name, [ms * factor] * 4, "fwd", noisy=name == "fa3", **about) for name, (ms, _) in times.items()]
        made += [kernel(name, [ms * factor] * 4, "bwd", **about) for name, (_, ms) in times.items()]
    write("made", made)
    write("causal", [cell("flex", n, 500.0) for n in (8192, 32768)])
    write("simulated", [split("usp", 1.0, simulated="h100-ib")])
    packed = ["recommend", "--mask", "causal_document", "--results", "made"]
    causal = ["recommend", "--mask", "causal", "--results", "causal"]
    many = ["recommend", "--mask", "causal", "--seqlen", "8K", "--gpus", "64", "--results", "simulated"]
    for code, words in (
        (0, [*packed, "--seqlen", "8K"]),
        (0, [*packed, "--seqlen", "8K", "--details"]),
        (0, [*causal, "--seqlen", "20K", "--pass", "fwd"]),
        (0, [*causal, "--seqlen", "20K", "--pass", "fwd", "--head-dim", "64"]),
        (0, [*causal, "--seqlen", "8K", "--pass", "fwd", "--model", "mistral-7b"]),
        (0, [*many, "--cluster", "h100-ib"]),
        (NO_RECORD, many),
        (NO_RECORD, many),
        (NO_RECORD, [*causal, "--seqlen", "16K", "--exact", "--pass", "fwd"]),
        (NO_RECORD, [*causal, "--seqlen", "8K", "--pass", "fwd", "--dtype", "fp16", "--deterministic"]),
        (NO_RECORD, [*causal, "--seqlen", "8K", "--pass", "fwd", "--device", "B200"]),
    ):
        print(f"\n$ {shlex.join(words)}")
        assert main(words) == code


def verify(write: Write) -> None:
    right, wrong = TensorError(4.8e-08, 3.3e-07), TensorError(72.0, 9.4e-05)
    shape = ("8:2", "64", "fp32")
    findings = [
        Finding("blind", "causal", 96, Status.OK, "forward only: it has no backward", {"out": right}, *shape),
        Finding("blind", "full", 96, Status.WRONG, "out is off by 72", {"out": wrong, "dq": TensorError(None, 1e-5)}, *shape),
        Finding("blind", "causal", 96, Status.OK, "", {"out": right, "dsinks": right}, "8:2", "64", "bf16"),
        Finding("fa4", "causal", 96, Status.UNAVAILABLE, "runs on cuda only", {}, *shape),
        Finding("fa4", "full", 96, Status.UNAVAILABLE, "runs on cuda only", {}, *shape),
    ]
    show_parts(verify_words.verification(findings))
    print(verify_words.unchecked(findings, ["blind", "fa4"]))


def run(write: Write) -> None:
    print(run_words.faults({Status.WRONG: 3}, ()))
    print(run_words.faults({Status.WRONG: 1, Status.ERROR: 2}, {Status.WRONG}))
    print(run_words.where_the_time_went(100.0, {"build": 12.2, "reference": 0.1, "check": 20.0, "time": 60.0}))
    for cells, left in ((1, 1), (4, 3), (1, 0), (2, 0)):
        print(run_words.planned_time(cells, left, 7200.0, "out/run"))
    flags = ["--masks", "causal,sliding_window", "--set", "w=9", "--seqlens", "64", "--device", "cpu"]
    assert main(["run", "--kernels", "torch", *flags, "--dry-run"]) == 0


def plan(write: Write) -> None:
    assert main(["plan", *SPLIT, "--methods", "ulysses,magi,hybrid_dcp"]) == 0


def simulate(write: Write) -> None:
    assert main(["simulate", *SPLIT, "--methods", "usp,ring_p2p", "--passes", "fwd", "--best", "--kernels", "fa4"]) == 0


def doctor(write: Write) -> None:
    needs = {"fa4:native": "pip install fa4; or fa3", "fa4:bands": "pip install fa4; or fa3", "torch": "", "ffa": "build it"}
    gpu = Environment(device="a GPU", device_kind="cuda", driver="1.2", gpu_memory_mib=1024, packages={"torch": "2.8"}, cores=2)
    print("\n".join(run_words.diagnosis(gpu, needs, ["the load is 3."])))
    print("\n".join(run_words.diagnosis(Environment(device="a CPU", device_kind="cpu"), needs, [])))


def mask(write: Write) -> None:
    assert main(["mask", "share_question", "--seqlen", "64"]) == 0


def ls(write: Write) -> None:
    assert main(["ls"]) == 0


VERBS = [recommend, compare, compare_busy, compare_kernel, compare_history, verify, run, plan, simulate, doctor, mask, ls]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_a_verb_prints_these_words(
    verb: Callable[[Write], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    verb(writer(tmp_path))
    printed, golden = capsys.readouterr().out, GOLDEN / f"{verb.__name__}.txt"
    if os.environ.get("LONGCA_GOLDEN") == "write":
        golden.write_text(printed)
    assert printed == golden.read_text()
