"""Figures in README and docs are those of the journals that they name."""

import csv
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from longca import masks as all_masks
from longca.kernels.base import Case
from longca.kernels.choice import measured
from longca.kernels.choice.classes import shape_class
from longca.kernels.choice.part import is_whole
from longca.masks import AnyMask
from longca.results.reading import read

ROOT = Path(__file__).parents[2]
ANY_BAND = ("fa4:bands", "cudnn_flex:rows", "cudnn_flex:documents")
NATIVE = ("fa3", "fa4:native", "fa4:varlen", "cudnn", "sdpa:cudnn", "sdpa:flash", "fa2:torch")

Speeds = dict[str, float]


def test_the_tables_are_those_of_the_journals() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/doc_tables.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}; python tools/doc_tables.py writes them anew"


def speeds(journal: str, *cell: str, source: str = "random") -> dict[tuple[Any, ...], Speeds]:
    """TFLOP/s of each kernel, by these fields of a record; of block patterns, those of this source."""
    found: dict[tuple[Any, ...], Speeds] = {}
    for record in read(ROOT / "results" / "h200" / journal).records:
        if record.ok and record.pattern_source == source:
            place = tuple(record.params.get(name, getattr(record, "pass_" if name == "pass" else name, None)) for name in cell)
            found.setdefault(place, {})[record.label] = record.speed
    return found


def best(row: Speeds, kernels: tuple[str, ...]) -> float:
    return max((row[name] for name in kernels if name in row), default=math.nan)


def said(value: float) -> str:
    """At least so many times: two digits, not rounded up."""
    return f"{math.floor(100 * value) / 100:.2f}"


@pytest.mark.parametrize("file", ["README.md", "docs/kernels.md"])
def test_any_band_against_kernels_that_know_the_mask(file: str) -> None:
    grid = speeds("paper-kernel", "mask", "seqlen", "pass")
    against = {cell: best(row, ANY_BAND) / best(row, NATIVE) for cell, row in grid.items() if any(name in row for name in NATIVE)}
    text = " ".join((ROOT / file).read_text().split())
    long = min(found for (_, seqlen, _), found in against.items() if seqlen >= 8192)
    assert f"at least {said(long)} times as fast as the best kernel with native support for the mask" in text
    if file == "docs/kernels.md":
        assert f"{said(min(against.values()))} times at 1K" in text
        flex = {
            which: min(best(row, ANY_BAND) / row["flex"] for cell, row in grid.items() if cell[2] == which and "flex" in row)
            for which in ("fwd", "bwd")
        }
        assert f"at least {said(flex['fwd'])} times as fast as flex forward and {said(flex['bwd'])} times backward on every mask" in text


def test_block_patterns_against_dense_and_others() -> None:
    grid = speeds("paper-sparse", "mask", "b", "ratio", "heads_kv", "pass")
    text = " ".join((ROOT / "docs/sparse.md").read_text().split())

    def row(b: int, ratio: float, heads_kv: int, which: str) -> Speeds:
        return grid["uniform_block", b, ratio, heads_kv, which]

    dense = [row(128, 0.2, 8, which)["fa4:blocks"] / grid["full", None, None, 8, which]["fa4:native"] for which in ("fwd", "bwd")]
    assert f"has {100 * dense[0]:.0f} % of the dense mask's speed forward and about {100 * dense[1]:.0f} % backward" in text
    assert "takes 1/{:.1f} (forward) and about 1/{:.1f} (backward) of the time".format(*(share / 0.2 for share in dense)) in text
    cudnn = [one["cudnn_bsa"] / one["block_triton"] for ratio in (0.2, 0.5, 0.8) if (one := row(64, ratio, 8, "bwd"))]
    assert f"{min(cudnn):.2f} to {max(cudnn):.2f} times as fast as `block_triton`" in text
    ours = min(
        one["block_triton"] / one["vsa_triton"]
        for which in ("fwd", "bwd")
        for ratio in (0.2, 0.5, 0.8)
        if (one := row(64, ratio, 64, which))
    )
    assert f"at least {said(ours)} times as fast as `vsa_triton` on blocks of 64" in text
    flex = {
        which: [one["block_triton"] / one["flex"] for ratio in (0.2, 0.5, 0.8) if (one := row(128, ratio, 8, which))]
        for which in ("fwd", "bwd")
    }
    assert f"{min(flex['fwd']):.2f} to {max(flex['fwd']):.2f} times as fast as flex forward on blocks of 128" in text
    assert "{:.2f}, {:.2f} and {:.2f} times at ratios of .2, .5 and .8".format(*flex["bwd"]) in text


def test_selected_blocks_against_random_ones() -> None:
    text = " ".join((ROOT / "docs/sparse.md").read_text().split())
    fields = "b", "ratio", "heads_kv", "pass"
    usual, own = speeds("paper-sparse", *fields), {source: speeds("paper-sparse", *fields, source=source) for source in ("nsa", "moba")}
    against = [row[name] / usual[cell][name] for grid in own.values() for cell, row in grid.items() for name in row]
    assert f"Kernels are {min(against):.2f} to {max(against):.2f} times as fast on them as on random blocks" in text
    small = [grid[64, 0.2, 8, "fwd"] for grid in own.values()]
    ahead = [row["block_triton"] / row["fa4:blocks"] for row in small]
    assert f"`block_triton` is {min(ahead):.2f} to {max(ahead):.2f} times as fast forward as `fa4`" in text
    assert not any("fa4:blocks" in grid[64, 0.2, 8, "bwd"] for grid in own.values())
    records = [record for record in read(ROOT / "results/h200/paper-sparse").records if record.pattern_source in own]
    assert not any(record.ok for record in records if record.kernel == "cudnn_bsa")
    causal = all_masks.build("causal", 32768).area
    shares = {f"{100 * (record.area or 0) / record.heads_kv / causal:.0f} %" for record in records}
    assert [f"{share} of the pairs of the causal mask" in text for share in shares] == [True]


def measured_page() -> str:
    return " ".join((ROOT / "docs/measured.md").read_text().split())


def test_what_follows_from_the_dense_kernels_is_what_the_journal_says() -> None:
    grid = speeds("paper-kernel", "mask", "seqlen", "pass")
    long = {cell: row for cell, row in grid.items() if cell[1] >= 8192}
    own = ("full", "causal", "sliding_window", "sliding_window_causal")
    native = min(best(row, ("fa3", "fa4:native")) / max(row.values()) for cell, row in long.items() if cell[0] in own)
    assert f"at least {said(native)} times the fastest kernel's speed" in measured_page()
    flex = [row["flex"] / max(row.values()) for cell, row in long.items() if cell[0] not in (*own, "full_document", "causal_document")]
    assert f"at {min(flex):.2f} to {max(flex):.2f} of the fastest kernel's speed" in measured_page()
    bands = {cell: row["fa4:bands"] / best(row, ANY_BAND[1:]) for cell, row in long.items() if not any(name in row for name in NATIVE)}
    backward = [ratio for cell, ratio in bands.items() if cell[2] == "bwd"]
    assert min(backward) > 1 / 1.04
    assert max(backward) < 1.04
    fastest = 1 / min(ratio for cell, ratio in bands.items() if cell[2] == "fwd")
    assert (
        f"their backwards are within 4 % of each other. In the forward `cudnn_flex` is up to {fastest:.2f} times as fast" in measured_page()
    )
    masks = {cell[0] for cell in grid}
    backward = [max(grid[mask, 32768, "bwd"].values()) / max(grid[mask, 32768, "fwd"].values()) for mask in masks]
    assert f"have {min(backward):.2f} to {max(backward):.2f} times the speed of forwards" in measured_page()


def test_what_follows_about_the_own_backward() -> None:
    grid = speeds("paper-kernel", "mask", "seqlen", "pass")
    others = ("band_cute", "best")
    gain = {
        cell: row["band_cute"] / max(speed for name, speed in row.items() if name not in others)
        for cell, row in grid.items()
        if cell[2] == "bwd" and cell[1] >= 8192
    }

    def between(masks: Sequence[str], shortest: int = 8192, longest: int = 65536) -> str:
        own = [ratio for (mask, seqlen, _), ratio in gain.items() if mask in masks and shortest <= seqlen <= longest]
        return f"{min(own):.2f} to {max(own):.2f}"

    page = measured_page()
    assert f"{between(('sliding_window', 'sliding_window_causal'), 16384, 1 << 17)} times the speed of the fastest other kernel" in page
    assert f"({between(('full_document', 'causal_document'))} times the next one)" in page
    assert f"has {between(('share_question', 'causal_blockwise', 'prefix_lm_document'))} times their backward speed" in page
    assert f"On `full` and `causal` it has {between(('full', 'causal'), 8192, 1 << 17)} times that speed" in page
    long = between(("share_question", "causal_blockwise", "prefix_lm_document"), 3 << 15, 1 << 17)
    assert f"and {long} times at 96K and 128K" in page
    assert 0.905 <= min(ratio for (mask, *_), ratio in gain.items() if mask == "global_sliding_window") <= 0.915


def test_what_follows_about_packed_documents() -> None:
    grid = speeds("paper-kernel", "mask", "seqlen", "pass")
    packed = {cell: row for cell, row in grid.items() if cell[0] in ("full_document", "causal_document") and cell[1] >= 8192}
    forward = {cell: row["cudnn_flex:documents"] / max(row.values()) for cell, row in packed.items() if cell[2] == "fwd"}
    assert all(share == 1 for (_, seqlen, _), share in forward.items() if seqlen <= 65536)
    assert "from 8K to 64K tokens, `cudnn_flex:documents` is the fastest forward" in measured_page()
    assert f"`cudnn_flex:documents` has at least {said(min(forward.values()))} times the speed of the fastest forward" in measured_page()
    long = {cell: max(row, key=row.__getitem__) for cell, row in packed.items() if cell[1] > 65536}
    assert {first for cell, first in long.items() if cell[2] == "fwd"} == {"fa3", "fa4:bands", "cudnn_flex:rows"}
    assert {first for cell, first in long.items() if cell[2] == "bwd"} == {"fa4:varlen", "cudnn_flex:rows"}
    behind = [packed[cell][first] / packed[cell]["band_cute"] - 1 for cell, first in long.items() if cell[2] == "bwd"]
    assert f"is {100 * min(behind):.0f} to {100 * max(behind):.0f} % faster than `band_cute`" in measured_page()
    drop = [max(grid[mask, 32768, "fwd"].values()) for mask in ("causal", "causal_document")]
    assert "drops from {:.0f} on `causal` to {:.0f} on `causal_document`".format(*drop) in measured_page()


def test_the_lengths_that_the_first_table_leaves_out() -> None:
    shown = {8192, 16384, 32768, 65536, 131072}
    left_out = sorted({seqlen for _, seqlen, _ in speeds("paper-kernel", "mask", "seqlen", "pass")} - shown)
    short, long = [n // 1024 for n in left_out if n < 8192], [f"{n // 1024}K" for n in left_out if n > 8192]
    assert f"also has {short[0]}K to {short[-1]}K, {', '.join(long[:-1])} and {long[-1]}." in measured_page()


def test_what_follows_about_ideas_for_the_backward() -> None:
    gains: dict[tuple[str, int], list[float]] = {}
    for line in (ROOT / "results/h200/backward_ideas.jsonl").read_text().splitlines():
        run = json.loads(line)
        ms = {label: cell[1] for label, cell in run["times"].items()}
        if run["commit"] in ("b4cfb00", "1a9ca54", "81936c1"):
            without = min(ms[label] for label in ("fa4", "fa4:bands", "fa3", "cudnn_flex") if label in ms)
            own = min(ms[label] for label in ms if label.startswith("documents"))
            gains.setdefault((run["commit"], run["seqlen"]), []).append(without / own)
    said_by_run = {run: f"{min(own):.2f} to {max(own):.2f} times" for run, own in gains.items()}
    page = measured_page()
    own = said_by_run["b4cfb00", 32768]
    assert f"no kernel without ideas is faster on any of the eight masks**: it has {own} the speed of the fastest one in this run" in page
    assert f"{said_by_run['81936c1', 32768]} the fastest without ideas in the next run" in page
    assert f"{said_by_run['1a9ca54', 8192]} at 8K tokens" in page
    assert f"{said_by_run['1a9ca54', 131072]} on windows at 128K" in page


def test_what_delta_inside_the_main_kernel_could_save() -> None:
    rows = rows_of("delta_loads")
    assert len({row["mask"] for row in rows}) == len(rows) == 7
    assert {row["seqlen"] for row in rows} == {32768}
    costs, gains = [row["twice_ms"] - row["usual_ms"] for row in rows], [row["before_ms"] - row["clear_ms"] for row in rows]
    assert f"that of loading dout twice: {min(costs):.2f} to {max(costs):.2f} ms" in measured_page()
    assert [f"that of clearing: {gain} ms on every mask" in measured_page() for gain in {f"{gain:.2f}" for gain in gains}] == [True]
    saved = [gain - max(cost, 0) for cost, gain in zip(costs, gains, strict=True)]
    shares = [100 * ms / row["usual_ms"] for ms, row in zip(saved, rows, strict=True)]
    most = f"{min(saved):.2f} to {max(saved):.2f} ms, {min(shares):.0f} to {max(shares):.0f} % of a backward"
    assert f"the idea could save at most {most}" in measured_page()
    assert ("So it is not ruled out" in measured_page()) == (min(saved) > 0)


def test_what_follows_about_energy_and_peers() -> None:
    by_place: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for record in read(ROOT / "results/h200/paper-kernel").records:
        if record.ok and record.seqlen == 65536 and record.watts:
            by_place.setdefault((record.mask, record.pass_), []).append((record.times.median, record.watts))
    watts = [min(own)[1] for own in by_place.values()]
    assert f"draws {min(watts):.0f} to {max(watts):.0f} W" in measured_page()
    peers: dict[tuple[str, ...], Speeds] = {}
    with (ROOT / "results/h200/peers.csv").open() as file:
        for row in csv.DictReader(file):
            peers.setdefault((row["seqlen"], row["mask"], row["pass"], row["mask_digest"]), {})[row["kernel"]] = float(row["tflops"])
    against = {
        cell: _pip(row) / max(row[name] for name in row if name.startswith(PEERS)) for cell, row in peers.items() if "_block" not in cell[1]
    }
    most = max(ratio for (seqlen, *_), ratio in against.items() if seqlen == "32768")
    assert f"at least {said(min(against.values()))} times as fast as the better of the two" in measured_page()
    assert f"up to {most:.2f} times at 32K" in measured_page()
    assert ("`band_cute` did not exist yet, so it is not in this run" in measured_page()) == all(
        "band_cute" not in row for row in peers.values()
    )


def rows_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROOT / f"results/h200/{name}.jsonl").read_text().splitlines()]


def test_best_against_every_kernel_with_band_cute() -> None:
    rows = rows_of("best_of_all_again")
    text = " ".join((ROOT / "docs/kernels.md").read_text().split())
    assert len(all_masks.expand(["all"])) - len({row["mask"] for row in rows if row["seqlen"] == 1 << 17}) == 10
    assert len({(row["mask"], row["seqlen"], row["pass"]) for row in rows if row["seqlen"] in (8192, 32768)}) == 48
    assert f"`results/h200/best_of_all_again.jsonl`, {len(rows)} of the 72 rows: ten masks lack 128K" in text
    least, *others = sorted(rows, key=lambda row: row["ratio"])
    wide = [row["spread"] for row in rows if row["spread"] > 0.01]
    assert f"in {len(wide)} of the {len(rows)} rows the spread stays above 1 %, up to {100 * max(wide):.1f} %" in text
    assert ("No row is below 0.98" in text) == (least["ratio"] >= 0.98)
    assert all(row["reached"] for row in rows)
    assert (least["mask"], least["seqlen"], least["pass"]) == ("causal", 32768, "bwd")
    assert f"The smallest ratio is {least['ratio']:.3f}, on the backward of `causal` at 32K" in text
    assert f"at 32K, with a spread of {100 * least['spread']:.1f} %" in text
    assert f"it is at least {math.floor(1000 * others[0]['ratio']) / 1000:.3f} in the other rows" in text
    listed = " ".join((ROOT / "results/h200/README.md").read_text().split())
    assert f"not complete: {len(rows)} of 72 rows; ten masks lack 128K" in listed
    assert f"the smallest ratio is {least['ratio']:.3f}".replace("0.", ".") in listed


def test_why_records_exclude_from_15_percent_on() -> None:
    text = " ".join((ROOT / "docs/kernels.md").read_text().split())
    rows = rows_of("best_of_all_again")
    window = next(row for row in rows if (row["mask"], row["seqlen"], row["pass"]) == ("sliding_window", 8192, "fwd"))
    known, fastest = slower(window), window["fastest"]
    first = min(known, key=lambda label: known[label])
    behind = known[fastest] / known[first]
    assert f"`{fastest}` is the fastest in the second run, and the records show it {100 * (behind - 1):.0f} % behind `{first}`" in text
    apart = behind * window["all_ms"][first] / window["all_ms"][fastest] - 1
    assert f"in the records and that in this run differ by {100 * apart:.0f} %" in text


def slower(row: dict[str, Any]) -> dict[str, float]:
    """The times of kernels over that of the fastest in the table that `best` chooses by, for a row of `best_of_all.py`."""
    known = measured.evidence("NVIDIA H200", shape_class(*call(row)), row["pass"])
    assert known is not None
    assert known.exact
    return {label: standing.slower for label, standing in known.entry.kernels.items()}


def call(row: dict[str, Any]) -> tuple[AnyMask, Case]:
    mask = all_masks.build(row["mask"], row["seqlen"], seed=42)
    return mask, Case(mask.seqlen_q, mask.seqlen_k, 64, 8, 128, 128, "bf16", "cuda")


def chosen(row: dict[str, Any]) -> str:
    """The kernel that `best` chose for the pass of this row."""
    return str(row["chose"].split(" + ")[-1 if row["pass"] == "bwd" else 0])


def test_records_choose_long_calls_about_as_well_as_trials_of_a_part() -> None:
    by_trials, by_records = list[float](), list[float]()
    for row in rows_of("best_of_all"):  # in which trials of a part still decided
        if row["seqlen"] == 1 << 17 and not is_whole(*call(row)):
            times = {label: ms for label, ms in row["all_ms"].items() if label != "best"}
            known = {label: place for label, place in slower(row).items() if label in times}
            by_trials.append(times[chosen(row)] / min(times.values()))
            by_records.append(times[min(known, key=lambda label: known[label])] / min(times.values()))
    text = " ".join((ROOT / "docs/kernels.md").read_text().split())
    trials, records = (100 * (max(behind) - 1) for behind in (by_trials, by_records))
    assert (
        f"chose take up to {trials:.1f} % longer than the fastest, and those that the records show as the fastest up to {records:.1f} %"
        in text
    )
    decided = [row for row in rows_of("best_of_all_again") if row["seqlen"] == 1 << 17 and not is_whole(*call(row))]
    assert {row["mask"] for row in decided} == {"full"}
    assert len(decided) == 2
    assert all(chosen(row) == row["fastest"] for row in decided)
    assert "has only `full` of these masks; there `best` chose the fastest kernel in both passes" in text


def test_best_against_every_kernel() -> None:
    rows = rows_of("best_of_all")
    assert all(row["reached"] for row in rows)
    text = " ".join((ROOT / "docs/kernels.md").read_text().split())
    assert (
        f"({len(rows)} rows, `results/h200/best_of_all.jsonl`), `best` has at least {said(min(row['ratio'] for row in rows))} times" in text
    )
    assert f"in all but {sum(row['ratio'] < 0.98 for row in rows)} rows, where 0.98 lies within the spread" in text
    assert all(row["ratio"] * (1 + row["spread"]) >= 0.98 for row in rows)
    grid = speeds("paper-kernel", "mask", "seqlen", "pass")
    forward, backward = (max(row, key=row.__getitem__) for row in (grid["causal_document", 32768, which] for which in ("fwd", "bwd")))
    assert f"`{forward}` has the fastest forward of `causal_document` and `{backward}` the fastest backward" in text


PEERS = ("ffa", "flashmask")


def _pip(row: Speeds) -> float:
    return max(speed for name, speed in row.items() if not name.startswith(PEERS))
