"""The journal survives what happens to files: cut anywhere, damaged, locked, on a full or a read-only disk."""

import json
import lzma
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from journals import mask_line
from longca import masks
from longca.errors import BadInput
from longca.report.terminal import failure_table, fastest_tables
from longca.results import files, journal, reading
from longca.results.export import to_csv, to_markdown
from longca.results.groups import groups_of
from longca.results.journal import CannotWrite, Journal
from longca.results.merge import merge, pack
from longca.results.record import SCHEMA, MaskEntry, Record
from longca.results.schema import decode_mask, decode_record
from report.made import line, make_record

GOLDEN = Path(__file__).parent / "golden"
CAUSAL = mask_line(masks.causal(64))


def record(number: int, status: str = "ok", **more: Any) -> Record:
    """Seeds tell what they measure apart, unless a test gives one. All are written: 0 would be left out."""
    made = make_record([1.0] if status == "ok" else None, status=status, reason="ünïcode\n", **{"seed": number + 1} | more)
    return decode_record(line(made | {"given": {}, "key": more.get("key", f"key{number}")}).encode())


def entry(mask: masks.Mask) -> MaskEntry:
    return decode_mask(mask_line(mask).encode())


def load(folder: Path) -> list[Record]:
    return reading.read(folder).records


@pytest.mark.parametrize("name", masks.names())
def test_the_area_of_a_stored_mask_is_that_of_its_bands(tmp_path: Path, name: str) -> None:
    whole = mask_line(masks.build(name, 509, seed=3))
    (tmp_path / "masks.jsonl").write_text(whole)
    assert files.read_masks(tmp_path).entries[0].area == masks.build(name, 509, seed=3).dense().sum()
    (tmp_path / "masks.jsonl").write_text(f"{json.dumps(json.loads(whole) | {'area': 0})}\n")
    with pytest.raises(BadInput, match=r"masks.jsonl line 1 is damaged: the area is 0, but the bands show \d+ pairs"):
        files.read_masks(tmp_path)


def filled(folder: Path, count: int = 3) -> Path:
    with Journal(folder) as made:
        for number in range(count):
            made.add(record(number))
    return folder / "results.jsonl"


@pytest.mark.slow
def test_cut_at_every_byte_of_a_line_it_loads_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # hundreds of them, and no power fails here
    path = filled(tmp_path)
    whole = path.read_bytes()
    line = len(whole) // 3
    assert len(whole) == 3 * line
    for cut in (0, 1, line - 1, line, *range(2 * line, len(whole) + 1)):
        path.write_bytes(whole[:cut])
        assert len(load(tmp_path)) == cut // line
        with Journal(tmp_path) as again:
            assert again.torn == cut % line
            assert len(again.records) == cut // line
            again.add(record(9))
        assert [one.key for one in load(tmp_path)] == [f"key{i}" for i in range(cut // line)] + ["key9"]


@pytest.fixture(autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    """Neither a file nor the lock: a journal that was refused can be opened again in the same process."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def refusal(folder: Path, message: str, merged: Path | None = None) -> None:
    """Asserts that a journal is refused with this message, by readers as by a run, and the second time as the first."""
    refused = []
    for read in (load, Journal, Journal) if merged is None else (lambda folder: merge(merged, [folder]),):
        with pytest.raises(BadInput, match=message) as caught:
            read(folder)
        refused.append(str(caught.value))
    assert len(set(refused)) == 1


WITHOUT_TIMES = line(make_record() | {"ms": None}).strip().encode()  # though its status is ok


NEWER, OLDER = (line(make_record()).strip().replace('"schema": 3', f'"schema": {schema}').encode() for schema in (99, 1))
DAMAGED_LINES = [b"{", b"[1, 2]", b'"text"', b"\xff\xfe", b'{"key": "x"}', b'{"schema": 2}', b'{"key": "x", "schema": 3}', b"", b"\r"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        *((damage, "line 2 is damaged") for damage in (*DAMAGED_LINES, WITHOUT_TIMES)),
        (NEWER, "line 2 has schema 99.*install a newer longca"),
        (OLDER, "line 2 is damaged: it has schema 1, and this longca reads schema"),
    ],
)
def test_a_damaged_line_in_the_middle_is_refused_with_its_number(tmp_path: Path, damage: bytes, message: str) -> None:
    path = filled(tmp_path)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], damage, lines[2], b""]))
    refusal(tmp_path, message)


NO_BANDS = [
    *((1 << 70, 1, 0, 0, 1, 0), (0, 1 << 62, 0, 0, 9, 0), (0, 9, 0, 0, 65, 0)),
    *((4, 4, 0, 0, 9, 0), (0, 9, 5, 0, 5, 1), (0, 9, 0, 2, 9, 2)),
]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("env.json", b"[1]", r"env\.json is damaged"),
        ("env.json", b'{"a":\n {"device": "x"}\n', r"env\.json is damaged: Input data was truncated; repair"),
        ("env.json", b'{"a": 1}', r"env\.json is damaged"),
        ("masks.jsonl", b'{"mask": "causal"\n', r"masks\.jsonl line 1 is damaged: Input data was truncated; repair or delete that line"),
        ("masks.jsonl", b'{"mask": "causal"}\n', r"masks\.jsonl line 1 is damaged: Object missing required field `digest`"),
        *(
            ("masks.jsonl", json.dumps(json.loads(CAUSAL) | {"bands": [band]}).encode() + b"\n", "is no band of 64 queries and 64 keys")
            for band in NO_BANDS
        ),
    ],
)
def test_damaged_files_are_refused_in_a_sentence(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    filled(tmp_path)
    (tmp_path / file).write_bytes(content)
    refusal(tmp_path, message)
    (tmp_path / file).unlink()
    filled(tmp_path)


@pytest.mark.parametrize("content", [lzma.compress(b"{}" * 99)[:40], b"no xz"])
def test_a_damaged_packed_file_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    filled(tmp_path).unlink()
    (tmp_path / "results.jsonl.xz").write_bytes(content)
    refusal(tmp_path, r"^cannot read .*results\.jsonl\...: it is damaged or incomplete; copy it again\.$", tmp_path / "out")


def test_the_last_record_of_a_key_counts(tmp_path: Path) -> None:
    with Journal(tmp_path) as made:
        made.add(record(0, "error"))
        made.add(record(1))
        made.add(record(0))
    assert [(one.key, one.status) for one in load(tmp_path)] == [("key0", "ok"), ("key1", "ok")]


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
    assert [one.key for one in load(tmp_path)] == ["key0", "key2"]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/longca")):
        with pytest.raises(CannotWrite, match=f"^cannot write to {folder}: .*; give another folder.$"):
            Journal(folder)


def test_masks_are_kept_once_with_bands_and_lengths(tmp_path: Path) -> None:
    """And with the documents of a mask that shows the same pairs as another."""
    mask, one, other = masks.causal_document(1024, seed=42), masks.causal(64), masks.causal_document(64, documents=[64])
    assert one.digest == other.digest
    filled(tmp_path / "a")
    for _ in range(2):
        with Journal(tmp_path / "a") as made:
            for own in (mask, masks.build("causal_document", 1024, seed=42), one, other):
                made.add_mask(entry(own))
    kept = files.read_masks(tmp_path / "a").entries
    assert [(own.mask, own.documents) for own in kept] == [
        ("causal_document", [353, 559, 102, 10]), ("causal", None), ("causal_document", [64]),
    ]  # fmt: skip
    assert masks.Mask(1024, 1024, kept[0].bands or []) == mask
    merge(tmp_path / "out", [tmp_path / "a"])
    assert files.read_masks(tmp_path / "out") == files.read_masks(tmp_path / "a")


def test_merging_keeps_the_later_but_no_failure_over_a_measurement(tmp_path: Path) -> None:
    versions = {"a": [("x", "ok", 1), ("y", "error", 1)], "b": [("x", "oom", 2), ("y", "ok", 2)], "c": [("y", "ok", 3), ("z", "error", 3)]}
    for folder, entries in versions.items():
        with Journal(tmp_path / folder) as made:
            for key, status, number in entries:
                made.add(record(ord(key), key=key, status=status, plan_ms=number))
    assert merge(tmp_path / "out", [tmp_path / name for name in versions]) == (3, 0, 0)
    assert {one.key: one.plan_ms for one in reading.history(tmp_path / "out")} == {"x": 1, "y": 3, "z": 3}


def test_merging_keeps_the_order_of_what_was_written_last(tmp_path: Path) -> None:
    """A version that was gone back to is written once more, and counts."""
    with Journal(tmp_path / "a") as made:
        for key in ("first", "second", "first"):
            made.add(record(0, key=key))
    merge(tmp_path / "out", [tmp_path / "a"])
    assert [one.key for one in reading.history(tmp_path / "out")] == ["second", "first"]


def test_a_packed_journal_reads_the_same_and_cannot_grow(tmp_path: Path) -> None:
    filled(tmp_path)
    before = load(tmp_path)
    pack(tmp_path)
    assert not (tmp_path / "results.jsonl").exists()
    assert load(tmp_path) == before
    with pytest.raises(BadInput, match=r"packed journal \(results.jsonl.xz\), which no run can add to"):
        Journal(tmp_path)
    assert names(tmp_path) == ["masks.jsonl.xz", "results.jsonl.xz"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kill", range(9))
def test_a_packed_journal_grows_by_merging_and_a_kill_loses_nothing(tmp_path: Path, kill: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any file is renamed or removed, or (0) never: a run adds to what is left or is refused, and the next merge completes it."""
    out, other, count = tmp_path / "out", tmp_path / "other", 0
    filled(out)
    with Journal(out) as made:
        made.add_mask(entry(masks.causal(64)))
    before, known = load(out), files.read_masks(out).entries
    pack(out)
    with Journal(other) as made:
        made.add(record(99))
        made.add_mask(entry(masks.full(64)))

    def killed(real: Any) -> Any:
        def change(*given: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count == kill:
                raise SystemExit
            return real(*given, **more)

        return change

    with monkeypatch.context() as patched, suppress(SystemExit):
        for name in ("rename", "unlink"):
            patched.setattr(Path, name, killed(getattr(Path, name)))
        assert merge(out, [other], packed=True) == (1, 0, 0)
    assert count == (kill or 8)
    with suppress(BadInput), Journal(out) as made:
        made.add_mask(entry(masks.causal(64)))
    merge(out, [other], packed=True)
    assert load(out) == [*before, *load(other)]
    assert files.read_masks(out).entries == [*known, *files.read_masks(other).entries]
    assert names(out) == ["masks.jsonl.xz", "results.jsonl.xz"]


def test_a_damaged_journal_is_not_merged_into_a_packed_one(tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    filled(out)
    pack(out)
    filled(other).write_bytes(b"no JSON\n")
    with pytest.raises(BadInput):
        merge(out, [other], packed=True)
    (out / "masks.jsonl.xz").write_bytes(b"no xz")
    with pytest.raises(BadInput, match=r"cannot read .*masks\.jsonl\.xz"):
        merge(out, [filled(tmp_path / "third").parent], packed=True)
    assert names(out) == ["masks.jsonl.xz", "results.jsonl.xz"]


@pytest.mark.parametrize("schema", [2, 3])
def test_every_schema_is_read_as_the_newest(schema: int) -> None:
    """The same journal in each schema that can be read; expected.json says what must be read from it."""
    expected = json.loads((GOLDEN / "expected.json").read_text())
    results, newest = (reading.read(GOLDEN / f"schema{number}") for number in (schema, SCHEMA))
    assert (results.records, results.masks, results.environments) == (newest.records, newest.masks, newest.environments)
    cells = [[one.kernel, one.problem.mask, one.problem.pass_, one.status] for one in results.records]
    assert cells == expected["cells"]
    assert {one.built.digest for one in results.records} <= {digest for digest, _ in results.masks}
    assert {one.env for one in results.records} <= set(results.environments)
    groups = groups_of(results)
    assert [table.rows for table in fastest_tables(groups)] == expected["fastest"]
    assert failure_table(groups.rows).rows == expected["failures"]
    assert len(to_csv(results).splitlines()) == len(results.records) + 1
    assert "| mask |" in to_markdown(results)
    assert all(one.schema == SCHEMA for one in results.records)


def test_merging_an_older_schema_writes_the_newest(tmp_path: Path) -> None:
    merge(tmp_path / "out", [GOLDEN / "schema2"])
    for name in ("results.jsonl", "masks.jsonl", "env.json"):
        assert (tmp_path / "out" / name).read_text() == (GOLDEN / f"schema{SCHEMA}" / name).read_text()


def test_a_torn_line_of_masks_is_mended_by_the_next_run(tmp_path: Path) -> None:
    with Journal(tmp_path) as made:
        made.add_mask(entry(masks.causal(64)))
    whole = (tmp_path / "masks.jsonl").read_bytes()
    (tmp_path / "masks.jsonl").write_bytes(whole + whole[:20])
    assert files.torn_files(tmp_path) == {tmp_path / "masks.jsonl": 20}
    with Journal(tmp_path):
        pass
    assert (tmp_path / "masks.jsonl").read_bytes() == whole
