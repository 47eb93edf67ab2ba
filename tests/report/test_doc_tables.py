"""Figures in README and docs are those of the journals that they name."""

import csv
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median
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


def speeds(journal: str, *cell: str, source: str = "random", seqlen: int = 0) -> dict[tuple[Any, ...], Speeds]:
    """TFLOP/s of each kernel, by these fields of a record; of block patterns, those of this source, and of one length if given."""
    found: dict[tuple[Any, ...], Speeds] = {}
    for record in read(ROOT / "results" / "h200" / journal).records:
        if record.ok and record.problem.source == source and seqlen in (0, record.problem.seqlen):
            place = tuple(record.built.params.get(name, getattr(record, "pass_" if name == "pass" else name, None)) for name in cell)
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
    grid = speeds("paper-sparse", "mask", "b", "ratio", "heads_kv", "pass", seqlen=32768)
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


def between(ratios: Iterable[float]) -> str:
    own = list(ratios)
    return f"{min(own):.2f} to {max(own):.2f}"


def test_block_patterns_of_long_sequences() -> None:
    text = " ".join((ROOT / "docs/sparse.md").read_text().split())
    grids = [speeds("paper-sparse", "mask", "b", "pass", seqlen=seqlen) for seqlen in (65536, 131072)]

    def over(b: int, pass_: str, kernel: str, other: str) -> list[float]:
        return [grid["uniform_block", b, pass_][kernel] / grid["uniform_block", b, pass_][other] for grid in grids]

    forward, backward = (over(128, pass_, "cudnn_bsa", "fa4:blocks") for pass_ in ("fwd", "bwd"))
    assert "has {:.2f} and {:.2f} times the forward speed of fa4 at 64K and 128K".format(*forward) in text
    assert "and {:.2f} and {:.2f} times its backward speed".format(*backward) in text
    assert forward[1] < 1.05 < backward[1], "at 128K cudnn_bsa has the faster backward"
    assert all(abs(ratio - 1) < 0.03 for ratio in over(64, "fwd", "cudnn_bsa", "block_triton"))
    small = over(64, "bwd", "cudnn_bsa", "block_triton")
    assert "`cudnn_bsa` has {:.2f} and {:.2f} times the backward speed of `block_triton`".format(*small) in text
    forward, backward = (
        [5 * max(grid["uniform_block", 128, pass_].values()) / grid["full", None, pass_]["fa4:native"] for grid in grids]
        for pass_ in ("fwd", "bwd")
    )
    assert {f"{gain:.1f}" for gain in forward} == {"4.9"}
    dense = speeds("paper-kernel", "mask", "pass", seqlen=131072)["full", "fwd"]
    first = max(dense, key=lambda name: dense[name])
    against = 5 * max(grids[1]["uniform_block", 128, "fwd"].values()) / dense[first]
    assert f"`{first}` has {dense[first]:.0f} TFLOP/s. Against that, the gain is {against:.1f}." in text
    assert f"take 1/4.9 (forward) and 1/{min(backward):.1f} to 1/{max(backward):.1f} (backward) of the time of the dense mask" in text


def test_selected_blocks_against_random_ones() -> None:
    text = " ".join((ROOT / "docs/sparse.md").read_text().split())
    fields = "mask", "b", "avg", "ratio", "heads_kv", "pass"
    usual = speeds("paper-sparse", *fields, seqlen=32768)
    own = {source: speeds("paper-sparse", *fields, source=source) for source in ("nsa", "moba")}

    def against(avg: int | None) -> str:
        """On variable blocks of this size on average, or on uniform ones."""
        mask = "uniform_block" if avg is None else "variable_block"
        cells = [(cell, row) for grid in own.values() for cell, row in grid.items() if (cell[0], cell[2]) == (mask, avg)]
        return between(row[name] / usual[cell][name] for cell, row in cells for name in row)

    assert f"Kernels are {against(None)} times as fast on uniform blocks as on random ones" in text
    assert f"`block_triton` is {against(256)}, {against(512)} and {against(1024)} times as fast" in text
    small = [grid["uniform_block", 64, None, 0.2, 8, "fwd"] for grid in own.values()]
    assert f"`block_triton` is {between(row['block_triton'] / row['fa4:blocks'] for row in small)} times as fast forward as `fa4`" in text
    assert not any("fa4:blocks" in grid["uniform_block", 64, None, 0.2, 8, "bwd"] for grid in own.values())
    records = [record for record in read(ROOT / "results/h200/paper-sparse").records if record.problem.source in own]
    assert not any(record.ok for record in records if record.kernel == "cudnn_bsa")
    causal = all_masks.build("causal", 32768).area
    shares = {(record.problem.mask, 100 * (record.built.area or 0) / record.problem.heads_kv / causal) for record in records}
    uniform, variable = ([share for name, share in shares if name == mask] for mask in ("uniform_block", "variable_block"))
    assert {f"{share:.0f}" for share in uniform} == {"36"}
    assert f"have 36 % of the pairs of the causal mask, and variable ones {min(variable):.0f} to {max(variable):.0f} %" in text


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
    assert min(backward) > 1 / 1.05
    assert max(backward) < 1.05
    fastest = 1 / min(ratio for cell, ratio in bands.items() if cell[2] == "fwd")
    assert (
        f"their backwards are within 5 % of each other. In the forward `cudnn_flex` is up to {fastest:.2f} times as fast" in measured_page()
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


def test_what_delta_inside_the_main_kernel_costs() -> None:
    rows = rows_of("delta_inside")
    assert len({row["mask"] for row in rows}) == len(rows) == 7
    assert {row["seqlen"] for row in rows} == {32768}
    costs = [row["twice_ms"] - row["usual_ms"] for row in rows]
    assert f"of what the loads cost, takes {min(costs):.2f} to {max(costs):.2f} ms longer" in measured_page()
    gains = {f"{row['before_ms'] - row['clear_ms']:.2f}" for row in rows}
    assert [f"The kernel before would take {gain} ms less" in measured_page() for gain in gains] == [True]
    one, two = ([row[kind] / row["usual_ms"] for row in rows] for kind in ("inside1_ms", "inside2_ms"))
    assert f"{min(one):.2f} to {max(one):.2f} times as long with one warp that computes" in measured_page()
    assert f"and {min(two):.2f} to {max(two):.2f} times with two" in measured_page()
    assert min(one + two) > 1


def test_what_follows_about_energy_and_peers() -> None:
    by_place: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for record in read(ROOT / "results/h200/paper-kernel").records:
        if record.ok and record.problem.seqlen == 65536 and record.watts:
            by_place.setdefault((record.problem.mask, record.problem.pass_), []).append((record.times.median, record.watts))
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


def test_what_follows_about_measured_energy() -> None:
    with (ROOT / "results/h200/energy.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["joules"]]
    ratios = {float(row["ms_median"]): float(row["joules"]) * 1e3 / float(row["watts"]) / float(row["ms_median"]) for row in rows}
    assert len(ratios) == len(rows) == 13
    page = measured_page()
    assert (
        f"Measured energy is {between(ratios.values())} times power times time, {median(ratios.values()):.2f} times in the median" in page
    )
    assert f"for calls of 5 ms and more {between(ratio for ms, ratio in ratios.items() if ms >= 5)} times" in page


def table_of(name: str) -> list[list[str]]:
    """The cells of a table in docs/measured.md, its head first."""
    found = re.search(rf"<!-- table {name} -->\n\n(.*?)\n\n", (ROOT / "docs/measured.md").read_text(), re.S)
    assert found
    head, _, *body = found[1].splitlines()
    return [_cells(line) for line in (head, *body)]


def column(table: str, name: str, **where: str) -> list[float]:
    """The numbers of a column, in the rows that have these entries."""
    head, *body = table_of(table)
    cells = [dict(zip(head, row, strict=True)) for row in body]
    return [float(row[name].rstrip("~")) for row in cells if where.items() <= row.items()]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split("|")]


def test_at_which_ratio_sparsity_is_even() -> None:
    large, forward, backward = (
        column("sparse-pays", "even at", **where)
        for where in ({"block": "128"}, {"block": "64", "pass": "fwd"}, {"block": "64", "pass": "bwd"})
    )
    page = measured_page()
    assert f"sparsity is faster up to a ratio of {between(large)}. With blocks of 64" in page
    assert f"faster up to {between(forward)} forward and {between(backward)} backward" in page


def test_what_planning_costs_beside_a_call() -> None:
    (ratio,) = column("planning", "plan over call", kernel="cudnn")
    assert f"The plan of `cudnn` takes {ratio:.0f} times as long as its call" in measured_page()


def test_the_limits_are_those_of_the_journal() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/limits.py"), str(ROOT / "results/h200/paper-kernel")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == (ROOT / "results/h200/limits.txt").read_text()


def test_how_many_kernels_are_equal_on_long_documents() -> None:
    rows = [row for row in table_of("fastest-magi") if row[0] in ("full_document", "causal_document")]
    more = [int(found[1]) if (found := re.search(r", (\d) more", cell)) else 0 for row in rows for cell in row[-2:]]
    words = {3: "three", 4: "four", 5: "five", 6: "six"}
    assert f"from 64K tokens on, {words[1 + min(more)]} to {words[1 + max(more)]} kernels are equally fast" in measured_page()


def rows_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROOT / f"results/h200/{name}.jsonl").read_text().splitlines()]


def test_best_against_every_kernel() -> None:
    rows = rows_of("best_of_all")
    text = " ".join((ROOT / "docs/kernels.md").read_text().split())
    wanted = set(product(all_masks.expand(["all"]), (8192, 32768, 1 << 17), ("fwd", "bwd")))
    assert {(row["mask"], row["seqlen"], row["pass"]) for row in rows} == wanted
    assert len(rows) == len(wanted)
    assert f"({len(rows)} rows, `results/h200/best_of_all.jsonl`)" in text
    least, *others = sorted(rows, key=lambda row: row["ratio"])
    wide = [row["spread"] for row in rows if row["spread"] > 0.01]
    assert f"in {len(wide)} of the {len(rows)} rows the spread stays above 1 %, up to {100 * max(wide):.1f} %" in text
    assert ("no row is below 0.98" in text) == (least["ratio"] >= 0.98)
    assert all(row["reached"] for row in rows)
    assert (least["mask"], least["seqlen"], least["pass"]) == ("causal", 32768, "bwd")
    assert f"The smallest ratio is {least['ratio']:.3f}, on the backward of `causal` at 32K" in text
    assert f"at 32K, with a spread of {100 * least['spread']:.1f} %" in text
    assert f"it is at least {math.floor(1000 * others[0]['ratio']) / 1000:.3f} in the other rows" in text
    listed = " ".join((ROOT / "results/h200/README.md").read_text().split())
    assert f"the smallest ratio is {least['ratio']:.3f}".replace("0.", ".") in listed
    grid = speeds("paper-kernel", "mask", "seqlen", "pass")
    forward, backward = (max(row, key=row.__getitem__) for row in (grid["causal_document", 32768, which] for which in ("fwd", "bwd")))
    assert f"`{forward}` has the fastest forward of `causal_document` and `{backward}` the fastest backward" in text


def test_forwards_of_cudnn_flex_at_8k_in_turns() -> None:
    def lead(times: Mapping[str, float]) -> float:
        """The time of the fastest other kernel over that of the faster variant."""
        own, others = ([ms for label, ms in times.items() if label.startswith("cudnn_flex") is is_own] for is_own in (True, False))
        return min(others) / min(own)

    turns = {row["mask"]: row["all_ms"] for row in rows_of("best_of_all") if (row["seqlen"], row["pass"]) == (8192, "fwd")}
    in_turns = {mask: lead({label: ms for label, ms in times.items() if label != "best"}) for mask, times in turns.items()}
    grid = speeds("paper-kernel", "mask", "pass", seqlen=8192)
    here = [lead({label: 1 / speed for label, speed in grid[mask, "fwd"].items()}) for mask in in_turns]
    page = measured_page()
    assert f"its faster variant has {between(here)} times the speed of the fastest other kernel here" in page
    assert f"and {between(in_turns.values())} times where kernels were measured in turns" in page
    behind = [1 / in_turns[mask] for mask in ("sliding_window", "sliding_window_causal")]
    assert "the fastest other kernel has {:.2f} and {:.2f} times its speed there".format(*behind) in page


def test_why_records_exclude_from_15_percent_on() -> None:
    text = " ".join((ROOT / "docs/kernels.md").read_text().split())
    rows = rows_of("best_of_all")
    window = next(row for row in rows if (row["mask"], row["seqlen"], row["pass"]) == ("sliding_window", 8192, "fwd"))
    known, fastest = slower(window), window["fastest"]
    first = min(known, key=lambda label: known[label])
    behind = known[fastest] / known[first]
    assert f"`{fastest}` is the fastest in this file, and the records show it {100 * (behind - 1):.0f} % behind `{first}`" in text
    apart = behind * window["all_ms"][first] / window["all_ms"][fastest] - 1
    assert f"the two differs by {100 * apart:.0f} % between the records and this file" in text


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


def test_records_choose_long_calls_well() -> None:
    decided = [row for row in rows_of("best_of_all") if not is_whole(*call(row))]
    assert {row["seqlen"] for row in decided} == {1 << 17}
    times = [{label: ms for label, ms in row["all_ms"].items() if label != "best"} for row in decided]
    behind = [own[chosen(row)] / min(own.values()) - 1 for row, own in zip(decided, times, strict=True)]
    text = " ".join((ROOT / "docs/kernels.md").read_text().split())
    masks = {row["mask"] for row in decided}
    assert (
        f"records decide on {len(masks)} masks at 128K. The kernels that `best` chose there take up to {100 * max(behind):.1f} % longer"
        in text
    )


def test_what_follows_about_ranks_on_one_gpu() -> None:
    rows = rows_of("ranks_on_one_gpu")
    assert all(row["ok"] and (row["ranks"], row["seqlen"], row["kernel"]) == (8, 65536, "fa4") for row in rows)
    page, windows, documents = measured_page(), "sliding_window_causal", ("causal_document", "share_question")

    def gain(method: str, mask: str, pass_: str) -> float:
        (row,) = (row for row in rows if (row["method"], row["mask"]) == (method, mask))
        return float(row["alone"][pass_][0] / max(row[pass_]))

    def reached(methods: Iterable[str], masks: Iterable[str], passes: Iterable[str] = ("fwd", "bwd")) -> str:
        own = {f"{gain(*cell):.1f}" for cell in product(methods, masks, passes)}
        return " to ".join(dict.fromkeys((min(own, key=float), max(own, key=float))))

    dense = {row["method"] for row in rows if row["mask"] == "causal"}
    assert f"divides the work evenly**: {reached(dense, ['causal'])} times" in page
    heads = ("ulysses", "usp", "loongtrain")
    assert f"They reach {reached(heads, documents, ['fwd'])} times forward with documents" in page
    assert f"and {reached(heads, documents, ['bwd'])} times backward: with 8:1 heads" in page
    rings = [reached(("ring_p2p", "burst", "mesh"), documents[:1], [pass_]) for pass_ in ("fwd", "bwd")]
    assert f"`mesh` reach {'/'.join(rings)} times on `causal_document`" in page
    gathered = [reached(["ring_allgather"], (*documents, windows), [pass_]) for pass_ in ("fwd", "bwd")]
    assert "one call per rank: {} times forward on the last three masks. Backward it reaches {} times".format(*gathered) in page
    assert f"reaches {reached(['magi'], documents)} times with documents, and {reached(['magi'], [windows])} times on windows" in page
    assert f"On windows it reaches {reached(['halo'], [windows])} times" in page
    assert f"is the slowest: {reached(['halo'], documents)} times" in page


PEERS = ("ffa", "flashmask")


def _pip(row: Speeds) -> float:
    return max(speed for name, speed in row.items() if not name.startswith(PEERS))
