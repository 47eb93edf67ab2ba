"""Nearest answers: one shape for all kernels, scaled by work, marked as such, and never where records answer exactly."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import longca
from journals import Write
from longca import masks
from longca.cli import main
from longca.kernels import registry
from longca.kernels.base import Case
from longca.recommend.match import WITH_DOCUMENTS, WITHOUT_DOCUMENTS
from longca.recommend.question import Question
from longca.recommend.rank import NO_RECORD, NoRecord, recommend
from longca.recommend.shipped import load
from longca.results.words import excluded
from recommend.cells import cell, forward
from report.made import Record, kernel, split

ROOT = Path(__file__).parents[2]
LENGTHS = tuple(n << 10 for n in (2, 4, 8, 16, 32))


@pytest.mark.parametrize("seqlen", ["12K", "20000", "64K", "1K"])
@pytest.mark.parametrize("mask", ["causal", "sliding_window_causal", "prefix_lm_causal"])
def test_a_kernel_with_a_steady_rate_is_predicted_exactly(write: Write, seqlen: str, mask: str) -> None:
    folder = write("made", [cell(name, n, rate, mask=mask) for name, rate in (("fa4:bands", 500.0), ("flex", 300.0)) for n in LENGTHS])
    found = forward(folder, seqlen, mask)
    assert found.nearest is not None
    assert [(choice.name, choice.tflops) for choice in found.choices] == [
        ("fa4:bands", pytest.approx(500.0)),
        ("flex", pytest.approx(300.0)),
    ]


def test_lengths_of_two_clocks_are_scaled_as_measured(write: Write) -> None:
    """One length by an older LongCA at 1,500 MHz; times of the other, measured there too, are given for 1,410 MHz."""
    new = cell("fa4:bands", 16384, 500.0 * 1410 / 1500, clock_mhz=1500.0, at_mhz=1410.0, clocks=[1500] * 6)
    found = forward(write("made", [cell("fa4:bands", 4096, 500.0, clock_mhz=1500.0), new]), "8K")
    assert [choice.tflops for choice in found.choices] == [pytest.approx(500.0)]


@pytest.mark.parametrize("seqlen", ["64K", "128K"])
def test_ranks_that_share_a_gpu_answer_nothing_about_whole_gpus(write: Write, seqlen: str) -> None:
    shared = [split("ulysses", 1.0, 8, seqlen=65536, area=masks.causal(65536).area, sharing={"ranks": 8}, **{"pass": "fwd"})]
    found = forward(write("shared", shared), seqlen, gpus=8)
    assert (found.choices, found.nearest) == ((), None)


def test_exact_answers_win_and_can_be_demanded(write: Write) -> None:
    folder = write("made", [*(cell("fa4:bands", n, 500.0) for n in LENGTHS), cell("flex", 12288, 100.0)])
    exact = forward(folder, "12K")
    assert (exact.nearest, [choice.name for choice in exact.choices]) == (None, ["flex"])
    assert exact.choices[0].ms_range is None
    found = forward(folder, "20K")
    assert found.nearest is not None
    assert found.nearest.seqlens == (16384, 32768)
    assert "--seqlens 20K" in found.measure
    assert exact.measure == ""
    assert longca.best("causal", "20K", pass_="fwd", results=folder).ms_range is not None
    with pytest.raises(NoRecord):
        longca.best("causal", "20K", pass_="fwd", exact=True, results=folder)


@pytest.mark.parametrize(
    ("seqlen", "asked", "spread"),
    [
        ("64K", {}, WITHOUT_DOCUMENTS),
        ("128K", {"heads": "32:8"}, WITHOUT_DOCUMENTS),
        ("256K", {}, None),  # over four times the longest
        ("1K", {}, None),  # less side by side than was measured
        ("2K", {"heads": "32:8"}, None),
        ("8K", {"head_dim": 64}, None),
        ("8K", {"softcap": 50.0}, None),
        ("8K", {"sinks": True}, None),
    ],
)
def test_the_range_is_fixed_or_unknown(write: Write, seqlen: str, asked: dict[str, Any], spread: float | None) -> None:
    found = forward(write("made", [cell("flex", n, 500.0) for n in LENGTHS]), seqlen, **asked)
    assert found.nearest is not None
    assert found.nearest.spread == spread
    for choice in found.choices:
        assert choice.ms_range == (None if spread is None else pytest.approx(((1 - spread) * choice.ms, (1 + spread) * choice.ms)))


@pytest.mark.parametrize(("w", "is_known"), [(1024, True), (1023, True), (512, False)])
def test_another_window_has_no_range_unless_it_is_hardly_another(write: Write, w: int, is_known: bool) -> None:
    folder = write("made", [cell("fa4:bands", n, 500.0, mask="sliding_window_causal", params={"w": 1024}) for n in LENGTHS])
    found = forward(folder, "12K", "sliding_window_causal", params={"w": w})
    assert found.nearest is not None
    assert (found.nearest.spread is not None) is is_known


def shapes(*given: tuple[int, int, int, int]) -> list[Record]:
    """Records of query heads, head size, window and length, each with a rate of its own: 100 by its number."""
    about = [{"heads_q": q, "head_dim": dim, "head_dim_v": dim, "params": {"w": w}} for q, dim, w, _ in given]
    named = zip(given, about, strict=True)
    return [cell("fa4:bands", own[3], 100.0 * n, mask="sliding_window_causal", **more) for n, (own, more) in enumerate(named, 1)]


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([(64, 64, 1024, 8192)], "the head size counts before the window"),
        ([(64, 128, 256, 8192)], "the window counts before heads and length"),
        ([(8, 128, 1024, 8192)], "three doublings of the heads are more than one of heads and one of the length"),
        ([(64, 128, 1024, 1024)], "and so are three doublings of the length"),
    ],
)
def test_the_nearest_shape(write: Write, others: list[tuple[int, int, int, int]], why: str) -> None:
    """The first is a doubling of heads and one of the length away, or for other windows as near as any."""
    folder = write("made", shapes((32, 128, 1024, 4096), *others))
    found = forward(folder, "8K", "sliding_window_causal", params={"w": 1024})
    assert [choice.tflops for choice in found.choices] == [pytest.approx(100.0, rel=0.01)], why


def test_one_shape_serves_all_kernels(write: Write) -> None:
    """A kernel that only a farther shape has is not borrowed from there."""
    made = [cell("fa4:bands", 8192, 400.0, heads_q=32), *(cell(name, 8192, 900.0, heads_q=8) for name in ("fa4:bands", "flex"))]
    found = forward(write("made", made), "8K")
    assert [(choice.name, choice.tflops) for choice in found.choices] == [("fa4:bands", pytest.approx(400.0))]


def test_what_is_no_neighbour(write: Write) -> None:
    """Another dtype, device or determinism, many GPUs, a simulation: none of these is a matter of work."""
    made = [cell("fa4:bands", n, 500.0) for n in LENGTHS]
    folder = write("made", [*made, *(split("usp", 1.0, ranks=8, seqlen=n, simulated=s) for n in LENGTHS for s in (None, "h100-ib"))])
    asked: list[dict[str, Any]] = [{"dtype": "fp16"}, {"deterministic": True}, {"gpus": 8}]
    for more in (*asked, {"device": "B200"}):
        assert forward(folder, "20K", **more).best is None, more


def test_kernels_that_failed_or_refuse_the_shape_are_out(write: Write) -> None:
    made = [cell(name, n, 500.0) for n in LENGTHS for name in ("torch:plain", "fa4:bands")]
    failed = kernel("flex", None, "fwd", seqlen=16384, status="oom", reason="out of memory")
    found = forward(write("made", [*made, failed, cell("flex", 32768, 900.0)]), "18K", head_dim=512)
    assert [choice.name for choice in found.choices] == ["torch:plain"]
    assert {out.line: out.status for out in found.out} == {"fa4:bands": "unsupported", "flex": "oom"}
    assert next(excluded(out) for out in found.out if out.line == "flex") == "at 16K: out of memory"


@pytest.mark.parametrize("extra", [{"softcap": 50.0}, {"sinks": True}])
def test_only_kernels_that_take_a_softcap_or_sinks_are_recommended(write: Write, extra: dict[str, Any]) -> None:
    """No record has them. A kernel of a plugin that is not loaded is not trusted to take them."""
    known = ("flex", "fa4:native", "fa3", "cudnn_flex:rows")
    found = forward(write("made", [cell(name, 8192, 400.0) for name in (*known, "mine")]), "8K", **extra)
    case = Case(8192, 8192, 64, 8, 128, 128, "bf16", "cuda", backward=False, **extra)
    able = {name for name in known if registry.supports(registry.get(name), masks.build("causal", 8192), case)}
    assert {choice.name for choice in found.choices} == able
    assert {out.line: out.status for out in found.out}["mine"] == "unsupported"
    capped = cell("flex", 4096, 300.0, **extra)
    own = forward(write("own", [cell("flex", 8192, 400.0), capped]), "8K", **extra)
    assert [choice.tflops for choice in own.choices] == [pytest.approx(300.0)], "records that have it come first"


def documents(name: str, seed: int, rate: float) -> Record:
    area = masks.build("causal_document", 8192, seed=seed).area
    flops = 4 * area * 64 * 128
    about = {"mask": "causal_document", "mask_digest": f"d{seed}", "seed": seed, "area": area, "flops": flops}
    return kernel(name, [flops / rate / 1e9] * 6, "fwd", seqlen=8192, **about)


def test_own_documents_have_the_rate_of_their_density(write: Write, tmp_path: Path) -> None:
    """The rate is linear in the logarithm of the visible pairs per token, whatever the seeds are called."""
    areas = {seed: masks.build("causal_document", 8192, seed=seed).area for seed in range(4)}

    def rate(area: int) -> float:
        return 30 * math.log(area)

    folder = write("made", [documents("fa4:bands", seed, rate(area)) for seed, area in areas.items()])
    lengths = [3000, 3000, 2192]
    mask = masks.build("causal_document", 8192, documents=lengths)
    assert min(areas.values()) < mask.area < max(areas.values())
    found = forward(folder, "8K", "causal_document", documents=tuple(lengths))
    (choice,) = found.choices
    assert found.nearest is not None
    assert (choice.tflops, found.nearest.spread) == (pytest.approx(rate(mask.area)), WITH_DOCUMENTS)
    file = tmp_path / "lengths.json"
    file.write_text(json.dumps(lengths))
    for typed in (lengths, file, str(file)):
        assert longca.best("causal_document", "8K", pass_="fwd", documents=typed, results=folder).ms == choice.ms
    words = ["recommend", "--mask", "causal_document", "--seqlen", "8K", "--pass", "fwd", "--results", str(folder)]
    assert main([*words, "--lengths", str(file)]) == 0
    assert main([*words, "--lengths", str(file), "--distribution", "pile"]) == 2
    assert main([*words, "--lengths", str(file), "--exact"]) == NO_RECORD
    measured = write("own", [documents("flex", 0, 300.0) | {"mask_digest": mask.digest, "given": {"documents": True}}])
    exact = forward(measured, "8K", "causal_document", documents=tuple(lengths))
    assert (exact.nearest, [one.name for one in exact.choices]) == (None, ["flex"]), "these documents were measured"


def test_documents_without_any_are_refused() -> None:
    with pytest.raises(longca.BadInput, match="causal has no documents"):
        longca.best("causal", "8K", documents=[8192])
    with pytest.raises(longca.BadInput, match="documents must be a file, or a list of lengths"):
        longca.best("causal_document", "8K", documents=[0])


@pytest.mark.parametrize(
    ("mask", "seqlen", "heads"), [("causal", "64K", "32:8"), ("causal_document", "80K", "64:8"), ("full", "20K", "40:8")]
)
def test_the_shipped_results_answer_with_the_nearest(mask: str, seqlen: str, heads: str) -> None:
    found = recommend(Question.parse(mask, seqlen, heads=heads), load(ROOT / "results" / "h200"))
    assert found.nearest is not None
    assert found.best is not None
    assert found.best.ms_range is not None
    assert found.device == "NVIDIA H200"
    json.dumps(found.to_json(), allow_nan=False)


def test_records_of_another_default_and_of_too_long_sequences_do_not_answer(write: Write) -> None:
    """What counts is the window of the mask that was measured, also where nobody asked for one."""
    window = {"mask": "sliding_window_causal", "params": {"w": 128}, "given": {"grad": True}}
    folder = write("made", [cell("fa4:bands", 8192, 500.0, **window), cell("fa4:bands", 8192, 500.0)])
    assert forward(folder, "8K", "sliding_window_causal").nearest is not None
    assert forward(folder, "8K", "sliding_window_causal", params={"w": 128}).nearest is None
    assert forward(folder, "1K").best is None  # launching a kernel would take longer than the scaled time
    assert forward(folder, "2K").best is not None


def test_a_mask_by_another_name_has_the_records_of_its_pairs(write: Write) -> None:
    digest = masks.build("causal", 8192).digest
    folder = write("made", [cell("fa4:bands", 8192, 500.0, mask_digest=digest)])
    found = forward(folder, "8K", "causal & causal")
    assert found.nearest is None
    assert found.best is not None
    assert forward(folder, "8K", "causal & ~sliding_window(w=64)").best is None
