"""The data of the page: what its tables and charts show is what results/ and compare/ say. No browser is needed."""

import gzip
import json
import re
from base64 import b64decode
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from journals import Write
from longca import masks
from longca.cli import main
from longca.kernels.block_selection import Heads, from_seed
from longca.report.page_data import page_data
from longca.report.pictures import pictures
from longca.results import naming
from longca.results.cells import STATES, PageCell
from longca.results.export import to_markdown
from longca.results.groups import groups_of
from longca.results.reading import read, read_all
from report.made import Record, around, kernel, make_record, results_of

Data = dict[str, Any]
HOSTILE = "</script><img src=x onerror=alert(1)>"


def data_of(source: list[Record] | Path) -> Data:
    results = read_all([source]) if isinstance(source, Path) else results_of(source)
    return page_data(results, groups_of(results), "title")


def setting_of(source: list[Record] | Path) -> Data:
    (setting,) = data_of(source)["settings"]
    return dict(setting)


def cells_by_line(setting: Data) -> dict[str, PageCell]:
    return {cell.line: cell for cell in setting["cells"]}


def states(setting: Data, panel: str) -> dict[str, str]:
    return {line: STATES[state].value for line, own, _, state, *_ in setting["board"] if own == panel}


def test_the_file_holds_the_data_and_no_text_of_it_is_markup(write: Write, tmp_path: Path) -> None:
    folder = write("made", [make_record(kernel=HOSTILE, asked=HOSTILE, variant=None)])
    assert main(["report", str(folder), "-o", str(tmp_path / "page.html"), "--title", HOSTILE]) == 0
    html = (tmp_path / "page.html").read_text()
    assert HOSTILE not in html
    assert not re.search(r"(src|href)=.https?:", html), "it asks the network for nothing"
    packed = re.findall(r'<script type="application/octet-stream" id="data">([\w+/=]*)</script>', html)
    data = json.loads(gzip.decompress(b64decode(packed[0])))
    assert data["title"] == HOSTILE
    assert data["settings"][0]["matrix"][0]["fastest"] == [HOSTILE]


def test_journals_below_a_folder_become_one_page(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "all" / "deeper").mkdir(parents=True)
    for name, ms in (("a", 1.0), ("deeper/b", 2.0)):
        write(name.replace("/", "-"), [make_record([ms], kernel=name, asked=name)]).rename(tmp_path / "all" / name)
    assert {record.kernel for record in read_all([tmp_path / "all"]).records} == {"a", "deeper/b"}
    assert main(["report", str(tmp_path / "all"), "-o", str(tmp_path / "page.html")]) == 0
    (tmp_path / "nothing").mkdir()
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert f"there is no journal in {tmp_path / 'nothing'}" in capsys.readouterr().err


def test_speeds_of_several_seeds_are_of_the_masks_on_which_kernels_are_compared() -> None:
    """`wide` has more seeds than the others, `few` fewer, and `apart` another one."""
    seeds = {"flash": {0: 2.0, 1: 2.5, 2: 1.5}, "slow": {0: 4.0, 1: 4.0, 2: 4.0}, "few": {1: 5.5}, "apart": {9: 1.0}}
    seeds["wide"] = {0: 3.0, 1: 3.1, 2: 3.2, 3: 50.0, 4: 60.0}
    made = [
        kernel(name, around(ms), "fwd", seed=seed, mask_digest=str(seed), mask="causal_document")
        for name, times in seeds.items()
        for seed, ms in times.items()
    ]
    found = {line: (cell.masks, cell.compared, cell.ms) for line, cell in cells_by_line(setting_of(made)).items()}
    assert found == {"flash": (3, 3, 2.0), "slow": (3, 3, 4.0), "wide": (3, 3, 3.1), "few": (1, 3, 5.5), "apart": (1, 0, 1.0)}
    exported = to_markdown(results_of(made))
    assert all(words in exported for words in ("3.55 (n=3)", "2 (n=1 of 3)", "11 (other masks)")), exported


def test_the_share_of_the_limit(write: Write) -> None:
    """The limit of a causal mask: its area over that of the tiles it touches (16 tokens of 8 heads, 128 keys), times the dense speed."""
    digest = masks.build("causal", 8192).digest
    made = [kernel("fa3", around(4.0), "fwd", mask="full", mask_digest="full", area=8192**2)]
    made.append(kernel("fa3", around(4.0), "fwd", mask_digest=digest, area=masks.build("causal", 8192).area))
    touched = sum(16 * min(8192, 128 * ((16 * row + 15) // 128 + 1)) for row in range(8192 // 16))
    limit = masks.build("causal", 8192).area / touched
    entry = next(entry for entry in setting_of(write("limit", made))["matrix"] if entry["panel"] == "causal")
    assert entry["limit"] == pytest.approx(masks.build("causal", 8192).area / 8192**2 / limit)


def test_a_mask_that_is_another_one_at_some_length_counts_as_that() -> None:
    """A window as long as the sequence hides nothing: every kernel of the full mask runs there, and none of them can do windows."""
    made = []
    for seqlen, name in product((1024, 2048), ("full", "sliding_window")):
        mask = masks.build(name, seqlen, **({"w": 1024} if name != "full" else {}))
        place = {"mask": name, "params": mask.params, "seqlen": seqlen, "mask_digest": mask.digest}
        able = name == "full" or seqlen == 1024
        failure = {} if able else {"status": "unsupported", "reason": "no windows"}
        made.append(kernel("fa3", [1.0] if able else None, "fwd", **place, **failure))
        made.append(kernel("flex", [4.0], "fwd", **place))
    setting = setting_of(made)
    assert [entry["x"] for entry in setting["matrix"] if entry["same"] == "full"] == [1024]
    assert states(setting, "sliding_window") == {"fa3": "unsupported", "flex": "measured"}, "a time at 1K says nothing about windows"


def test_each_pass_answers_for_its_own_tensors() -> None:
    errors = {"out": 0.1, "lse": 0.2, "dq": 0.3, "dk": 0.5, "dv": 0.4}
    check = {name: {"error": error, "allowed": 1.0} for name, error in errors.items()}
    board = setting_of([make_record(check=check, **{"pass": which}) for which in ("fwd", "bwd")])["board"]
    assert [(pass_, error, tensor) for _, _, pass_, _, _, _, error, tensor, _ in board] == [("fwd", 0.2, "lse"), ("bwd", 0.5, "dk")]


def test_what_failed_comes_before_what_was_never_tried() -> None:
    made = [kernel(name, around(1.0), "fwd", seqlen=n) for name, n in (("fa3", 1024), ("fa3", 2048), ("plain", 1024))]
    names = (("plain", "skipped"), ("old", "unsupported"))
    made += [kernel(name, None, "fwd", seqlen=2048, status=status, reason="not beyond 1024 tokens") for name, status in names]
    made += [kernel(name, None, "fwd", seqlen=2048, status="oom", reason=f"asked for {gib} GiB") for name, gib in (("a", 80), ("b", 81))]
    failures = setting_of(made)["failures"]
    assert [(entry["words"], entry["kernels"], entry["count"], entry["quiet"]) for entry in failures] == [
        ("out of memory", ["a", "b"], 2, False),
        ("skipped by a rule", ["plain"], 1, True),
        ("unsupported", ["old"], 1, True),
    ]


def test_each_block_pattern_has_its_own_picture_and_share(write: Write) -> None:
    shape = {"heads_q": 4, "heads_kv": 2, "head_dim": 16, "head_dim_v": 16}
    drawn = [masks.build("uniform_block", 2048, b=64, ratio=ratio, heads=2) for ratio in (0.25, 0.75)]
    drawn.append(from_seed("uniform_block", 2048, "nsa", 0, Heads(4, 2, 16), b=64, ratio=0.25))
    made = [
        make_record(
            [1.0], level="sparse", mask=mask.name, params=mask.params, source=mask.source or "random", mask_digest=mask.digest, **shape
        )
        for mask in drawn
    ]
    folder = write("blocks", [record | {"seqlen": 2048} for record in made])
    sizes = {"seqlen_q": 2048, "seqlen_k": 2048, "bands": None}
    entries = [{"digest": mask.digest, "mask": mask.name, "params": mask.params, "area": mask.area} | sizes for mask in drawn]
    (folder / "masks.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    results = read(folder)
    found = pictures(naming.rows(results), results.masks)
    assert list(found) == [f"uniform_block {name}" for name in ("b=64 ratio=0.25", "b=64 ratio=0.75", "nsa b=64 ratio=0.25")]
    for mask, picture in zip(drawn, found.values(), strict=True):
        assert picture["density"] == pytest.approx(mask.density, rel=1e-3)
    *shades, selected = (picture["shades"] for picture in found.values())
    assert selected is None, "a pattern that q and k selected has no picture"
    dark = [sum(int(digit, 16) for row in rows for digit in row) for rows in shades]
    assert dark[1] == pytest.approx(3 * dark[0], rel=0.05)


def test_the_page_opens_on_patterns_and_not_on_the_dense_mask_beside_them() -> None:
    sparse = [
        make_record([ratio], level="sparse", mask="uniform_block", params={"b": 64, "ratio": ratio, "heads": 8}, mask_digest=str(ratio))
        for ratio in (0.2, 0.8)
    ]
    data = data_of([make_record([2.0], mask="full"), *sparse])
    setting = data["settings"][data["start"]]
    assert (setting["axis"], [entry["x"] for entry in setting["matrix"]]) == ("ratio", [0.2, 0.8])
    assert setting["dense"] == [["uniform_block b=64", "fwd", "fa4:bands on full", 0]]
