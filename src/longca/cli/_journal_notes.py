"""Notes about incomplete journals: an incomplete last line, or a missing env.json."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def say_lacks(folders: Sequence[str | Path]) -> None:
    """Prints one line to stderr for each file with an incomplete last line and each journal without env.json, in these folders or below."""
    for note in lacks(folders):
        print(f"note: {note}.", file=sys.stderr)


def lacks(folders: Sequence[str | Path]) -> Iterable[str]:
    from longca.results.files import torn_files, without_environments

    for path, size in torn_files(folders).items():
        yield f"skipped the incomplete last line of {path} ({size} bytes); the next `longca run` there removes it"
    for path in without_environments(folders):
        yield f"{path} is missing, so the device and the settings of these results are unknown; restore it, or measure again"
