"""What a record says of an error: the line of the plugin it came from, and memory in a sentence."""

from pathlib import Path

import pytest

from longca.bench.outcome import LONGEST_REASON, PLACE, forget_frames, of_exception, of_exit
from longca.plugins import import_file


def raised(tmp_path: Path, message: str) -> BaseException:
    (tmp_path / "theirs.py").write_text("def fail(message):\n    raise ValueError(message)\n")
    with pytest.raises(ValueError) as found:  # noqa: PT011  # whatever it says
        import_file(tmp_path / "theirs.py", "function").fail(message)
    return found.value


def test_an_error_names_the_line_of_the_plugin_even_when_its_frames_are_gone(tmp_path: Path) -> None:
    error = raised(tmp_path, "no\nluck")
    assert of_exception(error) == ("error", "ValueError: no luck (theirs.py line 2)")
    for _ in range(2):
        forget_frames(error)
    assert error.__traceback__ is None
    assert of_exception(error) == ("error", "ValueError: no luck (theirs.py line 2)")


def test_a_long_message_is_cut_and_the_line_is_not(tmp_path: Path) -> None:
    _, reason = of_exception(raised(tmp_path, "word " * 200))
    assert len(reason) == LONGEST_REASON
    assert reason.endswith("… (theirs.py line 2)")


def test_an_import_that_fails_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("x = 1\nx.y\n")
    with pytest.raises(ValueError, match=r"fails when it is imported: AttributeError: .* \(theirs\.py line 2\)$"):
        import_file(tmp_path / "theirs.py", "kernel")


def test_memory_is_said_in_a_sentence() -> None:
    allocator = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate {} bytes."
    assert of_exception(RuntimeError(allocator.format(3 << 30))) == ("oom", "out of memory: it asked for 3 GiB at once")
    assert of_exception(MemoryError()) == ("oom", "out of memory")
    assert of_exception(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB.")) == (
        "oom",
        "CUDA out of memory. Tried to allocate 2 GiB.",
    )


def test_a_reason_can_be_shown_and_written_anywhere(tmp_path: Path) -> None:
    """Whatever a kernel says: half of a surrogate pair, a NUL, an escape that clears the screen, a compiler's colours."""
    _, reason = of_exception(raised(tmp_path, "a\ud800b\0c\x1b[2Jd \x1b[1;31mred\x1b[0m 5 µs"))
    assert reason == "ValueError: a�b�c�[2Jd red 5 µs (theirs.py line 2)"
    _, reason = of_exit(1, "time", "bye\x07\n")
    assert reason == "its process ended with exit code 1 during measuring; its last words: bye�"
    error = ValueError("no")
    setattr(error, PLACE, " (a\udcffb.py line 2)")
    assert of_exception(error) == ("error", "ValueError: no (a�b.py line 2)")
