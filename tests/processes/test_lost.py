"""What is said of a child that is gone."""

import pytest

from longca.processes.lost import last_words, of_exit

STACK = """free(): invalid pointer
Fatal Python error: Aborted

Current thread 0x00007f (most recent call first):
  File "kernel.py", line 3 in forward
  ...
Extension modules: numpy (total: 1)
"""


@pytest.mark.parametrize(
    ("code", "phase", "output", "status", "reason"),
    [
        (
            1,
            "time",
            "bye\x07\n",
            "error",
            "its process ended with exit code 1 during measuring; its last words: bye\N{REPLACEMENT CHARACTER}",
        ),
        (-6, "check", STACK, "error", "its process was killed by SIGABRT during checking; its last words: Fatal Python error: Aborted"),
        (-99, "import", "", "error", "its process was killed by 99 during import"),
        (
            -9,
            "reference",
            "std::bad_alloc",
            "oom",
            "its process was killed by SIGKILL during the reference; its last words: std::bad_alloc",
        ),
    ],
)
def test_an_exit_is_a_status_and_a_reason(code: int, phase: str, output: str, status: str, reason: str) -> None:
    lost = of_exit(code, phase, output)
    assert (lost.status, lost.reason, lost.output) == (status, reason, output)
    assert lost.event in reason


def test_last_words_are_short_and_no_part_of_a_stack() -> None:
    assert last_words("") == last_words(" \n\n") == last_words("  File 'x'\n") == ""
    assert len(last_words("word " * 1000)) == 200
