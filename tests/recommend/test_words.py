"""The text of an answer: one whole answer, and what each other kind of answer adds."""

import pytest

from journals import Write
from longca.cli import main
from longca.kernels import registry
from longca.recommend.table import NO_RECORD
from recommend.cells import cell
from report.made import around, kernel, split

Captured = pytest.CaptureFixture[str]
GOLDEN = """\
use best, the default of longca.attention (fa3 forward + fa4:varlen backward): 11 TFLOP/s, 6 ms (4 to 8).
for causal_document, 8K tokens, 64:8 heads of 128, bf16, fwd+bwd, NVIDIA H200; means and ranges over 2 masks (seeds 0, 1).
as a single kernel, use fa4:varlen: 8.8 TFLOP/s, 7.5 ms (5 to 10).

                        TFLOP/s  ms   range    GiB   plan ms  against fa4:varlen
best: fa3 + fa4:varlen  11~      6    4 to 8   1.78  4        1.25x
fa4:varlen              8.8      7.5  5 to 10  1.78  2        1.00x
fa3                     7.33~    9    6 to 12  1.78  2        0.83x

times do not include planning; if documents are new at every step, count it with --calls-per-plan.
noisy (~): fa3 + fa4:varlen, fa3.
fewer than 5 samples: all.
{details}to measure it again: longca run --kernels fa3,fa4:varlen --masks causal_document --seqlens 8K --seeds 0,1 --heads 64:8 \
--head-dim 128 --dtype bf16 --passes fwd,bwd --clock budget_s=1.0,target=0.02
to install fa3: {fa3}
to install fa4: {fa4}
"""
CAVEAT_AND_RECORDS = """\
the kernel's code has changed since, or its version was not recorded: all.
records: 4 in FOLDER/results.jsonl (NVIDIA H200)
"""
BELOW = """
excluded as single kernels:
           why
flex  oom  out of memory

no record of: band_cute, cudnn, cudnn_flex, fa2, ffa, flashmask, sdpa, torch
"""


def test_the_whole_text_of_an_answer(write: Write, capsys: Captured) -> None:
    made = []
    for seed, factor in enumerate((1.0, 2.0)):
        about = {"mask": "causal_document", "seed": seed, "mask_digest": f"d{seed}", "flops": round(11e9 * factor * 2)}
        for name, times in {"fa3": (1.0, 5.0), "fa4:varlen": (2.0, 3.0)}.items():
            made += [
                kernel(name, [ms * factor] * 4, which, noisy=name == "fa3" and which == "fwd", **about)
                for ms, which in zip(times, ("fwd", "bwd"), strict=True)
            ]
    made.append(kernel("flex", None, "fwd", mask="causal_document", mask_digest="d0", status="oom", reason="out of memory"))
    folder = write("made", made)
    installs = {name: registry.get(name).getting for name in ("fa3", "fa4")}
    short, long = GOLDEN.format(**installs, details=""), GOLDEN.format(**installs, details=CAVEAT_AND_RECORDS) + BELOW
    for flag, said in (([], short), (["--details"], long)):
        assert main(["recommend", "--mask", "causal_document", "--seqlen", "8K", "--results", str(folder), *flag]) == 0
        assert capsys.readouterr().out.replace(str(folder), "FOLDER") == said


def test_a_nearest_answer_says_from_what_and_how_far_off(write: Write, capsys: Captured) -> None:
    folder = write("made", [cell("fa4:bands", n, 500.0) for n in (8192, 32768)])
    words = ["recommend", "--mask", "causal", "--pass", "fwd", "--results", str(folder), "--seqlen", "20K"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].endswith("; NEAREST ANSWER, scaled from other measurements.")
    assert "\nscaled from 64:8 heads of 128 at 8K and 32K tokens, by the number of tiles that the mask touches; " in said
    assert "±10 %" in said
    assert "\nto measure it: longca run --kernels all --masks causal --seqlens 20K " in said
    assert main([*words, "--head-dim", "64"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].endswith(", error unknown.")
    assert "the error is unknown: the records differ in head size." in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--seqlen", "16K", "--exact"], "there are records with --seqlen 8K."),
        (["--heads", "8:8", "--exact"], "there are records with --heads 64:8."),
        (["--dtype", "fp16", "--deterministic"], "there are records with --dtype bf16, no --deterministic."),
        (["--device", "B200"], "there are records with --device 'NVIDIA H200'."),
        (["--mask", "full"], "there is no record of full at all."),
        (["--mask", "sliding_window", "--exact"], "there are records with --set w=64."),
        (["--gpus", "8"], "there are records with --gpus 1."),
        (["--gpus", "64"], "there are records with --cluster h100-ib."),
    ],
)
def test_where_no_record_answers_it_says_what_the_closest_have(write: Write, capsys: Captured, given: list[str], said: str) -> None:
    made = [kernel("fa4", around(1.0)), kernel("fa4", around(1.0), mask="sliding_window", params={"w": 64})]
    folder = write("made", [*made, split("usp", 1.0, simulated="h100-ib")])
    words = [] if "--mask" in given else ["--mask", "causal"]
    words += [] if "--seqlen" in given else ["--seqlen", "8K"]
    assert main(["recommend", *words, *given, "--results", str(folder)]) == NO_RECORD
    out = capsys.readouterr().out
    assert out.startswith("no record answers this.\n")
    assert f"\n{said}\n" in out
    assert "\nto measure it" in out
    assert "\nthen: longca recommend " in out
    assert ("\nto simulate it without GPUs: longca simulate --cluster h100-ib " in out) is ("--gpus" in given)


def test_a_cluster_without_records_names_the_simulation(write: Write, capsys: Captured) -> None:
    folder = write("made", [split("usp", 1.0, simulated="h100-ib")])
    words = ["recommend", "--mask", "causal", "--seqlen", "8K", "--gpus", "64", "--results", str(folder), "--cluster"]
    assert main([*words, "a100-ib"]) == NO_RECORD
    said = capsys.readouterr().out
    assert "\nto simulate it without GPUs: longca simulate --cluster a100-ib --gpus 64 --seqlen 8K --masks causal " in said
    assert "to measure it" not in said
    assert main([*words, "h100-ib"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].endswith("; SIMULATED, not measured.")
    assert "to measure it" not in said
    assert "fewer than" not in said


def test_long_times_have_no_exponent(write: Write, capsys: Captured) -> None:
    folder = write("made", [kernel("fa3", [25291.4] * 6)])
    assert main(["recommend", "--mask", "causal", "--seqlen", "8K", "--results", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("25291") == 2  # in the headline and in the table
    assert "e+" not in shown
