"""What `longca report` writes to: all of it can be written, or nothing is written."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from longca.cli import main
from report.made import make_record

Write = Callable[..., Path]
FLAGS = ("-o", "--md", "--latex", "--figures")
WRONG = [(flag, wrong) for flag in FLAGS[:3] for wrong in ("below a file", "in no folder", "a folder", "a dangling link", "too long")]
WRONG += [("--figures", "below a file"), ("--figures", "a file"), ("--figures", "too long")]  # other folders can be made


def files(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """The contents and the times of all files below a folder; folders and links have no contents."""
    return {path: (path.read_bytes() if path.is_file() else b"", path.lstat().st_mtime_ns) for path in folder.rglob("*")}


def arguments(folder: Path, targets: dict[str, Path]) -> list[str]:
    return ["report", str(folder), *(word for flag, path in targets.items() for word in (flag, str(path)))]


@pytest.mark.parametrize(("flag", "wrong"), WRONG)
def test_nothing_is_written_if_one_target_cannot_be(
    flag: str, wrong: str, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (out / "a folder").mkdir(parents=True)
    (out / "a file").write_text("kept")
    (out / "--md").write_text("kept until the new one is written")
    (out / "a dangling link").symlink_to(out / "none" / "x")
    bad = {
        "a file": out / "a file",
        "below a file": out / "a file" / "x",
        "in no folder": out / "none" / "x",
        "a folder": out / "a folder",
        "a dangling link": out / "a dangling link",
        "too long": out / ("x" * 300),
    }[wrong]
    before = files(out)
    targets = {name: out / name for name in FLAGS} | {flag: bad}
    assert main(arguments(write("made", [make_record()]), targets)) == 2
    error = capsys.readouterr().err
    assert str(bad) in error
    assert error.startswith("longca: cannot write ")
    assert error.count("\n") == 1
    assert files(out) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("flag", FLAGS)
def test_a_folder_without_permission_is_a_sentence(flag: str, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, closed = tmp_path / "out", tmp_path / "closed"
    out.mkdir()
    closed.mkdir(mode=0o500)
    assert main(arguments(write("made", [make_record()]), {name: out / name for name in FLAGS} | {flag: closed / "x"})) == 2
    assert "Permission denied" in capsys.readouterr().err
    assert not list(out.iterdir())


def test_nothing_is_left_behind_if_the_journal_cannot_be_read(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert main(arguments(tmp_path / "none", {flag: out / flag for flag in FLAGS})) == 2
    assert not list(out.iterdir())


@pytest.mark.parametrize("flag", ["--md", "--latex", "--figures"])
def test_two_targets_of_one_name_are_refused(flag: str, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    (tmp_path / "link").symlink_to(page)
    assert main(arguments(write("made", [make_record()]), {"-o": page, flag: tmp_path / "link"})) == 2
    assert " is named for " in capsys.readouterr().err
    assert not page.exists()


def test_links_and_devices_are_written_to(write: Write, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "page.html")
    targets = {"-o": tmp_path / "link", "--md": Path(os.devnull), "--latex": Path(os.devnull)}
    assert main(arguments(write("made", [make_record()]), targets)) == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_a_pipe_is_not_opened_before_it_is_written_to(write: Write, tmp_path: Path) -> None:
    """Its reader would see an end of the file."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as file:
        targets = {"-o": tmp_path / "page.html", "--latex": Path(f"/dev/fd/{writer}")}
        assert main(arguments(write("made", [make_record()]), targets)) == 0
        os.close(writer)
        assert file.read().startswith(b"% LongCA results")
