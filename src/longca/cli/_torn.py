"""Notes on journals that end in a torn line, which no reader counts."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path


def say_torn(folders: Iterable[str | Path]) -> None:
    """Prints a line on stderr for each file of these journals that ends in a torn line."""
    from longca.results.files import torn_files

    for path, size in torn_files(folders).items():
        print(f"note: left out the torn last line of {path} ({size} bytes); running the same command again mends it.", file=sys.stderr)
