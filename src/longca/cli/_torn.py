"""Notes about journals that end in a torn line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path


def say_torn(folders: Iterable[str | Path]) -> None:
    """Prints one line to stderr for each file with a torn last line, in these folders or in journals below them."""
    from longca.results.files import torn_files

    for path, size in torn_files(folders).items():
        print(f"note: left out the torn last line of {path} ({size} bytes); the next `longca run` there removes it.", file=sys.stderr)
