"""The words of `merge` and `submit`, and of notes on incomplete journals."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from longca.results.files import torn_files, without_environments
from longca.results.merge import Merged
from longca.results.submission import Submission
from longca.text import part_of, plural, printable

REVIEW = "open a pull request; CONTRIBUTING.md lists what is reviewed"


def lacks(folders: Iterable[str | Path]) -> Iterator[str]:
    """A sentence for each file with an incomplete last line and each journal without env.json, in these folders or below."""
    every = list(folders)
    for path, size in torn_files(every).items():
        yield f"skipped the incomplete last line of {path} ({size} bytes); the next `longca run` there removes it."
    for path in without_environments(every):
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
