"""What verbs print, word for word: one text each in golden/. `LONGCA_GOLDEN=write` writes the texts anew; read the difference then."""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longca
from journals import Write, mask_line, writer
from longca import devices, masks
from longca.bench.one_device import words as verify_words
from longca.bench.one_device.messages import Profiled, Spent
from longca.bench.one_device.ncu import Counted
from longca.bench.one_device.profile import PassProfile, Profile
from longca.bench.one_device.verify import Finding
from longca.bench.run import words as run_words
from longca.cli import main
from longca.cli._tables import show_parts
from longca.compare.ab import AB, Pair
from longca.recommend.rank import NO_RECORD
from longca.report.listings import kernel_summary, mask_matrix
from longca.results.problem import Pass
from longca.results.record import Environment, Outcome, Status, TensorError, Times
from longca.results.roofline import Roofline
from made_cells import changed, make_cell
from recommend.cells import cell
from report.made import blocks, kernel, make_record, split

GOLDEN, ROOT = Path(__file__).parent / "golden", Path(__file__).parents[2]
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


def ab(write: Write) -> None:
    """A clear change, none, an open one, and a wrong kernel."""
    problem = make_cell(mask="causal", seqlen=8192, heads_q=64, heads_kv=8, pass_=Pass.FWD).problem

    def rounds(*ratios: float) -> list[list[tuple[float, float]]]:
        return [[(2.0, 2.0 * ratio)] * 3 for ratio in ratios]

    failed = [Outcome(status=Status.OK), Outcome(status=Status.WRONG, reason="out is off by 72")]
    pairs = [
        Pair(problem, 0.01, rounds(1.031, 1.03, 1.029, 1.03)),
        Pair(problem, 0.01, rounds(1.0, 1.001, 0.999, 1.0)),
        Pair(problem, 0.01, rounds(1.0, 1.02, 0.98, 1.0)),
        Pair(problem, 0.01, rounds(1.5)),
        Pair(problem, 0.01, failed=failed),
    ]
    show_parts(AB(("mine (HEAD:mine.py)", "mine (mine.py)"), "a GPU", pairs, 42.0).parts())


def profile(write: Write) -> None:
    """A pass with counters on a GPU, and one that failed."""
    cell = make_cell(mask="causal", seqlen=8192, heads_q=64, heads_kv=8, pass_=Pass.FWD, device="cuda")
    times = Times(median=2.5, p20=2.4, p80=2.6, samples=[2.5], tflops=440.0, noisy=True)
    spent = [Spent(f"kernel {number}", 1, 2.0 / number) for number in range(1, 15)]
    passes = [
        PassProfile(
            cell,
            Outcome(status=Status.OK, timed=times),
            Roofline(10**12, 1.1e12, 10**9, 1.2, 0.3),
            Profiled(Pass.FWD, spent, "out/profile/fwd.json"),
            [Counted("kernel 1", {"ms": 2.01, "tensor cores": 61.5}), Counted("kernel 2", {"ms": 0.5, "memory": 80.0})],
        ),
        PassProfile(changed(cell, pass_=Pass.BWD), Outcome(status=Status.OOM, reason="too large"), Roofline(10**12, 1e12, 10**9, 1.2, 0.3)),
    ]
    show_parts(Profile("mine on causal", passes).parts())
    show_parts(Profile("mine on causal", passes[1:], "ncu was not found.").parts())


def compare_busy(write: Write) -> None:
    write("a", [make_record(STEADY, seed=seed) for seed in range(3)])
    write("b", [make_record(SLOW, seed=seed, noisy=True, spread=0.05 if seed < 2 else 0.015) for seed in range(3)])
    assert main(["compare", "a", "b", "--md"]) == 0


def compare_kernel(write: Write) -> None:
    write("a", [kernel("mine", [0.02] * 5, "fwd"), kernel("fa4:bands", [0.0125] * 5, "fwd", noisy=True), kernel("flex", [0.04] * 5, "fwd")])
    assert main(["compare", "a", "--kernel", "mine"]) == 0


def compare_history(write: Write) -> None:
    """A step, a single run that is slower, and records that are left out."""
    rng = np.random.default_rng(0)
    levels = [[1.0, 1.0, 1.0, 1.2, 1.2], [1.0, 1.0, 1.3, 1.0, 1.0]]
    for run in range(5):
        times = [(line[run] * np.exp(0.003 * rng.standard_normal(30))).tolist() for line in levels]
        write(f"run-{run}", [*(make_record(samples, seed=seed) for seed, samples in enumerate(times)), make_record(None, seed=9)])
    assert main(["compare", "--history", *(f"run-{run}" for run in range(5)), "--threshold", "5%", "--all"]) == 0


def recommend(write: Write) -> None:
    """A pair, with and without details; nearest answers, of a known and an unknown error; a window; methods; no answer."""
    made = [kernel("flex", None, "fwd", mask="causal_document", mask_digest="d0", status="oom", reason="out of memory")]
    for seed, factor in enumerate((1.0, 2.0)):
        about = {"mask": "causal_document", "seed": seed, "mask_digest": f"d{seed}", "flops": round(11e9 * factor * 2)}
        times = {"fa3": (1.0, 5.0), "fa4:varlen": (2.0, 3.0)}
        made += [kernel(name, [ms * factor] * 4, "fwd", noisy=name == "fa3", **about) for name, (ms, _) in times.items()]
        made += [kernel(name, [ms * factor] * 4, "bwd", **about) for name, (_, ms) in times.items()]
    write("made", made)
    write("causal", [cell("flex", n, 500.0) for n in (8192, 32768)])
    write("simulated", [split("usp", 1.0, simulated="h100-ib")])
    write("cpu", [split("usp", 25000.0, ranks=8)], {"device": "Some CPU", "device_kind": "cpu"})
    write("blocks", [blocks("flex", [1.0]), blocks("fa4", [2.0], heads=1)])
    packed = ["recommend", "--mask", "causal_document", "--results", "made"]
    causal = ["recommend", "--mask", "causal", "--results", "causal"]
    many = ["recommend", "--mask", "causal", "--seqlen", "8K", "--gpus", "64", "--results", "simulated"]
    for code, words in (
        (0, [*packed, "--seqlen", "8K"]),
        (0, [*packed, "--seqlen", "8K", "--details"]),
        (0, [*causal, "--seqlen", "20K", "--pass", "fwd"]),
        (0, [*causal, "--seqlen", "20K", "--pass", "fwd", "--head-dim", "64"]),
        (0, [*causal, "--seqlen", "8K", "--pass", "fwd", "--model", "mistral-7b"]),
        (0, ["recommend", "--mask", "causal", "--seqlen", "8K", "--gpus", "8", "--results", "cpu"]),
        (NO_RECORD, ["recommend", "--mask", "uniform_block", "--seqlen", "8K", "--set", "heads=2", "--results", "blocks"]),
        (NO_RECORD, many),
        (NO_RECORD, [*causal, "--seqlen", "16K", "--exact", "--pass", "fwd"]),
        (NO_RECORD, [*causal, "--seqlen", "8K", "--pass", "fwd", "--dtype", "fp16", "--deterministic"]),
        (NO_RECORD, [*causal, "--seqlen", "8K", "--pass", "fwd", "--device", "B200"]),
    ):
        print(f"\n$ {shlex.join(words)}")
        assert main(words) == code


def recommend_code(write: Write) -> None:
    """A pair and the nearest one, a softcap, given documents, and ranks: one node, two nodes, and blocks that q and k select."""
    rates = {("fa3", "fwd"): 600.0, ("fa3", "bwd"): 300.0, ("fa4:bands", "fwd"): 500.0, ("fa4:bands", "bwd"): 400.0}
    own = masks.causal_document(8192, documents=[8192])
    made = [cell(name, n, rate, part) for n in (8192, 16384) for (name, part), rate in rates.items()]
    made.append(kernel("torch:chunked", [1.0], heads_q=32, heads_kv=16, softcap=50.0))
    given = {"mask": "causal_document", "mask_digest": own.digest, "area": own.area, "given": {"documents": True}}
    made.append(kernel("fa4:bands", [10.0], **given))
    selected = {"mask": "uniform_block", "params": {"b": 128, "ratio": 0.5, "heads": 8}, "source": "moba", "seed": 7, "deterministic": True}
    made += [split("usp", 1.0, ranks=8), split("usp", 1.0, ranks=12), split("ulysses", 1.0, **selected)]
    with (write("made", made) / "masks.jsonl").open("a") as file:
        file.write(mask_line(own))
    for words in (
        ["--mask", "causal", "--seqlen", "8K"],
        ["--mask", "causal", "--seqlen", "12K", "--pass", "fwd"],
        ["--mask", "causal", "--seqlen", "8K", "--model", "gemma2-27b"],
        ["--mask", "causal_document", "--seqlen", "8K", "--own-documents"],
        ["--mask", "causal", "--seqlen", "8K", "--gpus", "8"],
        ["--mask", "causal", "--seqlen", "8K", "--gpus", "12"],
        ["--mask", "uniform_block", "--seqlen", "8K", "--set", "b=128", "--source", "moba", "--deterministic", "--gpus", "64"],
    ):
        print(f"\n$ longca recommend {shlex.join(words)} --code", flush=True)
        assert main(["recommend", *words, "--results", "made", "--code"]) == 0


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


def mask_limit(write: Write) -> None:
    """With a dense speed in the records, without one, and of a block pattern."""
    for words in (["causal_document", "--tiles", "128x128", "--device", "h200"], ["sliding_window", "--device", "a100", "--dtype", "fp32"]):
        assert main(["mask", *words, "--seqlen", "32K", "--seed", "42", "--heads", "64:8"]) == 0
    assert main(["mask", "uniform_block", "--seqlen", "2K", "--tiles", "64x96", "--heads", "4:2", "--device", "b200"]) == 0


def ls(write: Write) -> None:
    """All but kernels and methods, of which other machines have others."""
    for words in ([], ["masks"], ["models"], ["suites"], ["distributions"], ["packings"]):
        print(f"\n$ longca ls {' '.join(words)}")
        assert main(["ls", *words]) == 0
    can, cannot = {"answer": "native", "note": ""}, {"answer": "no", "note": "takes full and causal masks"}
    about = {"backward": "functional", "masks": {"full": can, "prefix_lm_causal": cannot, "uniform_block": cannot}}
    entries = [{"kernel": f"mine:{name}", "here": here, "available": not here, **about} for name, here in (("a", ""), ("b", "pip; build"))]
    show_parts([*kernel_summary(entries), *mask_matrix(entries)])


def explain(write: Write) -> None:
    assert main(["explain", "--mask", "share_question", "--seqlen", "256", "--device", "cpu", "--forward-only"]) == 0


def journals(write: Write) -> None:
    """Merging, exporting and submitting: a short warm-up, noise, and a failure."""
    whole = {"cores": 8, "system": "Linux", "date": "2026-11-01", "gpu_memory_mib": "81559", "power_limit_w": 700.0}
    own, failed = masks.causal(8192), make_record(None, seed=1, reason="no /home/me/x.so")
    timed = make_record([2.0] * 5, mask_digest=own.digest, area=own.area, noisy=True)
    write("a", [timed, failed], whole | {"clock": {"warmup_s": 0.05}, "changed": True})
    write("b", [kernel("flex", [4.0] * 5, "fwd", mask_digest=own.digest, area=own.area), make_record(None, seed=2, status="unsupported")])
    for words in (["merge", "all", "a", "b"], ["merge", "all", "a", "--pack"], ["submit", "a"], ["export", "all", "--md"]):
        print(f"\n$ longca {' '.join(words)}")
        assert main(words) == 0
    with Path("b/results.jsonl").open("a") as file:
        file.write("torn")
    Path("b/env.json").unlink()
    assert main(["export", "b", "--csv"]) == 0


def schema(write: Write) -> None:
    """Every field of every file, with its type and its default; `longca schema` prints them as a JSON schema."""

    def kind(field: dict[str, Any]) -> str:
        if "anyOf" in field:
            return " | ".join(map(kind, field["anyOf"]))
        ref, inner = field.get("$ref", "").rpartition("/")[2], field.get("items") or field.get("additionalProperties")
        limits = [f"{name}={field[name]}" for name in ("minimum", "exclusiveMinimum", "maximum", "minLength", "pattern") if name in field]
        of = f" of {kind(inner)}" if isinstance(inner, dict) else ""
        return " ".join([ref or str(field.get("type") or field.get("enum") or "any"), *limits]) + of

    described = longca.schema()
    for name, entry in described.pop("$defs").items():
        print(f"{name}: {', '.join(entry['enum'])}" if "enum" in entry else f"{name}:")
        for field, about in entry.get("properties", {}).items():
            needed = "" if field in entry["required"] else f" = {json.dumps(about.get('default'))}"
            print(f"  {field}: {kind(about)}{needed}")
    for file, about in described.items():
        print(f"{file}: {kind(about)}")


def calibrate(write: Write) -> None:
    Path("gloo").symlink_to(ROOT / "results" / "cpu" / "gloo")
    assert main(["calibrate", "gloo", "--base", "cpu-gloo", "--device", "CPU"]) == 0


COMPARED = [ab, profile, compare, compare_busy, compare_kernel, compare_history]
ANSWERED = [recommend, recommend_code, explain, plan, simulate, calibrate]
SHOWN = [verify, run, doctor, mask, mask_limit, ls, journals, schema]


@pytest.mark.parametrize("verb", [*COMPARED, *ANSWERED, *SHOWN], ids=lambda verb: verb.__name__)
def test_a_verb_prints_these_words(
    verb: Callable[[Write], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    verb(writer(tmp_path))
    shown, golden = capsys.readouterr(), GOLDEN / f"{verb.__name__}.txt"
    printed = shown.out.replace(devices.model("cpu"), "DEVICE") + (f"\non stderr:\n{shown.err}" if shown.err else "")
    if os.environ.get("LONGCA_GOLDEN") == "write":
        golden.write_text(printed)
    assert printed == golden.read_text()
