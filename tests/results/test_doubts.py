"""Records whose fields contradict each other are doubtful; files that no run writes are refused."""

import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from journals import mask_line
from longca import masks
from longca.cli import main
from longca.errors import BadInput
from longca.results import packing
from longca.results.merge import merge
from longca.results.reading import read
from longca.results.record import Status
from report.made import ENVIRONMENT, line, make_record

Fields = dict[str, Any]
OWN = masks.causal(8192)
DOCUMENTS = masks.build("causal_document", 8192, seed=0)


def work(record: Fields, factor: float) -> None:
    record["flops"] = int(record["flops"] * factor)
    for name in ("tflops", "mfu"):
        record["timed"][name] *= factor


def area(record: Fields, factor: int) -> None:
    record["built"]["area"] *= factor


def all_work(record: Fields) -> None:
    work(record, 0.5)
    record["built"]["area"] //= 2


CONTRADICTIONS: dict[str, tuple[Callable[[Fields], object], str]] = {
    "work": (lambda record: work(record, 1.5), "its work of 1.6"),
    "area": (lambda record: area(record, 2), "its work of 1.0"),
    "work and area": (all_work, "its mask shows 16779264 pairs"),
    "length": (lambda record: record["problem"].update(seqlen=4096), "it is of 4096 tokens, and its mask of 8192"),
    "both lengths": (
        lambda record: (record["problem"].update(seqlen=4096), record["built"].update(seqlen_q=4096, seqlen_k=4096)),
        "pairs of 4096 tokens",
    ),
    "name": (lambda record: record["problem"].update(mask="full"), "its mask is called full, and causal in masks.jsonl"),
    "speed": (lambda record: record["timed"].update(tflops=record["timed"]["tflops"] * 1.5), "is not its work over its time"),
    "percentiles": (lambda record: record["timed"].update(p20=1.0), "its percentiles, 1 and 2 ms"),
    "share of the peak": (lambda record: record["timed"].update(mfu=0.99), "its share of the peak, 0.99"),
    "parameters": (lambda record: record["problem"].update(params=[["w", 8]]) or record["built"].update(params={"w": 7}), "asked for with"),
    "seed": (
        lambda record: (record["problem"].update(mask="causal_document", seed=3), record["built"].update(digest=DOCUMENTS.digest)),
        "make another mask",
    ),
    "samples": (lambda record: record["timed"].update(samples=[9.0] * 5), "is not that of its samples"),
}


def journal(folder: Path, change: Callable[[Fields], object] = lambda record: None) -> Path:
    folder.mkdir()
    record = json.loads(line(make_record([2.0] * 5, mask_digest=OWN.digest, area=OWN.area, key="k")))
    change(record)
    (folder / "results.jsonl").write_text(json.dumps(record) + "\n")
    (folder / "masks.jsonl").write_text(mask_line(OWN) + mask_line(DOCUMENTS))
    (folder / "env.json").write_text(json.dumps({"e": ENVIRONMENT}))
    return folder


def test_a_record_that_agrees_with_itself_is_ok(tmp_path: Path) -> None:
    assert read(journal(tmp_path / "made")).records[0].status is Status.OK


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_record_that_contradicts_itself_or_its_mask_is_doubtful(name: str, tmp_path: Path) -> None:
    change, reason = CONTRADICTIONS[name]
    (record,) = read(journal(tmp_path / "made", change)).records
    assert record.status is Status.DOUBTFUL
    assert reason in record.reason


def test_a_record_of_another_mask_replaces_no_measurement(tmp_path: Path) -> None:
    """Its own fields agree with each other, and masks.jsonl has another area."""
    own, other = journal(tmp_path / "own"), journal(tmp_path / "other", all_work)
    merge(tmp_path / "out", [own, other])
    assert read(tmp_path / "out").records == read(own).records
    assert merge(tmp_path / "out", [other]) == (0, 0, 1)
    assert merge(tmp_path / "other", [own]) == (0, 1, 0)


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_that_is_too_long_is_refused(packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "CHUNK", 1 << 10)
    monkeypatch.setattr(packing, "LONGEST_LINE", 1 << 20)
    text = b"{" + b" " * (1 << 21)
    (tmp_path / f"results.jsonl{'.xz' if packed else ''}").write_bytes(lzma.compress(text) if packed else text)
    with pytest.raises(BadInput, match="has a line of more than 1 MiB"):
        read(tmp_path)


def test_a_pipe_is_no_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "results.jsonl")
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 2
    assert "it is no plain file" in capsys.readouterr().err


def test_nothing_of_a_journal_reaches_the_terminal_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, kernel in (("a", "mine"), ("b", "\x1b[2Jtheirs")):
        journal(tmp_path / name, lambda record, kernel=kernel: record.update(kernel=kernel, asked=kernel))
    main(["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    main(["compare", str(tmp_path / "b"), str(tmp_path / "b"), "--all"])
    seen = capsys.readouterr()
    assert "theirs" in seen.out + seen.err
    assert "\x1b" not in seen.out + seen.err
