"""A named baseline: the journal of a run that is kept, and that later runs are compared with until somebody renews it.

A comparison with the run before misses what becomes slower little by little: four percent with every commit never fail. So the baseline
does not move by itself.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from longca.compare import journals, words
from longca.compare.journals import Comparison
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


@dataclass(frozen=True)
class Against:
    """A run beside its baseline: what became of it, and the comparison where there is one."""

    ok: bool  # whether the run became the baseline, or no cell is slower than there, broken or missing
    said: str
    compared: Comparison | None = None

    def parts(self, everything: bool = False) -> list[Part]:
        return ["", self.said, *(self.compared.parts(everything) if self.compared else [])]


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
    if left:
        return Against(False, f"baseline {name}: {words.unfinished(left)}")
    if known and not renew:
        try:
            compared = journals.compare(folder, run, threshold)
        except BadInput as error:  # the run itself stands, and is shown
            return Against(False, f"baseline {name}: {error} --renew-baseline makes this run the baseline.")
        said = f"against the baseline {name} ({folder}), with a threshold of {100 * threshold:g} %:"
        return Against(not compared.fails(ALSO), said, compared)
    faults, timed = sum(record.status in AT_FAULT for record in records), [record for record in records if record.ok]
    if faults or not timed:
        return Against(False, f"baseline {name}: {words.not_stored(faults, known)}")
    pin(run, folder)
    return Against(True, f"baseline {name}: {words.stored(folder, known, timed)}")


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
