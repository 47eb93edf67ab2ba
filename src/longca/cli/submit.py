"""`longca submit`: checks a journal of your device, and packs it for publication."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from longca.cli._journal_notes import say_lacks
from longca.text import part_of, plural, printable

if TYPE_CHECKING:
    from longca.results.submission import Submission

HELP = "check a journal and pack it for publication"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a folder that `longca run` wrote")
    parser.add_argument("--out", default="submission", metavar="DIR", help="the folder of the packed copy (default: submission)")
    parser.add_argument("--name", metavar="NAME", help="the name of the copy below the device's folder (default: that of DIR)")
    words = "remove this word from all texts, such as the name of the machine that measured; repeatable"
    parser.add_argument("--private", action="append", default=[], metavar="WORD", help=words)


def run(args: argparse.Namespace) -> int:
    from longca.api.journals import submit

    say_lacks([args.folder])
    done = submit(args.folder, args.out, name=args.name, private=args.private)
    for note in _notes(done):
        print(f"note: {note}", file=sys.stderr)
    print(f"{done.folder}: {plural(done.timed, 'cell')} with a time")
    if done.failed:
        kinds = ", ".join(f"{count} {status}" for status, count in done.failed.items())
        words = f"also {plural(sum(done.failed.values()), 'cell')} without a time, wrong or failed ({kinds})"
        print(f"{words}: they are published too; `longca run` with --retry failed measures them again.")
    print("Read the texts that will be public. Folders of paths are removed; names of hosts, people and keys cannot be recognised:")
    print("remove them with --private WORD.")
    for field, texts in done.texts.items():
        for line in texts if field == "reason" else [", ".join(texts)]:
            print(f"  {field}: {printable(line)}")
    print(_next_step(done))
    return 0


def _notes(done: Submission) -> Iterator[str]:
    """What a reviewer will ask about, with advice; such a journal can be published nevertheless."""
    if done.short_warmup:
        yield f"the warm-up of {plural(done.short_warmup, 'cell')} is short; measure again with --clock warmup_s=0.1 and another --out."
    if 2 * done.noisy > done.timed:
        yield f"{part_of(done.noisy, done.timed, 'time')} noisy; measure again on an idle machine, with another --out."
    if done.changed:
        yield f"LongCA had uncommitted changes in the run of {plural(done.changed, 'cell')}; describe them in the pull request."


def _next_step(done: Submission) -> str:
    """How to publish the copy; a journal of the same name in LongCA must not be overwritten."""
    import shlex

    from longca.results.files import SHIPPED

    review = "open a pull request; CONTRIBUTING.md lists what is reviewed"
    below = Path(done.home).relative_to("results")
    if any((place / below).exists() for place in (Path("results"), *SHIPPED)):
        merge = shlex.join(["longca", "merge", done.home, str(done.folder), "--pack"])
        ways = f"submit again with another --name, or run `{merge}` in a checkout, which adds your cells and replaces equal ones"
        return f"{done.home} exists in LongCA, so do not copy it there: {ways}. Then {review}."
    return f"To publish it, copy it to {done.home} in a checkout of LongCA and {review}."
