"""The words of `merge` and `submit`, of notes on incomplete journals, and why a kernel is excluded."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from longca.results.files import ENVIRONMENTS, journals, results_file, torn_files
from longca.results.ranking import FEWER_MASKS, Out
from longca.text import format_size, part_of, plural, printable

if TYPE_CHECKING:
    from longca.results.merge import Merged
    from longca.results.submission import Submission

REVIEW = "open a pull request; CONTRIBUTING.md lists what is reviewed"


def lacks(folders: Iterable[str | Path]) -> Iterator[str]:
    """A sentence for each file with an incomplete last line and each journal without env.json, in these folders or below."""
    for folder in journals(folders):
        for path, size in torn_files(folder).items():
            yield f"skipped the incomplete last line of {path} ({size} bytes); the next `longca run` there removes it."
        if results_file(folder).exists() and not (path := folder / ENVIRONMENTS).exists():
            yield f"{path} is missing, so the device and the settings of these results are unknown; restore it, or measure again."


def merged(done: Merged, out: str | Path, packed: bool) -> str:
    end = "; it is packed now, and no run can add to it" if packed else ""
    return f"{out}: {plural(done.added, 'cell')} added, {done.replaced} replaced by newer records, {done.kept} unchanged{end}"


def questions(done: Submission) -> list[str]:
    """What a reviewer will ask about a copy, with advice; it can be published nevertheless."""
    sentences = {
        f"the warm-up of {plural(done.short_warmup, 'cell')} is short; measure again with --clock warmup_s=0.1 and another --out.": (
            done.short_warmup
        ),
        f"{part_of(done.noisy, done.timed, 'time')} noisy; measure again on an idle machine, with another --out.": (
            2 * done.noisy > done.timed
        ),
        f"LongCA had uncommitted changes in the run of {plural(done.changed, 'cell')}; describe them in the pull request.": done.changed,
    }
    return [sentence for sentence, applies in sentences.items() if applies]


def submitted(done: Submission) -> Iterator[str]:
    """What was packed, the texts to read, and how to publish it."""
    yield f"{done.folder}: {plural(done.timed, 'cell')} with a time"
    if done.failed:
        kinds = ", ".join(f"{count} {status}" for status, count in done.failed.items())
        failed = f"also {plural(sum(done.failed.values()), 'cell')} without a time, wrong or failed ({kinds})"
        yield f"{failed}: they are published too; `longca run` with --retry failed measures them again."
    yield "Read the texts that will be public. Folders of paths are removed; names of hosts, people and keys cannot be recognised:"
    yield "remove them with --private WORD."
    for field, texts in done.texts.items():
        for line in texts if field == "reason" else [", ".join(texts)]:
            yield f"  {field}: {printable(line)}"
    if not done.exists:
        yield f"To publish it, copy it to {done.home} in a checkout of LongCA and {REVIEW}."
        return
    merge = shlex.join(["longca", "merge", done.home, str(done.folder), "--pack"])
    ways = f"submit again with another --name, or run `{merge}` in a checkout, which adds your cells and replaces equal ones"
    yield f"{done.home} exists in LongCA, so do not copy it there: {ways}. Then {REVIEW}."


def excluded(out: Out) -> str:
    """Why a kernel is not compared, as a clause."""
    text, at = _excluded(out), out.why.get("at")
    return f"at {format_size(at)}: {text}" if at else text


def _excluded(out: Out) -> str:
    match out.why:
        case {"reason": reason, "seeds": seeds, "masks": masks}:
            return f"{reason or out.status} (seed {', '.join(map(str, seeds))} of {masks} masks)"
        case {"reason": reason}:
            return reason or out.status
        case {"lacks": passes}:
            return f"there is no record of its {' and '.join(passes)}"
        case {"common": common, "of": of, "best": best}:
            where = f"it was measured on {common or 'none'} of the {of} masks (seeds) on which the others are compared"
            return f"{where}; there it has {out.share:.2f} times the speed of {best}" if out.status == FEWER_MASKS else where
        case {"on_cpu": on_cpu}:
            why = "memory is counted on GPUs only" if on_cpu else "its memory was not counted"
            return f"{why}, so --memory cannot be answered"
        case {"gib": gib, "limit": limit, "owner": owner, "scaled": scaled}:
            takes, whose = "would take about" if scaled else "takes", f"of the {owner}" if owner else "asked for"
            return f"it {takes} {gib:.3g} GiB with its inputs, over the {limit:.3g} GiB {whose}"
    return "its planning was not timed, so --calls-per-plan cannot be answered"
