"""Journals as a Python user names them: the folder that a run wrote, or the object that `longca.run` returned."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from longca.errors import BadInput


def folder_of(journal: Any) -> str:
    """The folder of a journal."""
    folder = getattr(journal, "folder", journal)
    if not isinstance(folder, str | PathLike) or not str(folder):
        raise BadInput(f"give the folder of a journal, or what longca.run returned, not {journal!r}.")
    return fspath(folder)
