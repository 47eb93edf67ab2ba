"""A named baseline: the journal of a run that is kept, and that later runs are compared with until somebody renews it.

A comparison with the run before misses what becomes slower little by little: four percent with every commit never fail. So the baseline
does not move by itself.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from longca.compare import journals, words
from longca.compare.journals import Comparison
from longca.compare.verdicts import is_too_noisy
from longca.errors import BadInput
from longca.plugins import NAME
from longca.results.files import journals_below
from longca.results.journal import CannotWrite
from longca.results.merge import merge
from longca.results.record import AT_FAULT, Record
from longca.results.shown import Part
from longca.text import short

HOME = Path("baselines")  # of baselines without a folder in their name
LONGEST = 200  # letters of a name
ALSO = ("missing",)  # a cell that only the baseline has is a failure: nobody would notice that it is not measured any more


class Fate(Enum):
    """What became of a run beside its baseline."""

    COMPARED = auto()
    STORED = auto()  # there was no baseline
    RENEWED = auto()
    UNFINISHED = auto()  # cells are left
    NOT_COMPARABLE = auto()
    NOT_STORED = auto()  # cells failed, or there is none


@dataclass(frozen=True)
class Against:
    """A run beside its baseline."""

    name: str
    folder: Path
    fate: Fate
    known: bool  # whether there was a baseline
    threshold: float
    left: int = 0  # cells that are not measured yet
    faults: int = 0  # cells that failed
    timed: int = 0  # cells of a stored run that have a time
    noisy: int = 0  # of these
    reason: str = ""  # why two journals cannot be compared
    compared: Comparison | None = None

    @property
    def ok(self) -> bool:
        """Whether the run became the baseline, or no cell is slower than there, broken or missing."""
        if self.compared is not None:
            return not self.compared.fails(ALSO)
        return self.fate in (Fate.STORED, Fate.RENEWED)

    def parts(self, everything: bool = False) -> list[Part]:
        return ["", words.against(self), *(self.compared.parts(everything) if self.compared else [])]


def baseline_folder(name: str | Path) -> Path:
    """The folder of a baseline: below baselines/, or where a name with a slash says."""
    text = os.fspath(name) if isinstance(name, str | os.PathLike) else ""
    if len(text) > LONGEST or (not ("/" in text and text.strip("/")) and not NAME.fullmatch(text)):
        raise BadInput(f"{short(repr(name), 40)} is not a valid name of a baseline; use letters, digits, _, - and ., or a path.")
    folder = Path(text) if "/" in text else HOME / text
    if ".." in folder.parts:
        raise BadInput(f"the baseline {short(text, 40)} would be outside of its folder; write its path without '..'.")
    above = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if not above.is_dir():
        raise BadInput(f"the baseline {name} needs a folder, and {above} is a file; give another name.")
    return folder


def hold_against(run: Path, records: Sequence[Record], left: int, name: str | Path, *, renew: bool = False, threshold: float) -> Against:
    """Compares the journal of a run with the baseline; makes it the baseline where there is none, or where `renew` asks for it."""
    folder = baseline_folder(name)
    known = folder in journals_below(folder)
    against = partial(Against, str(name), folder, known=known, threshold=threshold)
    if left:
        return against(fate=Fate.UNFINISHED, left=left)
    if known and not renew:
        try:
            return against(fate=Fate.COMPARED, compared=journals.compare(folder, run, threshold))
        except BadInput as error:  # the run itself stands, and is shown
            return against(fate=Fate.NOT_COMPARABLE, reason=str(error))
    faults = sum(record.status in AT_FAULT for record in records)
    if faults or not any(record.ok for record in records):
        return against(fate=Fate.NOT_STORED, faults=faults)
    pin(run, folder)
    timed = [record for record in records if record.ok]
    return against(fate=Fate.RENEWED if known else Fate.STORED, timed=len(timed), noisy=sum(map(is_too_noisy, timed)))


def pin(run: Path, folder: Path) -> None:
    """Makes a packed copy of a journal the baseline; the old one is there until the new one is complete."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        fresh.chmod(0o755)
        try:
            merge(fresh, [run], packed=True)
            if folder.exists():
                shutil.rmtree(folder)
            fresh.rename(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise CannotWrite(f"cannot write the baseline {folder}: {error.strerror}; give another name.") from error
