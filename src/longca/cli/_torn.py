"""A word on journals that end in a torn line: what was measured there counts for nobody."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path


def say_torn(folders: Iterable[str | Path]) -> None:
    """One line on stderr for each file that does, in these folders or in journals below them."""
    from longca.bench.journal import torn_lines
    from longca.report.reading import journals

    for folder in journals(folders):
        for path, size in torn_lines(folder).items():
            print(f"note: left out the torn last line of {path} ({size} bytes); running the same command again mends it.", file=sys.stderr)
