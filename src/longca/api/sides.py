"""The kernels that `longca.ab` compares: a name, a file, a file at a git revision, or a Python object."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from longca.errors import BadInput, unknown
from longca.kernels import registry
from longca.kernels.base import Kernel

FILE = re.compile(r"(?:(?P<revision>[^:]+):)?(?P<file>[^:]+\.py)(?::(?P<kernel>.+))?")
ARCHIVE_S = 60.0


@dataclass(frozen=True)
class Side:
    """A kernel: its name, or the file that has it, as it is or as it was at a revision; or an object."""

    title: str
    kernel: str = ""  # empty: the one that the file has
    file: Path | None = None
    revision: str = ""
    value: Kernel | type[Kernel] | None = None

    def checked_out(self, folder: Path) -> str | None:
        """The path of the file; of a revision, it is in this folder, with what was beside it."""
        if self.file is None or not self.revision:
            return None if self.file is None else str(self.file)
        home, name = self.file.resolve().parent, self.file.name
        if _git(home, "rev-parse", "--verify", "--quiet", f"{self.revision}^{{commit}}") is None:
            raise BadInput(f"{self.revision!r} is not a revision of the git repository of {self.file}; `git log` lists them.")
        packed = _git(home, "archive", "--format=tar", self.revision) or b""
        folder.mkdir()
        with suppress(tarfile.ReadError), tarfile.open(fileobj=io.BytesIO(packed)) as members:
            members.extractall(folder, filter="data")
        if not (folder / name).is_file():
            raise BadInput(f"there is no {self.file} in the revision {self.revision}; give a file that git has there.")
        return str(folder / name)


def sides(old: Any, new: Any) -> tuple[Side, Side]:
    """The two sides. A text that is neither a kernel nor a file is a revision of the file of the other side."""
    a, b = _side(old), _side(new)
    if isinstance(a, str) and isinstance(b, Side) and b.file is not None and not b.revision:
        a = Side(f"{a}:{b.file}", b.kernel, b.file, a)
    elif isinstance(b, str) and isinstance(a, Side) and a.file is not None and not a.revision:
        b = Side(f"{b}:{a.file}", a.kernel, a.file, b)
    for side in (a, b):
        if isinstance(side, str):
            raise unknown("kernel", side, registry.names())
    assert isinstance(a, Side)
    assert isinstance(b, Side)
    return a, b


def _side(given: Any) -> Side | str:
    """A side; a text that may be a revision stays a text."""
    if isinstance(given, PathLike):
        return Side(fspath(given), file=Path(given))
    if not isinstance(given, str):
        registry.refuse_no_kernel(given)
        return Side(registry.label_of(given), registry.label_of(given), value=given)
    if parts := FILE.fullmatch(given):
        return Side(given, parts["kernel"] or "", Path(parts["file"]), parts["revision"] or "")
    return Side(given, given) if given.partition(":")[0] in registry.names() else given


def _git(folder: Path, *command: str) -> bytes | None:
    """What git prints; None where it fails."""
    try:
        answer = subprocess.run(["git", "-C", str(folder), *command], capture_output=True, timeout=ARCHIVE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None
