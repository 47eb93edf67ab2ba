"""The journal survives what happens to files: cut anywhere, damaged, locked, on a full or a read-only disk."""

import gzip
import json
import resource
from pathlib import Path
from typing import Any

import pytest

from longca import masks
from longca.bench import journal
from longca.bench.journal import CannotWrite, Journal
from longca.bench.merge import merge, pack
from longca.errors import BadInput

GOLDEN = Path(__file__).parent / "golden"


def record(number: int, **more: Any) -> dict[str, Any]:
    return dict.fromkeys(journal.NEEDED) | {"schema": 1, "key": f"key{number}", "status": "ok", "reason": "ünïcode\n", **more}


def filled(folder: Path, count: int = 3) -> Path:
    with Journal(folder) as made:
        for number in range(count):
            made.add(record(number))
    return folder / "results.jsonl"


def test_cut_at_every_byte_it_loads_and_goes_on(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    line = len(whole) // 3
    assert len(whole) == 3 * line
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        assert len(journal.load(tmp_path)) == cut // line
        with Journal(tmp_path) as again:
            assert again.torn == cut % line
            assert len(again.records) == cut // line
            again.add(record(9))
        assert [entry["key"] for entry in journal.load(tmp_path)] == [f"key{i}" for i in range(cut // line)] + ["key9"]


@pytest.mark.parametrize(
    "damage", [b"{", b"[1, 2]", b'"text"', b"\xff\xfe", b'{"key": "x"}', b'{"schema": 1}', b'{"key": "x", "schema": 1}', b""]
)
def test_a_damaged_line_in_the_middle_is_refused_with_its_number(tmp_path: Path, damage: bytes) -> None:
    path = filled(tmp_path)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], damage, lines[2], b""]))
    with pytest.raises(BadInput, match="damaged in line 2"):
        journal.load(tmp_path)
    with pytest.raises(BadInput, match="damaged in line 2"):
        Journal(tmp_path)


def test_the_last_record_of_a_key_counts(tmp_path: Path) -> None:
    with Journal(tmp_path) as made:
        made.add(record(0, status="error"))
        made.add(record(1))
        made.add(record(0, status="ok"))
    assert [(entry["key"], entry["status"]) for entry in journal.load(tmp_path)] == [("key0", "ok"), ("key1", "ok")]


def test_a_signal_right_after_the_write_does_not_hide_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    with Journal(tmp_path) as made:
        made.add(record(0))
        monkeypatch.setattr(journal.os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.add(record(1))
        assert list(made.written()) == ["key0", "key1"]


def test_a_full_disk_is_one_sentence_and_what_was_there_is_kept(tmp_path: Path) -> None:
    with Journal(tmp_path) as made:
        made.add(record(0))
        size = (tmp_path / "results.jsonl").stat().st_size
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))  # room for a part of the next line
        try:
            with pytest.raises(CannotWrite, match=r"results\.jsonl: File too large; what was measured before is kept"):
                made.add(record(1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (tmp_path / "results.jsonl").stat().st_size == size
        made.add(record(2))
    assert [entry["key"] for entry in journal.load(tmp_path)] == ["key0", "key2"]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/longca")):
        with pytest.raises(CannotWrite, match=f"^cannot write to {folder}: .*; give another folder.$"):
            Journal(folder)


def test_masks_are_kept_once_with_bands_and_lengths(tmp_path: Path) -> None:
    mask = masks.causal_document(1024, seed=42)
    for _ in range(2):
        with Journal(tmp_path) as made:
            made.add_mask(journal.describe_mask(mask))
            made.add_mask(journal.describe_mask(masks.build("causal_document", 1024, seed=42)))
    assert len((tmp_path / "masks.jsonl").read_text().splitlines()) == 1
    (entry,) = journal.load_masks(tmp_path)
    assert entry["documents"] == [353, 559, 102, 10]
    assert masks.Mask(1024, 1024, entry["bands"]) == mask


def test_documents_are_kept_where_another_mask_shows_the_same(tmp_path: Path) -> None:
    one, other = masks.causal(64), masks.causal_document(64, documents=[64])
    assert one.digest == other.digest
    with Journal(tmp_path / "a") as made:
        made.add_mask(journal.describe_mask(one))
        made.add_mask(journal.describe_mask(other))
    kept = [(entry["mask"], entry["documents"]) for entry in journal.load_masks(tmp_path / "a")]
    assert kept == [("causal", None), ("causal_document", [64])]
    filled(tmp_path / "a")
    merge(tmp_path / "out", [tmp_path / "a"])
    assert journal.load_masks(tmp_path / "out") == journal.load_masks(tmp_path / "a")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("env.json", b"[1]", r"env\.json is damaged"),
        ("env.json", b'{"a": 1}', r"env\.json is damaged"),
        ("masks.jsonl", b'{"mask": "causal"}\n', r"masks\.jsonl is damaged in line 1: a mask needs a digest"),
        ("results.jsonl.gz", gzip.compress(b"{}" * 99, mtime=0)[:10] + b"\xff" * 30, r"cannot read .*results\.jsonl\.gz: "),
        ("results.jsonl.gz", b"no gzip", r"cannot read .*results\.jsonl\.gz: "),
    ],
)
def test_damaged_files_are_refused_in_a_sentence(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    path = filled(tmp_path)
    if file.endswith(".gz"):
        path.unlink()
    (tmp_path / file).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        merge(tmp_path / "out", [tmp_path])


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("results.jsonl.gz", b"packed"),
        ("results.jsonl", b"no JSON\n"),
        ("results.jsonl", b'{"key": "x"}\n'),
        ("masks.jsonl", b"{}\n"),
        ("masks.jsonl", b"no JSON\n"),
        ("env.json", b"[1]"),
    ],
)
def test_a_journal_that_is_refused_leaves_nothing_open(tmp_path: Path, file: str, content: bytes) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    (tmp_path / file).write_bytes(content)
    refused = []
    for _ in range(2):
        with pytest.raises(BadInput) as caught:
            Journal(tmp_path)
        refused.append(str(caught.value))
    assert refused[0] == refused[1]  # and not "another run is writing"
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    (tmp_path / file).unlink()
    filled(tmp_path)


def test_environments_are_added_and_kept(tmp_path: Path) -> None:
    for name in ("a", "b", "a"):
        with Journal(tmp_path) as made:
            made.add_environment(name, {"device": name})
    assert journal.load_environments(tmp_path) == {"a": {"device": "a"}, "b": {"device": "b"}}


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path) as made:
        made.add(record(0) | {"schema": 99})
    with pytest.raises(BadInput, match=r"schema 99.*install a newer longca"):
        journal.load(tmp_path)


def test_a_folder_without_a_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no journal in"):
        journal.load(tmp_path)


def test_merging_keeps_the_later_but_no_failure_over_a_measurement(tmp_path: Path) -> None:
    versions = {"a": [("x", "ok", 1), ("y", "error", 1)], "b": [("x", "oom", 2), ("y", "ok", 2)], "c": [("y", "ok", 3), ("z", "error", 3)]}
    for folder, entries in versions.items():
        with Journal(tmp_path / folder) as made:
            for key, status, number in entries:
                made.add(record(0, key=key, status=status, seed=number))
    assert merge(tmp_path / "out", [tmp_path / name for name in versions]) == (3, 0, 0)
    assert {entry["key"]: entry["seed"] for entry in journal.load(tmp_path / "out")} == {"x": 1, "y": 3, "z": 3}


def test_merging_keeps_the_order_of_what_was_written_last(tmp_path: Path) -> None:
    """A version that was gone back to is written once more, and counts."""
    with Journal(tmp_path / "a") as made:
        for key in ("first", "second", "first"):
            made.add(record(0, key=key))
    merge(tmp_path / "out", [tmp_path / "a"])
    assert [entry["key"] for entry in journal.history(tmp_path / "out")] == ["second", "first"]


def test_a_packed_journal_reads_the_same_and_cannot_grow(tmp_path: Path) -> None:
    filled(tmp_path)
    before = journal.load(tmp_path)
    pack(tmp_path)
    assert not (tmp_path / "results.jsonl").exists()
    assert journal.load(tmp_path) == before
    with pytest.raises(BadInput, match="packed"):
        Journal(tmp_path)


@pytest.mark.parametrize("folder", sorted(GOLDEN.iterdir()), ids=lambda folder: folder.name)
def test_old_schemas_stay_readable(folder: Path) -> None:
    """One folder per schema that was ever written; its expected.json says what must be read from it."""
    from longca.bench.export import to_csv, to_hud, to_markdown
    from longca.bench.summary import failures, fastest

    expected = json.loads((folder / "expected.json").read_text())
    records, environments = journal.load(folder), journal.load_environments(folder)
    assert [(entry["kernel"], entry["mask"], entry["pass"], entry["status"]) for entry in records] == [
        tuple(row) for row in expected["cells"]
    ]
    assert {entry["mask_digest"] for entry in records} <= {entry["digest"] for entry in journal.load_masks(folder)}
    assert {entry["env"] for entry in records} <= set(environments)
    assert [table.rows for table in fastest(records)] == expected["fastest"]
    assert failures(records).rows == expected["failures"]
    assert len(to_csv(records, environments).splitlines()) == len(records) + 1
    assert "| mask |" in to_markdown(records, environments)
    assert len(json.loads(to_hud(records, environments))) == 2 * sum(entry["status"] == "ok" for entry in records)
