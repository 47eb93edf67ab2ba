"""The plugin files of `mask` and `recommend`, which use only the masks in them."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def load_only_masks(paths: Sequence[str], command: str) -> None:
    """Loads the masks of plugin files, and prints a note on a file without masks."""
    from longca.masks import load_plugin

    for path in paths:
        if not load_plugin(path):
            print(f"note: {path} has no mask, and `longca {command}` uses only the masks of a plugin.", file=sys.stderr)
