"""What docs/measured-seeds-and-shapes.md says about documents of several seeds and about shapes of models follows from the journals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import correlation, mean, median

import pytest

from longca import masks
from longca.bench.plan.workload import model
from longca.results.ranking import figure
from longca.results.reading import read
from longca.results.record import Record

ROOT = Path(__file__).parents[2]
CUDNN_FLEX = ("cudnn_flex:rows", "cudnn_flex:documents")
USUAL, LLAMA, QWEN, SHARE, SMALL, MLA = (64, 8, 128), (32, 8, 128), (40, 8, 128), (8, 1, 128), (16, 16, 64), (128, 128, 192)
SHORT_DOCUMENTS = ("full_document", "causal_document", "share_question", "causal_blockwise", "prefix_lm_document")
LONG = (32768, 131072)
NEAR = ("fa3", "fa4:native", "fa4:varlen", "fa4:bands", "band_cute", "cudnn_flex:rows", "cudnn_flex:documents", "cudnn", "flex")

Kernels = Mapping[str, Record]
Place = tuple[str, int, str]  # mask, tokens, pass
Seeds = dict[Place, dict[int, dict[str, Record]]]
Shape = tuple[int, int, int]  # query heads, KV heads, head size of queries
Shapes = dict[tuple[Shape, Place], dict[str, Record]]


def page() -> str:
    return " ".join((ROOT / "docs/measured-seeds-and-shapes.md").read_text().split())


def listed() -> str:
    return " ".join((ROOT / "results/h200/README.md").read_text().split())


def timed(journal: str) -> list[Record]:
    return [record for record in read(ROOT / "results/h200" / journal).records if record.ok]


def said(value: float) -> str:
    """At least so many times: two digits, not rounded up."""
    return f"{math.floor(100 * value) / 100:.2f}"


def between(values: Iterable[float]) -> str:
    own = list(values)
    return f"{min(own):.2f} to {max(own):.2f}"


def top(kernels: Kernels) -> float:
    return max(record.speed for record in kernels.values())


@pytest.fixture(scope="module")
def seeds() -> Seeds:
    """By mask, tokens and pass, of which every kernel has all five seeds: the records by seed and kernel."""
    found: Seeds = {}
    for record in timed("seeds"):
        place = record.mask, record.seqlen, record.pass_.value
        found.setdefault(place, {}).setdefault(record.seed, {})[record.label] = record
    return {place: own for place, own in found.items() if len(own) == 5 and len({frozenset(kernels) for kernels in own.values()}) == 1}


def test_the_choice_hardly_depends_on_the_seed(seeds: Seeds) -> None:
    always, least = 0, 1.0
    for own in seeds.values():
        labels = next(iter(own.values())).keys()
        shares = {label: [kernels[label].speed / top(kernels) for kernels in own.values()] for label in labels}
        best = max(labels, key=lambda label: median(shares[label]))
        always += min(shares[best]) == 1
        least = min(least, *shares[best])
    assert f"In {always} of the {len(seeds)} rows, one kernel is the fastest on all seeds" in page()
    assert f"the nearest to the fastest has at least {said(least)} times the fastest speed on every seed" in page()


def test_a_simple_rule_is_as_good(seeds: Seeds) -> None:
    def share(kernels: Kernels, labels: Sequence[str]) -> float:
        return max(kernels[label].speed for label in labels if label in kernels) / top(kernels)

    forward = [share(kernels, CUDNN_FLEX) for place, own in seeds.items() if place[2] == "fwd" for kernels in own.values()]
    backward = {
        seqlen: min(
            share(kernels, ["band_cute"]) for place, own in seeds.items() if place[1:] == (seqlen, "bwd") for kernels in own.values()
        )
        for seqlen in {place[1] for place in seeds}
    }
    rule = f"has at least {said(min(forward))} times the speed of the fastest forward on each of the {len(forward)} masks"
    own = [said(backward[seqlen]) for seqlen in (8192, *LONG)]
    assert rule in page()
    shares = "at least {} times that of the fastest backward at 8K tokens, {} times at 32K and {} times at 128K".format(*own)
    assert f"`band_cute` {shares}" in page()
    assert backward.keys() == {8192, *LONG}, "the page names these lengths"


def ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    return [float(order.index(value)) for value in values]


def test_the_speed_depends_on_the_keys_of_a_query(seeds: Seeds) -> None:
    def correlations(measure: Callable[[Record], float]) -> list[str]:
        found = []
        for pass_ in ("fwd", "bwd"):
            masks = [kernels for place, own in seeds.items() if place[2] == pass_ for kernels in own.values()]
            amounts = [measure(next(iter(kernels.values()))) for kernels in masks]
            found.append(f"{correlation(ranks(amounts), ranks([top(kernels) for kernels in masks])):.2f}")
        return found

    keys = correlations(lambda record: (record.area or 0) / record.seqlen)
    density = correlations(lambda record: (record.area or 0) / record.seqlen**2)
    assert "between speed and keys per query is {} forward and {} backward".format(*keys) in page()
    assert "between speed and density, it is {} and {}".format(*density) in page()
    areas = {place: [next(iter(kernels.values())).area or 0 for kernels in own.values()] for place, own in seeds.items()}
    most = max(max(own) / min(own) for place, own in areas.items() if place[1] == 32768)
    assert f"at 32K tokens up to {most:.0f} times between two seeds" in page()


def test_the_seed_of_the_other_tables_is_not_typical(seeds: Seeds) -> None:
    usual: dict[Place, float] = {}
    for record in timed("paper-kernel"):
        place = record.mask, record.seqlen, record.pass_.value
        usual[place] = max(record.speed, usual.get(place, 0.0))
    ratios = {place: usual[place] / median(top(kernels) for kernels in own.values()) for place, own in seeds.items()}
    long, short = (between(ratio for place, ratio in ratios.items() if place[1] == seqlen) for seqlen in (32768, 8192))
    assert f"the fastest kernels have {long} times the median speed of the five seeds. At 8K it is {short} times" in page()


@pytest.fixture(scope="module")
def shapes() -> Shapes:
    """Records by shape, mask, tokens and pass, and there by kernel."""
    found: Shapes = {}
    for record in [*timed("paper-kernel"), *timed("model-shapes")]:
        place, shape = (record.mask, record.seqlen, record.pass_.value), (record.heads_q, record.heads_kv, record.head_dim)
        found.setdefault((shape, place), {})[record.label] = record
    return found


def over_usual(shapes: Shapes, shape: Shape, pass_: str) -> str:
    """The speeds of the fastest kernels over those of 64:8 heads."""
    return between(
        top(kernels) / top(shapes[USUAL, place]) for (own, place), kernels in shapes.items() if own == shape and place[2] == pass_
    )


def test_heads_of_128_have_the_kernels_of_64_to_8(shapes: Shapes) -> None:
    shares = []
    for (shape, place), kernels in shapes.items():
        if shape in (LLAMA, QWEN, SHARE) and place[1] in LONG:
            usual = shapes[USUAL, place]
            shares.append(kernels[max(usual, key=lambda label: usual[label].speed)].speed / top(kernels))
    assert f"has at least {said(min(shares))} times the fastest speed with 32:8, 40:8 and 8:1 heads" in page()
    place = "causal_document", 32768, "fwd"
    five, four = (shapes[shape, place]["cudnn_flex:documents"].speed for shape in (QWEN, LLAMA))
    assert f"on `causal_document` at 32K is {five / four:.2f} times as fast as with 32:8; `fa3` is as fast there" in page()
    assert shapes[QWEN, place]["fa3"].speed >= five


def test_a_share_of_tensor_parallelism(shapes: Shapes) -> None:
    short = {place: kernels for (shape, place), kernels in shapes.items() if shape == SHARE and place[1] == 8192}
    over = {place: top(kernels) / top(shapes[USUAL, place]) for place, kernels in short.items()}
    causal = [over["causal", 8192, pass_] for pass_ in ("fwd", "bwd")]
    others = between(ratio for place, ratio in over.items() if place[0] != "causal")
    said_of_causal = "On `causal` the fastest kernels have {:.2f} times the speed of 64:8 heads forward and {:.2f} times backward"
    assert f"{said_of_causal.format(*causal)}, and on the other masks {others} times" in page()
    ahead: dict[str, dict[tuple[str, str], float]] = {"fa3": {}, "fa4": {}}
    for (mask, _, pass_), kernels in short.items():
        if mask != "share_question":
            flex = max(record.speed for label, record in kernels.items() if label in CUDNN_FLEX)
            for name, own in ahead.items():
                own[mask, pass_] = max(record.speed for label, record in kernels.items() if label.startswith(name)) / flex
    faster = between(max(own[cell] for own in ahead.values()) for cell in ahead["fa3"])
    assert f"the faster of `fa3` and `fa4` has {faster} times the speed of `cudnn_flex`" in page()
    assert {cell for cell, ratio in ahead["fa4"].items() if ratio < 1} == {("causal", "bwd"), ("causal_document", "bwd")}
    assert all(ratio > 1 for ratio in ahead["fa3"].values())


def light(record: Record) -> bool:
    """Whether a cell ran at nearly the highest clock and drew little power."""
    return (record.clock_mhz or 0) >= 1950 and not loaded(record)


def loaded(record: Record) -> bool:
    return (record.watts or 0) >= 600


def beside_loaded(journal: str) -> list[list[Record]]:
    """The records of kernels on the same mask where a kernel that drew little power was compared with one that drew much."""
    groups: dict[object, list[Record]] = {}
    for record in timed(journal):
        groups.setdefault((record.mask_digest, record.mask, record.heads_q, record.head_dim, record.pass_), []).append(record)
    return [own for own in groups.values() if any(map(light, own)) and any(map(loaded, own))]


def fastest_is_light(own: Sequence[Record]) -> float | None:
    """How far ahead of the fastest kernel under load a kernel is that is the fastest and drew little power."""
    best = max(own, key=lambda record: record.speed)
    return best.speed / max(record.speed for record in own if loaded(record)) if light(best) else None


def test_cells_that_may_have_been_sampled_before_the_clock_step() -> None:
    text = listed()
    cells = {journal: [record for record in timed(journal) if light(record)] for journal in ("seeds", "model-shapes")}
    counts = " and ".join(f"{len(own)} {'cells ' * (name == 'seeds')}of `{name}`" for name, own in cells.items())
    assert f"{counts} ran at 1,950 MHz or more and under 600 W" in text
    assert f"Their calls take up to {max(record.times.median for own in cells.values() for record in own):.1f} ms" in text
    quiet = [not record.noisy for own in cells.values() for record in own]
    assert f"{sum(quiet)} of the following {len(quiet)} are not marked as noisy" in text
    groups = [beside_loaded(journal) for journal in cells]
    doubtful = [[record for own in group for record in own if light(record)] for group in groups]
    assert f"**{sum(map(len, doubtful))} of these cells are in doubt**" in text
    assert "{} of `seeds` and {} of `model-shapes`: another kernel drew 600 W".format(*map(len, doubtful)) in text
    both = [record for own in doubtful for record in own]
    assert f"{sum(record.kernel == 'cudnn_flex' for record in both)} of the {len(both)} are of `cudnn_flex`" in text
    leads = [[lead for own in group if (lead := fastest_is_light(own))] for group in groups]
    assert "In {} rankings of `seeds` and {} of `model-shapes` such a cell is the fastest".format(*map(len, leads)) in text
    assert "in {} and {} of them, by less than 13 %".format(*(sum(lead < 1.13 for lead in own) for own in leads)) in text
    assert all(record.times.median < 3 for record in both)
    assert not beside_loaded("equal-heads"), "the list says that none of its cells is in doubt"
    windows = beside_loaded("windows")
    small = [record for own in windows for record in own if light(record)]
    assert f"In `windows`, {len(small)} of the {len(timed('windows'))} cells are in doubt in the same way" in text
    assert {(record.pass_.value, record.params["w"]) for record in small} == {("fwd", 128), ("fwd", 512)}
    assert not any(fastest_is_light(own) for own in windows), "the list says so"
    first = [max(own, key=lambda record: record.speed) for own in groups[0] if fastest_is_light(own)]
    assert {(record.kernel, record.seqlen, record.pass_.value) for record in first} == {("cudnn_flex", 8192, "fwd")}
    assert f"On {len(first)} of the 30 masks its forward, the fastest, was measured under less load" in page()


def test_steps_of_the_clock_during_sampling() -> None:
    text = listed()
    counts = []
    for journal in ("seeds", "model-shapes"):
        many = [record for record in timed(journal) if len(record.times.samples) >= 6]
        steps = [record for record in many if _slower_at_the_end(record.times.samples) > 1.03]
        counts.append((len(steps), len(many), sum(bool(record.noisy) for record in steps)))
    (own, of, noisy), (more, of_more, more_noisy) = counts
    assert f"in {own} of {of} and in {more} of {of_more} cells with six or more samples" in text
    assert f"; {noisy} and {more_noisy} of them are marked as noisy" in text
    paper = [record for record in timed("paper-kernel") if len(record.times.samples) >= 6]
    steps = [record for record in paper if _slower_at_the_end(record.times.samples) > 1.03]
    assert f"In {len(steps)} of the {len(paper):,} cells of `paper-kernel` with six or more samples the step occurs" in text
    assert f"; {sum(bool(record.noisy) for record in steps)} of them are marked as noisy" in text
    equal = [record for record in timed("equal-heads") if len(record.times.samples) >= 6]
    steps = [record for record in equal if _slower_at_the_end(record.times.samples) > 1.03]
    assert f"In `equal-heads` it occurs in {len(steps)} of {len(equal)}, which is marked as noisy" in text
    assert all(record.noisy for record in steps)


def _slower_at_the_end(samples: Sequence[float]) -> float:
    """The mean of the last third over that of the first."""
    third = len(samples) // 3
    return mean(samples[-third:]) / mean(samples[:third])


def test_no_range_is_built_on_a_cell_in_doubt(shapes: Shapes) -> None:
    place = "causal", 8192, "fwd"
    own, usual = shapes[LLAMA, place], shapes[USUAL, place]
    cell = own["cudnn_flex:rows"]
    assert light(cell)
    assert (
        f"{top(own) / top(usual):.2f} forward at 8K is of one cell that is in doubt (`causal`, `cudnn_flex:rows` {cell.speed:.0f})"
        in page()
    )
    assert f"its clock was {cell.clock_mhz:.0f} MHz at {cell.watts:.0f} W" in page()
    same = [shapes[shape, place]["cudnn_flex:rows"].speed for shape in (QWEN, USUAL)]
    assert "the same kernel has {:.0f} with 40:8 and {:.0f} with 64:8 heads".format(*same) in page()
    ratios = [
        max(record.speed for label, record in kernels.items() if (other, label) != (place, cell.label)) / top(shapes[USUAL, other])
        for (shape, other), kernels in shapes.items()
        if shape == LLAMA and other[1:] == place[1:]
    ]
    assert own["fa3"].speed == max(record.speed for record in own.values() if record is not cell)
    assert f"With the next kernel, `fa3`, the range ends at {max(ratios):.2f}" in page()


def test_the_models_that_are_named_have_these_heads() -> None:
    assert "Llama 3 8B and Qwen3 8B (32:8), of Qwen2.5 32B (40:8)" in page()
    assert [model(name).heads for name in ("llama3-8b", "qwen3-8b", "qwen2.5-32b")] == ["32:8", "32:8", "40:8"]


def test_small_heads(shapes: Shapes) -> None:
    assert f"forwards have {over_usual(shapes, SMALL, 'fwd')} times the TFLOP/s of 64:8 heads of 128" in page()
    assert f"backwards {over_usual(shapes, SMALL, 'bwd')} times. `band_cute` is the fastest backward on `share_question`" in page()
    own = {
        place: kernels["band_cute"].speed / top(kernels)
        for (shape, place), kernels in shapes.items()
        if shape == SMALL and place[2] == "bwd" and "band_cute" in kernels
    }
    assert {place[:2] for place, share in own.items() if share == 1} == {("share_question", 8192), ("share_question", 32768)}
    windows = between(share for place, share in own.items() if place[0] == "sliding_window_causal")
    assert f"on windows it has {windows} times the fastest backward's speed" in page()


def test_latent_attention(shapes: Shapes) -> None:
    forward, backward = (over_usual(shapes, MLA, pass_) for pass_ in ("fwd", "bwd"))
    assert f"forwards have {forward} times the TFLOP/s of 64:8 heads, and backwards {backward} times" in page()
    own = {place: kernels for (shape, place), kernels in shapes.items() if shape == MLA}
    assert {place[:2] for place in own} == {(mask, seqlen) for mask in {mask for mask, _, _ in own} for seqlen in (8192, *LONG)}
    for (mask, _, pass_), kernels in own.items():
        if (mask, pass_) == ("causal", "bwd"):
            assert kernels.keys() == {"fa3", "fa4:native", "cudnn_flex:rows", "cudnn"}
            first, second = sorted(kernels.values(), key=lambda record: -record.speed)[:2]
            assert {first.label, second.label} == {"cudnn_flex:rows", "fa4:native"}
            assert first.speed < 1.02 * second.speed
    assert "`cudnn_flex:rows` and `fa4:native` have the fastest backward, within 2 % of each other" in page()
    behind = [kernels["fa3"].speed / top(kernels) for place, kernels in own.items() if place[2] == "bwd" and "fa3" in kernels]
    assert f"its backward has {between(behind)} times the fastest one's speed" in page()
    for (mask, _, pass_), kernels in own.items():
        if pass_ == "fwd" and mask in ("causal", "causal_document"):
            assert kernels["fa3"].speed > 0.97 * top(kernels)
    assert not any("band_cute" in kernels for kernels in own.values())


@pytest.fixture(scope="module")
def equal() -> dict[Place, tuple[Kernels, Kernels]]:
    """By mask, tokens and pass the kernels with 64:8 and with 64:64 heads, on the same masks."""
    found: dict[Place, tuple[dict[str, Record], dict[str, Record]]] = {}
    for which, journal in enumerate(("paper-kernel", "equal-heads")):
        for record in timed(journal):
            if record.seqlen == 32768:
                found.setdefault((record.mask, record.seqlen, record.pass_.value), ({}, {}))[which][record.label] = record
    assert all(len({record.mask_digest for own in both for record in own.values()}) == 1 for both in found.values())
    return dict(found)


def test_equal_heads(equal: Mapping[Place, tuple[Kernels, Kernels]]) -> None:
    assert len(equal) == 24
    over = {place: top(own) / top(usual) for place, (usual, own) in equal.items()}
    short, others = (
        between(ratio for (mask, _, pass_), ratio in over.items() if pass_ == "fwd" and (mask in SHORT_DOCUMENTS) is is_short)
        for is_short in (True, False)
    )
    names = [f"`{mask}`" for mask in SHORT_DOCUMENTS]
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    assert f"**Forwards** have {short} times the speed of 64:8 heads on {listed}, and {others} times on the other masks" in page()
    assert f"**Backwards** have {between(ratio for place, ratio in over.items() if place[2] == 'bwd')} times the speed" in page()
    same = [own[max(usual, key=lambda label: usual[label].speed)].speed / top(own) for usual, own in equal.values()]
    assert f"what is the fastest with 64:8 heads has at least {said(min(same))} times the fastest speed" in page()


def test_the_own_backward_with_equal_heads(equal: Mapping[Place, tuple[Kernels, Kernels]]) -> None:
    backward = {place[0]: both for place, both in equal.items() if place[2] == "bwd"}

    def leads(kernels: Kernels) -> bool:
        """Whether it is the fastest, and no other kernel is as fast by the rule of the tables."""
        own = figure([kernels["band_cute"]])
        others = [record for label, record in kernels.items() if label != "band_cute"]
        return all(record.speed < own.tflops and not figure([record]).as_fast_as(own) for record in others)

    usual, own = ([mask for mask, both in backward.items() if leads(both[which])] for which in (0, 1))
    assert own == ["share_question"]
    assert f"with no other equally fast, on {len(usual)} masks; with 64:64 heads on {len(own)}, `share_question`" in page()
    ours, after = sorted((record.speed for record in backward["share_question"][1].values()), reverse=True)[:2]
    assert f"({ours / after:.2f} times the next kernel)" in page()
    varlen = [backward[mask][1]["fa4:varlen"].speed / backward[mask][1]["band_cute"].speed for mask in ("full_document", "causal_document")]
    assert "`fa4:varlen` has {:.2f} and {:.2f} times its speed".format(*varlen) in page()
    rest = [own["band_cute"].speed / top(own) for mask, (_, own) in backward.items() if mask not in ("full_document", "causal_document")]
    assert f"On the other masks it has at least {said(min(rest))} times the fastest speed" in page()


def test_the_longest_documents_of_the_seeds() -> None:
    longest = [max(masks.build("causal_document", 1 << 17, seed=seed).documents or (0,)) / (1 << 17) for seed in (4, 2)]
    share = "{:.0f} to {:.0f} % of the tokens".format(*(100 * own for own in longest))
    assert f"document has {share} with the seeds 2 and 4" in listed()
    assert f"With the seeds 2 and 4 one document has {share} on all masks but `block_causal_document`" in page()
    times: dict[tuple[str, str, str], dict[int, float]] = {}
    for record in timed("seeds"):
        if record.seqlen == 1 << 17 and record.mask != "block_causal_document":
            times.setdefault((record.mask, record.label, record.pass_.value), {})[record.seed] = record.times.median
    most = max(own[long] / own[short] for own in times.values() for long in (2, 4) for short in (0, 1, 3))
    assert f"a call takes up to {most:.0f} times as long as with the other seeds" in page()


def test_what_was_measured_again() -> None:
    again = [record for record in timed("paper-kernel") if record.seqlen == 32768 and record.label in NEAR]
    assert f"The {len(again)} cells of `paper-kernel` at 32K with the kernels near the fastest" in listed()
    assert f"and {sum(bool(record.noisy) for record in again)} of the new ones" in listed()


def test_other_windows() -> None:
    usual = [record for record in timed("paper-kernel") if record.mask == "sliding_window_causal"]
    found: dict[tuple[int, int, str], dict[str, Record]] = {}
    for record in [*timed("windows"), *usual]:
        place = int(record.params.get("w", 1024)), record.seqlen, record.pass_.value
        found.setdefault(place, {})[record.label] = record

    def fastest(window: int, pass_: str) -> Record:
        return min(found[window, 32768, pass_].values(), key=lambda record: record.times.median)

    pairs = {pass_: (fastest(128, pass_), fastest(1024, pass_)) for pass_ in ("fwd", "bwd")}
    forward, backward = (small.times.median / large.times.median for small, large in pairs.values())
    area = (pairs["fwd"][0].area or 0) / (pairs["fwd"][1].area or 1)
    assert f"a call takes {forward:.2f} times the time of w=1024 forward at 32K tokens and {backward:.2f} times backward" in page()
    assert f"with {area:.2f} times the pairs" in page()
    first = {"fwd": "fa3", "bwd": "band_cute"}
    behind = {
        (seqlen, pass_, window): f"{top(kernels) / kernels[first[pass_]].speed:.2f}"
        for (window, seqlen, pass_), kernels in found.items()
        if seqlen in (8192, 32768) and kernels[first[pass_]].speed < top(kernels)
    }
    assert behind.keys() == {(8192, "fwd", 1024), (8192, "bwd", 4096)}
    assert f"has {behind[8192, 'fwd', 1024]} times the forward speed of `fa3` with w=1024" in page()
    assert f"and {behind[8192, 'bwd', 4096]} times the backward speed of `band_cute` with w=4096" in page()
