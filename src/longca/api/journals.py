"""`longca.merge`, `export`, `submit` and `schema`: journals joined, written in other formats, and packed for publication.

A journal is the folder that a run wrote, or the object that `longca.run` returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longca.errors import BadInput, unknown

if TYPE_CHECKING:
    from longca.results.merge import Merged
    from longca.results.submission import Submission


def folder_of(journal: Any) -> str:
    """The folder of a journal."""
    folder = getattr(journal, "folder", journal)
    if not isinstance(folder, str | PathLike) or not str(folder):
        raise BadInput(f"give the folder of a journal, or what longca.run returned, not {journal!r}.")
    return fspath(folder)


def folders_of(journals: Sequence[Any]) -> list[str]:
    """The folders of journals, of which there must be one or more."""
    if not journals:
        raise BadInput("name the folder of a journal, or give what longca.run returned.")
    return [folder_of(journal) for journal in journals]


def merge(out: str | Path, *journals: Any, pack: bool = False) -> Merged:
    """Adds the records of journals to the journal in `out`, and returns how many were added, replaced and kept. A later journal replaces
    equal cells of an earlier one. `pack` compresses the result; no run can add to it then.

    >>> longca.merge("out/all", "out/shard-1", "out/shard-2").added
    """
    from longca.results import merge as merging

    return merging.merge(out, folders_of(journals), packed=pack)


def export(*journals: Any, format: str = "csv", out: str | Path | None = None) -> str:
    """Returns the records of journals as text in a format of `longca export` (csv or md), and writes it to `out` if that is given. The
    format parquet needs a file and pyarrow.

    >>> longca.export("out/mine").splitlines()[0]
    """
    from longca.api.files import write_file, write_text
    from longca.results.export import WRITERS, write_parquet
    from longca.results.reading import read_some

    if format not in (*WRITERS, "parquet"):
        raise unknown("format", format, [*WRITERS, "parquet"])
    results = read_some(folders_of(journals))
    if format == "parquet":
        if out is None:
            raise BadInput("parquet is written to a file; give it with out=.")
        write_file(out, lambda path: write_parquet(results, path))
        return ""
    text = WRITERS[format](results)
    if out is not None:
        write_text(out, text)
    return text


def submit(journal: Any, out: str | Path = "submission", *, name: str | None = None, private: Sequence[str] = ()) -> Submission:
    """Checks a journal and packs a copy of it for publication in `out`, without paths and private words. Returns the copy: its folder, the
    number of cells, and the free texts that will be public, which you should read.

    >>> longca.submit("out/mine").texts
    """
    from longca.results.submission import prepare

    return prepare(folder_of(journal), str(out), private, name)


def schema() -> dict[str, Any]:
    """Returns the JSON schema of the files of a journal: results.jsonl, masks.jsonl and env.json."""
    from longca.results.schema import json_schema

    return json_schema()
