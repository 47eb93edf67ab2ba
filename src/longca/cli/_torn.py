"""Notes about journals that end in a torn line."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def say_torn(folders: Iterable[str]) -> None:
    """Prints one line to stderr for each file with a torn last line, in these folders or in journals below them."""
    from longca.api.journals import torn_notes

    for note in torn_notes(folders):
        print(f"note: {note}", file=sys.stderr)
