"""Notes on stderr: incomplete journals, and plugin files without masks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def note(sentence: str) -> None:
    print(f"note: {sentence}", file=sys.stderr)


def say_lacks(folders: Sequence[str | Path]) -> None:
    """Notes what these journals lack."""
    from longca.results.words import lacks

    for sentence in lacks(folders):
        note(sentence)


def load_only_masks(paths: Sequence[str], command: str) -> None:
    """Loads the masks of plugin files, and notes a file without masks."""
    from longca.masks import load_plugin

    for path in paths:
        if not load_plugin(path):
            note(f"{path} has no mask, and `longca {command}` uses only the masks of a plugin.")
