"""Recommendations from made journals: who wins, who is out and why, what is said where no record answers."""

import json
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import longca
from longca.bench.merge import pack
from longca.cli import main
from longca.cli.recommend import SHOWN
from longca.report import evidence
from longca.report.best import NO_RECORD, NoRecord, ask, table
from longca.report.recommend import Answer, recommend
from report.made import Record, make_record

Write = Callable[..., Path]
ROOT = Path(__file__).parents[2]


def kernel(name: str, samples: Any, which: str = "fwd+bwd", **fields: Any) -> Record:
    base, _, variant = name.partition(":")
    about = {"asked": name, "kernel": base, "variant": variant or None, "pass": which}
    return make_record(samples, **about, **fields)


def around(ms: float) -> list[float]:
    return [ms * factor for factor in (0.99, 1.0, 1.0, 1.01)]


def answer(folder: Path, mask: str = "causal", seqlen: str = "8K", heads: str = "64:8", **more: Any) -> Answer:
    return recommend(ask(mask, seqlen, heads, 128, "bf16", **more), evidence.load([folder]))


def test_the_fastest_the_runners_up_and_why_others_are_out(write: Write) -> None:
    made = [
        kernel("flex", around(3.0)),
        kernel("fa4:bands", around(1.0)),
        kernel("sdpa:cudnn", around(1.005)),
        *(
            kernel(f"k{status}", None, status=status, reason=f"the reason of {status}")
            for status in ("unsupported", "oom", "wrong", "timeout")
        ),
        kernel("fa3", around(0.1), which="fwd"),
    ]
    found = answer(write("made", made))
    assert [choice.name for choice in found.choices] == ["fa4:bands", "sdpa:cudnn", "flex"]
    assert [choice.as_good for choice in found.choices] == [False, True, False]
    assert found.choices[2].against_best == pytest.approx(1 / 3, rel=0.01)
    assert {one.name: one.status for one in found.out} == {
        "koom": "oom", "ktimeout": "timeout", "kunsupported": "unsupported", "kwrong": "wrong", "fa3": "not measured",
    }  # fmt: skip
    assert next(one.reason for one in found.out if one.name == "fa3") == "there is no record of its bwd"
    assert "cudnn_flex" in found.unmeasured
    assert "flex" not in found.unmeasured
    assert "vsa" not in found.unmeasured  # it takes blocks only
    assert found.best is not None
    assert not found.best.summed


def test_forward_and_backward_measured_apart_are_added(write: Write) -> None:
    made = [kernel("fa4:bands", around(1.0), "fwd", flops=1e12), kernel("fa4:bands", around(3.0), "bwd", flops=2.5e12, peak_gib=2.0)]
    made += [kernel("flex", around(1.0), "fwd"), kernel("flex", None, "bwd", status="oom", reason="out of memory")]
    found = answer(write("made", made))
    assert found.best is not None
    assert found.best.summed
    assert found.best.ms == pytest.approx(4.0)
    assert found.best.tflops == pytest.approx(3.5e12 / 4.0 / 1e9)
    inputs = 8192 * (64 * 128 * 2 + 8 * 128 * 2) * 2 / 2**30
    assert found.best.memory_gib == pytest.approx(2.0 + inputs)
    assert [(one.name, one.status) for one in found.out] == [("flex", "oom")]


def test_a_record_of_both_passes_counts_before_the_sum(write: Write) -> None:
    made = [kernel("fa4", around(1.0), "fwd"), kernel("fa4", around(1.0), "bwd"), kernel("fa4", around(5.0), "fwd+bwd")]
    best = answer(write("made", made)).best
    assert best is not None
    assert best.ms == pytest.approx(5.0)


def test_forwards_of_training_and_of_inference_are_told_apart(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    made = [kernel("fa4", around(2.0), "fwd", grad=True), kernel("fa4", around(1.0), "fwd", grad=False), kernel("flex", around(3.0), "fwd")]
    folder = write("made", [*made, kernel("fa4", around(4.0), "bwd")])
    assert main(["recommend", "--mask", "causal", "--seqlen", "8K", "--pass", "fwd", "--results", str(folder)]) == 0
    assert "the forward of flex is that of training" in capsys.readouterr().out
    fwd, both = answer(folder, which="fwd").best, answer(folder).best
    assert fwd is not None
    assert both is not None
    assert (fwd.ms, both.ms) == (pytest.approx(1.0), pytest.approx(6.0))


def test_a_bare_name_whose_backward_is_refused_is_one_candidate(write: Write) -> None:
    made = [make_record(around(1.0), asked="fa4", variant="native"), make_record(None, asked="fa4", variant=None, **{"pass": "bwd"})]
    made[1] |= {"status": "unsupported", "reason": "no backward"}
    found = answer(write("made", made))
    assert [(one.name, one.reason) for one in found.out] == [("fa4:native", "no backward")]
    assert found.best is None


def test_seeds_are_compared_on_the_same_masks(write: Write) -> None:
    """a is slow on a mask of its own that the others never saw; speeds of other documents say nothing."""

    def one(name: str, seed: int, tflops: float) -> Record:
        return kernel(name, [1.1e12 / tflops / 1e9], mask="causal_document", seed=seed, mask_digest=f"d{seed}")

    made = [one("a", seed, speed) for seed, speed in enumerate((500, 400, 300, 1))]
    made += [one("b", seed, speed) for seed, speed in enumerate((450, 350, 250))]
    made += [one("c", 0, 900)]
    found = answer(write("made", made), "causal_document")
    assert [choice.name for choice in found.choices] == ["c", "a", "b"]
    assert found.seeds == (0,)
    found = answer(write("without-c", made[:-1]), "causal_document")
    assert [(choice.name, round(choice.tflops), round(choice.worst_tflops)) for choice in found.choices] == [
        ("a", 400, 300),
        ("b", 350, 250),
    ]
    assert found.seeds == (0, 1, 2)
    broken = kernel("b", None, mask="causal_document", seed=3, mask_digest="d3", status="wrong", reason="off by one")
    found = answer(write("broken", [*made[:-1], broken]), "causal_document")
    assert [choice.name for choice in found.choices] == ["a"]
    assert found.out[0].reason == "off by one (seed 3 of 4 masks)"


def test_memory(write: Write) -> None:
    made = [
        kernel("big", around(1.0), peak_gib=70.0),
        kernel("small", around(2.0), peak_gib=1.0),
        kernel("blind", around(0.5), peak_gib=None),
    ]
    found = answer(write("made", made), memory="48GiB")
    assert [choice.name for choice in found.choices] == ["small"]
    assert {one.name: one.status for one in found.out} == {"big": "too large", "blind": "not measured"}
    assert "70.3 GiB with its inputs, over the 48 asked for" in next(one.reason for one in found.out if one.name == "big")


def split(method: str, ms: float, ranks: int = 64, **fields: Any) -> Record:
    return kernel("fa4:bands", around(ms), level="cp", method=method, ranks=ranks, grid=f"8x{ranks // 8}", **fields)


def test_many_gpus_and_simulated_records_are_never_mixed(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    made = [
        split("usp", 5.0),
        split("magi", 4.0),
        *(split(name, ms, simulated="h100-ib") for name, ms in (("usp", 1.0), ("ring_p2p", 2.0))),
    ]
    folder = write("made", [*made, kernel("fa4:bands", around(100.0))])
    measured = answer(folder, gpus=64)
    assert [choice.name for choice in measured.choices] == ["magi 8x8 fa4:bands", "usp 8x8 fa4:bands"]
    assert measured.best is not None
    assert (measured.best.method, measured.best.grid, measured.best.kernel) == ("magi", "8x8", "fa4:bands")
    assert measured.best.tflops == pytest.approx(1.1e12 / 64 / 4.0 / 1e9)
    assert measured.best.memory_gib == 1.5  # of a rank the count has its tokens in it
    assert "ulysses" in measured.unmeasured
    simulated = answer(folder, gpus=64, cluster="h100-ib")
    assert [(choice.method, choice.simulated) for choice in simulated.choices] == [("usp", "h100-ib"), ("ring_p2p", "h100-ib")]
    words = ["recommend", "--mask", "causal", "--seqlen", "8K", "--results", str(folder), "--gpus", "64"]
    assert main([*words, "--cluster", "h100-ib"]) == 0
    said = capsys.readouterr().out
    assert "SIMULATED" in said
    assert "to measure it again" not in said
    folder = write("simulated", made[2:])
    assert main([*words[:-3], str(folder), "--gpus", "64"]) == NO_RECORD
    said = capsys.readouterr().out
    assert "records answer with --cluster h100-ib." in said
    assert "longca run --kernels all --level cp --nproc 64 --masks causal --seqlens 8K" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seqlen", "16K"], "measured lengths are 8K; nothing is said about others."),
        (["--heads", "8:8"], "records answer with --heads 64:8."),
        (["--dtype", "fp16", "--deterministic"], "measured of causal are: 8K, 64:8 heads of 128, bf16, NVIDIA H200."),
        (["--device", "B200"], "records answer with --device 'NVIDIA H200'."),
        (["--mask", "full"], "there is no record of full at all."),
        (["--mask", "sliding_window"], "records answer with --set w=64."),
        (["--gpus", "8"], "records answer with --gpus 1."),
    ],
)
def test_where_no_record_answers_it_says_what_would(
    write: Write, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    folder = write("made", [kernel("fa4", around(1.0)), kernel("fa4", around(1.0), mask="sliding_window", params={"w": 64})])
    words = {"--mask": "causal", "--seqlen": "8K"} | dict(zip(arguments[::2], arguments[1::2], strict=False))
    given = [word for pair in words.items() for word in pair] + arguments[len(arguments) // 2 * 2 :]
    assert main(["recommend", *given, "--results", str(folder)]) == NO_RECORD
    out = capsys.readouterr().out
    assert said in out
    assert "no record answers this." in out
    assert "to measure it" in out


def test_the_advised_run_answers_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ask, run what is advised (smaller), ask again as advised, and run the lines of Python it prints."""
    monkeypatch.chdir(tmp_path)
    shape = ["--heads", "4:2", "--head-dim", "16", "--dtype", "fp32"]
    assert main(["recommend", "--mask", "causal_document", "--seqlen", "1K", *shape, "--results", *_empty(tmp_path)]) == NO_RECORD
    lines = capsys.readouterr().out.splitlines()
    run, then = (shlex.split(next(line for line in lines if line.startswith(start)).partition(": ")[2]) for start in ("to measure", "then"))
    run[run.index("all")] = "torch:plain,sdpa:math"
    assert main([*run[1:], "--budget", "0.02", "--device", "cpu"]) == 0
    capsys.readouterr()
    assert main(then[1:]) == 0
    said = capsys.readouterr().out
    assert "median and worst over the masks of 3 seeds (0, 1, 2), the same for all." in said
    assert f"it stands on {2 * 3} records" in said
    assert " --seeds 0,1,2 " in next(line for line in said.splitlines() if line.startswith("to measure it again: longca run --kernels "))
    assert said.count("out/recommend/results.jsonl") == SHOWN
    assert main([*then[1:], "--code"]) == 0
    code = capsys.readouterr().out
    done = subprocess.run(
        [sys.executable, "-c", code + "assert q.grad.isfinite().all()"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    best = longca.best("causal_document", "1K", "4:2", 16, "fp32", results=["out/recommend"])
    assert f'kernel="{best.kernel}"' in code


@pytest.mark.parametrize("source", ["random", "moba"])
def test_the_code_for_block_patterns_runs(write: Write, capsys: pytest.CaptureFixture[str], source: str) -> None:
    shape = {"heads_q": 4, "heads_kv": 2, "head_dim": 16, "head_dim_v": 16, "dtype": "fp32", "seqlen": 256, "source": source}
    made = kernel("torch:plain", around(1.0), level="sparse", mask="uniform_block", params={"b": 64, "ratio": 0.5, "heads": 2}, **shape)
    folder = write("made", [made], {"device_kind": "cpu"})
    words = ["--mask", "uniform_block", "--seqlen", "256", "--heads", "4:2", "--head-dim", "16", "--dtype", "fp32", "--source", source]
    assert main(["recommend", *words, "--results", str(folder), "--code"]) == 0
    code = capsys.readouterr().out
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert scope["q"].grad.isfinite().all()
    assert getattr(scope["mask"], "source", "random") in (source, "")


@pytest.mark.slow
def test_the_code_for_many_ranks_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    shape = ["--heads", "4:2", "--head-dim", "16", "--dtype", "fp32"]
    split = ["--level", "cp", "--methods", "ulysses,magi", "--nproc", "2"]
    words = ["run", *split, "--masks", "causal_document", "--seqlens", "300", *shape, "--passes", "fwd,bwd", "--budget", "0.02"]
    assert main([*words, "--device", "cpu", "--out", str(tmp_path)]) == 0
    question = ["--mask", "causal_document", "--seqlen", "300", *shape, "--gpus", "2", "--results", str(tmp_path)]
    capsys.readouterr()
    assert main(["recommend", *question, "--code"]) == 0
    file = tmp_path / "attend.py"
    file.write_text(capsys.readouterr().out.replace("dist.destroy", "assert q.grad.isfinite().all()\ndist.destroy"))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(file)]
    done = subprocess.run(launch, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _empty(folder: Path) -> list[str]:
    (folder / "empty").mkdir()
    (folder / "empty" / "results.jsonl").write_text("")
    return [str(folder / "empty")]


def test_the_table_for_other_programs(write: Write, tmp_path: Path) -> None:
    made = [kernel("fa4", around(ms), which, seqlen=n) for n, ms in ((8192, 1.0), (4096, 0.5)) for which in ("fwd", "bwd")]
    made += [kernel("flex", around(0.3), "fwd"), kernel("flex", around(1.0), "fwd", mask="sliding_window", params={"w": 64})]
    folder = write("made", [*made, split("magi", 1.0)])
    target = tmp_path / "table.json"
    assert main(["recommend", "--export", str(target), "--results", str(folder)]) == 0
    found = {
        (entry["question"]["mask"], entry["question"]["seqlen"], entry["question"]["pass"], entry["question"]["gpus"]): entry
        for entry in json.loads(target.read_text())
    }
    assert {place: entry["best"] and entry["best"]["kernel"] for place, entry in found.items()} == {
        ("causal", 8192, "fwd", 1): "flex", ("causal", 8192, "bwd", 1): "fa4", ("causal", 8192, "fwd+bwd", 1): "fa4",
        ("causal", 4096, "fwd", 1): "fa4", ("causal", 4096, "bwd", 1): "fa4", ("causal", 4096, "fwd+bwd", 1): "fa4",
        ("sliding_window", 8192, "fwd", 1): "flex", ("sliding_window", 8192, "bwd", 1): None, ("sliding_window", 8192, "fwd+bwd", 1): None,
        ("causal", 8192, "fwd", 64): None, ("causal", 8192, "bwd", 64): None, ("causal", 8192, "fwd+bwd", 64): "fa4:bands",
    }  # fmt: skip
    assert found["sliding_window", 8192, "fwd", 1]["question"]["params"] == {"w": 64}
    record = found["causal", 8192, "bwd", 1]["best"]["records"][0]
    assert record["file"] == str(folder / "results.jsonl")
    assert record["command"].startswith("longca run --kernels fa4 ")
    assert len(table(evidence.load([folder]))) == len(found)


def test_best_says_what_is_missing(write: Write) -> None:
    folder = write("made", [kernel("fa4", None, status="oom", reason="out of memory")])
    with pytest.raises(NoRecord, match=r"no record recommends anything for causal, 8K tokens.* fa4: out of memory$"):
        longca.best("causal", 8192, results=[folder])
    with pytest.raises(NoRecord, match=r"measured lengths are 8K; .* to measure it: longca run --kernels all --masks causal --seqlens 4K "):
        longca.best("causal", "4K", results=[folder])
    with pytest.raises(longca.BadInput, match="unknown mask 'casual'"):
        longca.best("casual", 8192, results=[folder])
    with pytest.raises(longca.BadInput, match="memory must be a text with its unit, such as '80GiB', not 80"):
        longca.best("causal", 8192, results=[folder], memory=80)  # type: ignore[arg-type]
    for one in (folder, str(folder)):  # a single folder needs no list
        with pytest.raises(NoRecord):
            longca.best("causal", "4K", results=one)


def test_records_of_several_devices_need_a_choice(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [write("a", [kernel("fa4", around(1.0))]), write("b", [kernel("flex", around(2.0), env="x")])]
    (folders[1] / "env.json").write_text(json.dumps({"x": {"device": "NVIDIA B200"}}))
    words = ["recommend", "--mask", "causal", "--seqlen", "8K", "--results", *map(str, folders)]
    assert main(words) == 2
    assert "records of several devices answer this (NVIDIA B200, NVIDIA H200); choose one with --device" in capsys.readouterr().err
    assert main([*words, "--device", "b200"]) == 0
    assert "use flex" in capsys.readouterr().out


def test_a_later_record_of_the_same_cell_counts(write: Write) -> None:
    made = [kernel("fa4", around(ms), key=key) for key, ms in (("old torch", 1.0), ("new torch", 2.0))]
    best = answer(write("made", made)).best
    assert best is not None
    assert best.ms == pytest.approx(2.0)
    assert [source.record["key"] for source in best.sources] == ["new torch"]


def test_shipped_journals_are_found_wherever_longca_runs_from(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = write("results/h200/paper-kernel".replace("/", "-"), [kernel("fa4", around(1.0))])
    (tmp_path / "checkout" / "results").mkdir(parents=True)
    home = tmp_path / "checkout" / "results" / "h200"
    journal.rename(home)
    pack(home)
    monkeypatch.setattr(evidence, "SHIPPED", (tmp_path / "nowhere", tmp_path / "checkout" / "results"))
    assert evidence.shipped() == []
    (tmp_path / "checkout" / "pyproject.toml").write_text("")
    assert evidence.shipped() == [home]
    best = longca.best("causal", "8K")
    assert best.kernel == "fa4"
    assert best.sources[0].file == home / "results.jsonl.gz"


def test_a_wheel_holds_the_shipped_results(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building a wheel needs hatchling; pip install hatchling")
    code = f"import hatchling.build; print(hatchling.build.build_wheel({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    names = zipfile.ZipFile(tmp_path / done.stdout.split()[-1]).namelist()
    shipped = [path.relative_to(ROOT) for path in (ROOT / "results").rglob("*") if path.is_file()]
    assert shipped
    assert {f"longca/{path}" for path in shipped} <= set(names)


def test_an_installed_package_and_a_checkout_are_both_looked_in() -> None:
    package = Path(longca.__file__).parent
    assert (package / "results", ROOT / "results") == evidence.SHIPPED
