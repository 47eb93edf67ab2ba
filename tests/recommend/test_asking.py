"""Questions of `longca recommend` that make no sense are refused, and no run is advised that could not answer."""

from inspect import signature
from pathlib import Path

import pytest

from journals import Write
from longca.api.recommend import best
from longca.cli import main
from longca.compare.journals import compare
from longca.compare.ratio import ratio
from longca.errors import BadInput
from longca.recommend.answer import recommend
from longca.recommend.question import Question
from longca.recommend.shipped import load
from longca.recommend.table import NO_RECORD, table
from longca.results.ranking import ENOUGH_SAMPLES, PRACTICAL
from longca.simulate.cluster import find, to_toml
from longca.text import parse_memory, shortest_memory
from report.made import around, blocks, kernel, make_record, split

Captured = pytest.CaptureFixture[str]


def asked(folder: Path, *more: str) -> int:
    words = {"--mask": "causal", "--seqlen": "8K"} | dict(zip(more[::2], more[1::2], strict=True))
    return main(["recommend", *(word for pair in words.items() for word in pair), "--results", str(folder)])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--distribution", "pill"], "unknown length distribution 'pill'; did you mean 'pile'?"),
        (["--mask", "causal_document", "--packing", "mixd"], "unknown packing 'mixd'; did you mean 'mixed'?"),
        (["--distribution", "pile"], "causal has no documents, so it takes no lengths, no distribution and no packing."),
        (["--source", "nsa"], "the source nsa is for block patterns, and none is asked for; give --mask uniform_block or "),
        (["--seqlen", "9999999999999999999999K"], "'9999999999999999999999K' is too large; write a number of at most "),
        (["--seqlen", "1000G"], "q, k and v of 1000G tokens take "),
        (["--seqlen", "8", "--gpus", "9"], "9 GPUs cannot share 8 tokens; ask for fewer GPUs."),
        (["--gpus", "0"], "a question needs at least one GPU, not 0."),
        (["--calls-per-plan", "0"], "--calls-per-plan is the number of calls that one plan serves, 1 or more, not 0."),
        (["--memory", "80"], "'80' is not an amount of memory; write a number over 0 and its unit, such as 80GiB, 80G or 512M."),
        (["--memory", "banana"], "'banana' is not an amount of memory; write a number over 0 and its unit, such as 80GiB, 80G or 512M."),
        (["--pass", "forward"], "unknown pass 'forward'; did you mean 'fwd'?"),
        (["--memory", "80GBB"], "'80GBB' is not an amount of memory;"),
        (["--memory", "0G"], "'0G' is not an amount of memory;"),
        (["--memory", "nanG"], "'nanG' is not an amount of memory;"),
    ],
)
def test_what_makes_no_sense_is_refused(write: Write, capsys: Captured, given: list[str], said: str) -> None:
    assert asked(write("made", [kernel("fa4", around(1.0))]), *given) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"longca: {said}")
    assert shown.out == ""


def test_memory_as_one_writes_it() -> None:
    assert [parse_memory(text) for text in ("80GiB", "80 G", "80gib", "512M", "0.5K")] == [80 << 30, 80 << 30, 80 << 30, 512 << 20, 512]
    assert parse_memory("0.3GiB") == int(0.3 * 2**30)
    assert [parse_memory(text) for text in ("80GB", "80 gb", "1.5MB", "3kB")] == [80 * 10**9, 80 * 10**9, 1500000, 3000]


@pytest.mark.parametrize("typed", ["100MiB", "80GiB", "0.3GiB", "80GB"])
def test_memory_is_written_as_it_was_typed(write: Write, capsys: Captured, typed: str) -> None:
    assert shortest_memory(parse_memory(typed)) == typed
    assert asked(write("made", [kernel("fa4", around(1.0), peak_gib=500.0)]), "--memory", typed, "--device", "B300") == NO_RECORD
    assert f" --memory {typed} " in capsys.readouterr().out


def test_an_odd_amount_of_memory_is_written_closely() -> None:
    for size in (1, 123456789012, 132560719, (1 << 40) + 1):
        assert parse_memory(shortest_memory(size)) == pytest.approx(size, abs=64)
    assert [shortest_memory(size) for size in (0, (1 << 63) - 1)] == ["0GB", "8589934592GiB"]  # the ends, which are not read again


def test_an_unknown_cluster_is_refused_with_the_nearest_name_and_all_names(write: Write, capsys: Captured, tmp_path: Path) -> None:
    """Records may have other clusters than LongCA: of a user's file."""
    folder = write("own", [split("usp", 1.0, simulated="wolke7")])
    known = "(known are: a100-ib, b200-ib, cpu-gloo, gb200-nvl72, h100-ib, h200-ib, wolke7)"
    for name, near in (("h100ib", "h100-ib"), ("wolke", "wolke7")):
        for words in (["--mask", "causal", "--seqlen", "8K"], ["--export", str(tmp_path / "all.json")]):
            assert main(["recommend", *words, "--results", str(folder), "--gpus", "64", "--cluster", name]) == 2
            assert capsys.readouterr().err == f"longca: unknown cluster {name!r}; did you mean {near!r} {known}?\n"
    assert asked(folder, "--gpus", "64", "--cluster", "foo") == 2
    assert capsys.readouterr().err == f"longca: unknown cluster 'foo'; {known[1:-1]}.\n"
    with pytest.raises(BadInput, match="unknown cluster 'wolke'; did you mean 'wolke7'"):
        best("causal", "8K", gpus=64, cluster="wolke", results=folder)


def test_a_cluster_file_stands_for_the_records_that_were_simulated_with_it(write: Write, capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "wolke7.toml"
    file.write_text(to_toml(find("h100-ib")[1]))
    assert asked(write("own", [split("usp", 1.0, simulated="wolke7")]), "--gpus", "64", "--cluster", str(file)) == 0
    assert "simulated on" in capsys.readouterr().out
    other = write("other", [split("usp", 1.0, simulated="h100-ib")])
    assert asked(other, "--gpus", "64", "--cluster", str(file)) == NO_RECORD
    assert f"longca simulate --cluster {file}" in capsys.readouterr().out
    assert asked(other, "--gpus", "64", "--cluster", str(tmp_path / "nothing.toml")) == 2


def test_a_cluster_that_nobody_simulated(write: Write, capsys: Captured) -> None:
    assert Question.parse("causal", "8K", gpus=64, cluster="a100-ib").describe().endswith(", 64 GPUs, simulated on a100-ib")
    measured = split("usp", 5.0)
    assert asked(write("measured", [measured]), "--gpus", "64", "--cluster", "a100-ib") == NO_RECORD
    said = capsys.readouterr().out
    assert "there is no simulated record of this for the cluster a100-ib; no record here is a simulated one." in said
    assert "to simulate it: longca simulate --cluster a100-ib --gpus 64 --seqlen 8K --masks causal " in said
    assert f"without --cluster measured records say: use usp 8x8 fa4:bands ({1e3 * measured['tflops']:.3g} GFLOP/s per GPU, 5 ms)." in said
    assert "to measure it" not in said
    assert "then: longca recommend --mask causal --seqlen 8K" in said
    assert "--cluster a100-ib" in said.partition("then: ")[2]
    simulated = split("usp", 1.0, simulated="h100-ib")
    assert asked(write("simulated", [simulated]), "--gpus", "64", "--cluster", "a100-ib") == NO_RECORD
    said = capsys.readouterr().out
    assert "for the cluster a100-ib; simulated records have h100-ib." in said
    assert "without --cluster no measured record answers, either." in said
    assert asked(write("both", [measured, simulated]), "--gpus", "64", "--cluster", "h100-ib", "--seqlen", "4K") == NO_RECORD
    said = capsys.readouterr().out
    assert "there is no simulated record of this for the cluster h100-ib.\n" in said
    assert said.index("for the cluster h100-ib.") < said.index("simulated lengths are 8K.") < said.index("to simulate it: ")
    assert "to measure it" not in said
    both = [split("usp", 1.0, simulated="h100-ib", **{"pass": pass_}) for pass_ in ("fwd", "bwd")]
    assert asked(write("passes", both), "--gpus", "64", "--cluster", "h100-ib", "--pass", "fwd+bwd") == 0
    assert "the sum of a forward and a backward that were simulated separately (all of them)." in capsys.readouterr().out


def test_a_device_without_records_is_where_to_measure(write: Write, capsys: Captured) -> None:
    assert asked(write("made", [kernel("fa4", around(1.0))]), "--device", "A100") == NO_RECORD
    said = capsys.readouterr().out
    assert "to measure it, on a machine whose device is named A100: longca run " in said
    assert " --device A100 --results " in next(line for line in said.splitlines() if line.startswith("then: "))


def test_a_cpu_is_asked_for_by_its_name(write: Write, capsys: Captured) -> None:
    folder = write("made", [kernel("torch", around(1.0))], {"device": "AMD EPYC", "device_kind": "cpu"})  # as a CPU is named
    assert asked(folder, "--device", "AMD EPYC", "--seqlen", "1K") == NO_RECORD
    assert " --out out/recommend --device cpu\n" in capsys.readouterr().out
    assert asked(folder, "--device", "CPU") == 0
    assert asked(folder, "--device", "cuda") == NO_RECORD
    said = capsys.readouterr().out
    assert "\nto measure it: longca run " in said
    assert " --out out/recommend --device cuda\n" in said
    assert asked(write("gpu", [kernel("fa4", around(1.0))]), "--device", "cpu", "--memory", "1G") == NO_RECORD
    assert "to measure it" not in capsys.readouterr().out
    answers = table(load([folder]), {"device": "cpu", "pass_": "fwd+bwd"})
    assert [found.device for found in answers] == ["AMD EPYC"]


def test_memory_is_counted_on_gpus_only(write: Write, capsys: Captured) -> None:
    folder = write("made", [kernel("torch", around(1.0), peak_gib=None)], {"device": "Some CPU", "device_kind": "cpu"})
    assert asked(folder, "--memory", "80GiB") == NO_RECORD
    said = capsys.readouterr().out
    assert "torch  not counted  memory is counted on GPUs only\n" in said
    assert "memory is counted on GPUs only, and this is about a CPU: leave out --memory." in said
    assert "or to measure it on a GPU: longca run " in said
    assert " --memory 80GiB " in said
    for length in ("8K", "4K"):
        assert asked(folder, "--memory", "80GiB", "--device", "Some CPU", "--seqlen", length) == NO_RECORD
        said = capsys.readouterr().out
        assert "leave out --memory." in said
        assert "to measure it" not in said


def test_the_heading_names_all_that_are_as_good(write: Write, capsys: Captured) -> None:
    made = [kernel(name, around(ms)) for name, ms in (("fa4:bands", 1.0), ("fa3", 1.001), ("flex", 1.002), ("torch:plain", 9.0))]
    assert asked(write("three", made)) == 0
    assert "\nas fast as fa4:bands, within the noise or 3 %: fa3, flex.\n" in capsys.readouterr().out
    assert asked(write("two", [made[0], made[1]])) == 0
    assert "\nas fast as fa4:bands, within the noise or 3 %: fa3.\n" in capsys.readouterr().out
    assert asked(write("one", [made[0], made[3]])) == 0
    assert capsys.readouterr().out.startswith(
        "use fa4:bands: 11 TFLOP/s, 1 ms.\nfor causal, 8K tokens, 64:8 heads of 128, bf16, fwd+bwd, NVIDIA H200.\n\n"
    )


@pytest.mark.parametrize(("slower", "as_good"), [(1.029, True), (1.031, False)])
def test_what_differs_by_less_than_matters_is_as_good_however_well_it_is_known(write: Write, slower: float, as_good: bool) -> None:
    folder = write("steady", [kernel("fa4:bands", [1.0] * 9), kernel("flex", [slower] * 9)])
    choices = recommend(Question.parse("causal", "8K"), load([folder])).choices
    assert [choice.as_good for choice in choices] == [False, as_good]
    assert PRACTICAL == 0.03
    assert signature(compare).parameters["threshold"].default == PRACTICAL


def test_few_samples_are_said_per_candidate(write: Write, capsys: Captured) -> None:
    made = [kernel("fa4:bands", [1.0] * ENOUGH_SAMPLES), kernel("flex", [2.0] * (ENOUGH_SAMPLES - 1)), kernel("torch:plain", [9.0])]
    assert asked(write("made", made)) == 0
    assert "\nmeasured with fewer than 5 samples: flex (4), torch:plain (1).\n" in capsys.readouterr().out
    assert asked(write("enough", made[:1])) == 0
    assert "fewer than" not in capsys.readouterr().out
    assert not ratio([1.0] * (ENOUGH_SAMPLES - 1), [2.0] * (ENOUGH_SAMPLES - 1)).known
    assert ratio([1.0] * ENOUGH_SAMPLES, [2.0] * ENOUGH_SAMPLES).known


def test_one_sample_of_a_simulation_is_not_few(write: Write, capsys: Captured) -> None:
    made = split("usp", 1.0, simulated="h100-ib") | {"ms": kernel("fa4", [1.0])["ms"]}
    assert asked(write("made", [made]), "--gpus", "64", "--cluster", "h100-ib") == 0
    assert "fewer than" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("mask", "given", "named"),
    [
        ("uniform_block", {}, "uniform_block, b=64, ratio=0.5, heads=8, 8K tokens"),
        ("uniform_block", {"ratio": 0.2, "heads": 1}, "uniform_block, b=64, ratio=0.2, heads=1, 8K tokens"),
        ("sliding_window", {}, "sliding_window, w=1024, 8K tokens"),
        ("prefix_lm_causal", {}, "prefix_lm_causal, p drawn, 8K tokens"),
        ("prefix_lm_causal", {"p": 7}, "prefix_lm_causal, p=7, 8K tokens"),
        ("causal", {}, "causal, 8K tokens"),
    ],
)
def test_the_first_line_names_the_parameters_that_are_assumed(mask: str, given: dict[str, float], named: str) -> None:
    assert Question.parse(mask, "8K", params=given).describe().startswith(named)


def test_the_closest_records_come_first(write: Write, capsys: Captured) -> None:
    shapes = [(8, 128), (64, 128), (64, 64), (128, 128), (16, 128)]
    made = [kernel("fa4", around(1.0), seqlen=length << 10, heads_q=q, head_dim=dim) for length in (16, 1, 2) for q, dim in shapes]
    folder = write("made", [*made, split("usp", 1.0, ranks=8), split("usp", 1.0, ranks=8, simulated="h100-ib")])
    assert asked(folder, "--dtype", "fp16") == NO_RECORD
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("there are records of causal at ")]
    shown = [line.partition(" at ")[2].split(" heads")[0] for line in said]
    assert shown == ["1K, 2K, 16K with 64:8", "1K, 2K, 16K with 128:8", "1K, 2K, 16K with 16:8"]  # of the same head size; three at most
    words = ["--mask", "causal", "--seqlen", "16K", "--heads", "32:8", "--exact"]
    assert main(["recommend", *words, "--results", str(folder)]) == NO_RECORD
    assert "there are records with --heads 8:8 or with --heads 16:8 or with --heads 64:8 or with" in capsys.readouterr().out


SCALED = "it is scaled over lengths, heads, head sizes and parameters of the mask only"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--sinks", "--exact"], "with --sinks, and --exact excludes nearest answers."),
        (
            ["--softcap", "50", "--dtype", "fp16"],
            f"with --dtype fp16 or with --softcap 50; a nearest answer needs one with --dtype fp16, as {SCALED}.",
        ),
        (
            ["--dtype", "fp16", "--seqlen", "4K"],
            f"with --dtype fp16 or with --seqlen 4K; a nearest answer needs one with --dtype fp16, as {SCALED}.",
        ),
        (["--seqlen", "1M"], "with --seqlen 1M."),
        (["--seqlen", "4K", "--exact"], "with --seqlen 4K, and --exact excludes nearest answers."),
        (["--gpus", "8"], "with --gpus 8, and nearest answers are of one GPU only."),
        (["--heads", "32:8", "--deterministic", "--exact"], "with --deterministic and with --heads 32:8 together, and --exact excludes "),
    ],
)
def test_the_obstacle_is_said_first(write: Write, capsys: Captured, given: list[str], said: str) -> None:
    """Then the closest records, none of which is simulated."""
    made = [kernel("fa4", around(1.0)), kernel("fa4", around(1.0), heads_q=32), split("usp", 1.0, simulated="h100-ib")]
    folder = write("made", [*made, kernel("fa4", around(1.0), heads_q=16, deterministic=True)])
    words = ["recommend", "--mask", "causal", "--seqlen", "8K", "--results", str(folder)]
    assert main([*words, *given]) == NO_RECORD
    first, asked_for, obstacle, *others = capsys.readouterr().out.splitlines()
    assert (first, asked_for.partition(",")[0]) == ("no record answers this.", "causal")
    assert obstacle.startswith(f"there is no measured record of causal {said}")
    assert 1 <= sum(line.startswith(("there are records", "measured lengths")) for line in others) <= 3
    assert "simulated on" not in " ".join(others)


def test_a_flag_that_is_lacking_only_with_others_is_named_with_them(write: Write, capsys: Captured) -> None:
    """There are records of 64K and of these heads; the closest differ in the length only."""
    shape = {"heads_q": 32, "heads_kv": 32}
    made = [kernel("fa4", around(1.0), seqlen=64 << 10), kernel("fa4", around(1.0), seqlen=8 << 10, head_dim=192, **shape)]
    words = ["--mask", "causal", "--seqlen", "64K", "--heads", "32:32", "--head-dim", "192/128", "--exact"]
    assert main(["recommend", *words, "--results", str(write("made", made))]) == NO_RECORD
    flags = "with --seqlen 64K, with --heads 32:32 and with --head-dim 192/128 together"
    assert f"there is no measured record of causal {flags}, and --exact excludes nearest answers.\n" in capsys.readouterr().out


def test_kernels_that_refuse_the_shape_say_so_where_no_other_was_measured(write: Write, capsys: Captured) -> None:
    assert asked(write("made", [kernel("fa4:bands", around(1.0)), kernel("fa3", around(1.0))]), "--head-dim", "512") == NO_RECORD
    said = capsys.readouterr().out
    assert said.startswith("no kernel that was measured can be recommended.\n")
    assert said.count(" unsupported ") == 2
    assert "\nto measure it: longca run " in said


@pytest.mark.parametrize(("base", "variant", "again"), [("fa4", "blocks", "fa4:blocks"), ("mine", "fast", "mine")])
def test_the_variant_that_won_is_measured_again(write: Write, capsys: Captured, base: str, variant: str, again: str) -> None:
    """Of a kernel that is not here nobody knows whether its variant can be asked for."""
    made = make_record(around(1.0), asked=base, kernel=base, variant=variant, **{"pass": "fwd+bwd"})
    assert asked(write("made", [made])) == 0
    said = capsys.readouterr().out
    assert f"use {base}:{variant}" in said
    assert f"to measure it again: longca run --kernels {again} " in said


def test_methods_that_refuse_block_patterns_are_not_worth_measuring(write: Write) -> None:
    about = {"mask": "uniform_block", "params": {"b": 64, "ratio": 0.5, "heads": 8}}
    found = load([write("made", [split("ulysses", 1.0, ranks=8, **about), blocks("flex", around(1.0))])])
    unmeasured = recommend(Question.parse("uniform_block", "8K", gpus=8), found).unmeasured
    assert "ring_allgather" in unmeasured
    assert not {"magi", "ring_p2p", "ulysses"} & set(unmeasured)
    dense = load([write("dense", [split("usp", 1.0, ranks=128)])])
    unmeasured = recommend(Question.parse("causal", "8K", gpus=128), dense).unmeasured
    assert "magi" in unmeasured
    assert "ulysses" not in unmeasured  # 128 ranks cannot share 64 heads


@pytest.mark.parametrize("flag", ["--mask", "--seqlen", "--device", "--results", "--pass", "--memory", "--cluster", "--export"])
def test_an_empty_argument_is_refused(write: Write, capsys: Captured, flag: str) -> None:
    words = {"--mask": "causal", "--seqlen": "8K", "--results": str(write("made", [kernel("fa4", around(1.0))])), flag: ""}
    assert main(["recommend", *(word for pair in words.items() for word in pair)]) == 2
    assert f"longca: {flag} is empty; give a value, or leave it out." in capsys.readouterr().err


def test_an_empty_folder_name_is_refused() -> None:
    for results in ("", [""], ["somewhere", ""]):
        with pytest.raises(BadInput, match="a folder of results is empty; give its name, or leave it out"):
            best("causal", "8K", results=results)
