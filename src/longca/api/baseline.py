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

from longca.api.compare import parse_threshold
from longca.compare import journals
from longca.compare.journals import Comparison
from longca.compare.verdicts import is_too_noisy
from longca.errors import BadInput
from longca.plugins import NAME
from longca.results.files import journals_below
from longca.results.journal import CannotWrite
from longca.results.merge import merge
from longca.results.record import AT_FAULT, Record
from longca.results.shown import Part
from longca.text import plural, short

HOME = Path("baselines")  # of baselines without a folder in their name
LONGEST = 200  # letters of a name
ALSO = ("missing",)  # a cell that only the baseline has is a failure: nobody would notice that it is not measured any more


@dataclass(frozen=True)
class Against:
    """What became of a run beside its baseline: it was compared, or it became the baseline, or why neither."""

    sentence: str
    compared: Comparison | None = None
    ok: bool = True

    def parts(self, everything: bool = False) -> list[Part]:
        return ["", self.sentence, *(self.compared.parts(everything) if self.compared else [])]


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


def hold_against(
    run: Path, records: Sequence[Record], left: int, name: str | Path, *, renew: bool = False, threshold: float | str
) -> Against:
    """Compares the journal of a run with the baseline; makes it the baseline where there is none, or where `renew` asks for it."""
    folder, limit = baseline_folder(name), parse_threshold(threshold)
    known = folder in journals_below(folder)
    if left:
        return Against(f"baseline {name}: {plural(left, 'cell')} of this run are left, so it is not yet compared.", ok=False)
    faults = [record for record in records if record.status in AT_FAULT]
    if known and not renew:
        try:
            compared = journals.compare(folder, run, limit)
        except BadInput as error:  # the run itself stands, and is shown
            return Against(f"baseline {name}: {error} --renew-baseline makes this run the baseline.", ok=False)
        return Against(
            f"against the baseline {name} ({folder}), with a threshold of {100 * limit:g} %:", compared, not compared.fails(ALSO)
        )
    if faults or not any(record.ok for record in records):
        why = f"{plural(len(faults), 'cell')} failed" if faults else "nothing was measured"
        kept = "the old one is kept" if known else "there is none yet"
        return Against(f"baseline {name}: this run is not stored, because {why}; {kept}.", ok=False)
    pin(run, folder)
    noisy_times = sum(map(is_too_noisy, timed := [record for record in records if record.ok]))
    noisy = f" warning: {noisy_times} of {plural(len(timed), 'time')} are noisy, so verdicts there will be UNCLEAR." if noisy_times else ""
    what = "replaced by this run" if known else "there was none; this run is stored as the baseline"
    return Against(f"baseline {name}: {what} ({folder}); --renew-baseline replaces it.{noisy}")


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
