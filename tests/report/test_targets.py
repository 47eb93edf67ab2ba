"""What `longca report` writes to."""

import os
from pathlib import Path

import pytest

from journals import Write
from longca.cli import main
from report.made import make_record

FLAGS = ("-o", "--md", "--latex", "--figures")


def arguments(folder: Path, targets: dict[str, Path]) -> list[str]:
    return ["report", str(folder), *(word for flag, path in targets.items() for word in (flag, str(path)))]


@pytest.mark.parametrize("flag", FLAGS)
def test_a_target_that_cannot_be_written_is_a_sentence(flag: str, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "a file").write_text("kept")
    journal = write("made", [make_record()])
    for bad in (out / "a file" / "x", out / ("x" * 300)):
        assert main(arguments(journal, {"-o": out / "page.html"} | {flag: bad})) == 2
        error = capsys.readouterr().err
        assert error.startswith("longca: cannot ")
        assert str(bad)[:60] in error
        assert error.count("\n") == 1
    assert (out / "a file").read_text() == "kept"


def test_nothing_is_left_behind_if_the_journal_cannot_be_read(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert main(arguments(tmp_path / "none", {flag: out / flag for flag in FLAGS})) == 2
    assert not list(out.iterdir())


def test_links_devices_and_pipes_are_written_to(write: Write, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "page.html")
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as file:
        targets = {"-o": tmp_path / "link", "--md": Path(os.devnull), "--latex": Path(f"/dev/fd/{writer}")}
        assert main(arguments(write("made", [make_record()]), targets)) == 0
        os.close(writer)
        assert file.read().startswith(b"% LongCA results")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
