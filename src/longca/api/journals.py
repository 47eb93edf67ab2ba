"""Journals as a Python user names them: the folder that a run wrote, or the object that `longca.run` returned."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from typing import Any

from longca.errors import BadInput
from longca.results.files import torn_files


def folder_of(journal: Any) -> str:
    """The folder of a journal."""
    folder = getattr(journal, "folder", journal)
    if not isinstance(folder, str | PathLike) or not str(folder):
        raise BadInput(f"give the folder of a journal, or what longca.run returned, not {journal!r}.")
    return fspath(folder)


def torn_notes(folders: Iterable[str]) -> list[str]:
    """A sentence for each file that ends in a torn line, in these folders or in journals below them."""
    return [
        f"left out the torn last line of {path} ({size} bytes); the next `longca run` there removes it."
        for path, size in torn_files(folders).items()
    ]
