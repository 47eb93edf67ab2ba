"""`longca submit`: checks a journal of your device, and packs it for publication."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longca.cli._journal_notes import say_lacks
from longca.text import plural, short

if TYPE_CHECKING:
    from longca.results.submission import FreeText, Submission

HELP = "check a journal and pack it for publication"
NOBODY = ("admin", "debian", "localhost", "nobody", "root", "runner", "ubuntu", "user", "vm")  # names that many machines share
SHOWN, WIDTH = 10, 160  # texts for review, and letters of each


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a folder that `longca run` wrote")
    parser.add_argument("--out", default="submission", metavar="DIR", help="the folder of the packed copy (default: submission)")
    parser.add_argument("--name", metavar="NAME", help="the name of the copy below the device's folder (default: that of DIR)")
    parser.add_argument(
        "--private",
        action="append",
        default=[],
        metavar="WORD",
        help="remove this word from free texts, such as the name of the machine that measured; repeatable",
    )
    parser.add_argument(
        "--keep", action="append", default=[], metavar="WORD", help="a word that is not private but looks like a name; repeatable"
    )


def run(args: argparse.Namespace) -> int:
    from longca.results.publishable import cautions, problems
    from longca.results.submission import prepare

    found = problems(args.folder)
    say_lacks([args.folder])
    if found:
        for problem in found:
            print(f"longca: {args.folder}: {problem}", file=sys.stderr)
        return 1
    done = prepare(args.folder, args.out, [*_own_names(), *args.private], args.keep, args.name)
    for caution in cautions(args.folder):
        print(f"note: {caution}", file=sys.stderr)
    removed = f"; paths and names were removed from {plural(done.cleaned, 'text')}" if done.cleaned else ""
    print(f"{done.folder}: {plural(done.timed, 'cell')} with a time{removed}")
    if done.failed:
        kinds = ", ".join(f"{count} {status}" for status, count in done.failed.items())
        words = f"also {plural(sum(done.failed.values()), 'cell')} without a time, wrong or failed ({kinds})"
        print(f"{words}: they are published too; `longca run` with --retry failed measures them again.")
    _show_texts(done.texts, done.folder)
    print(_next_step(done))
    return 0


def _own_names() -> list[str]:
    """The names of this host and this user. A single letter, and a name that many machines share, identifies nobody."""
    import getpass
    import platform
    from contextlib import suppress

    host = platform.node()
    names = [host, host.partition(".")[0]]
    with suppress(OSError, KeyError):  # a container may have no name for its user
        names.append(getpass.getuser())
    return [name for name in names if len(name) > 1 and name.lower() not in NOBODY]


def _show_texts(texts: Sequence[FreeText], folder: Path) -> None:
    """Prints the free texts that remain, for their owner to read: no program knows every name of a person or a machine."""
    if not texts:
        return
    print(f"Read the texts that will be public ({len(texts)}), and remove private words with --private WORD:")
    for place, text, cells in texts[:SHOWN]:
        count = f", {plural(cells, 'cell')}" if cells else ""
        print(f"  {place}{count}: {short(text, WIDTH)}")
    if len(texts) > SHOWN:
        print(f"  and {len(texts) - SHOWN} more; `longca export {folder} --csv` prints all reasons")


def _next_step(done: Submission) -> str:
    """How to publish the copy; a journal of the same name in LongCA must not be overwritten."""
    import shlex

    from longca.recommend.shipped import SHIPPED

    review = "open a pull request; CONTRIBUTING.md lists what is reviewed"
    below = Path(done.home).relative_to("results")
    if any((place / below).exists() for place in (Path("results"), *SHIPPED)):
        merge = shlex.join(["longca", "merge", done.home, str(done.folder), "--pack"])
        ways = f"submit again with another --name, or run `{merge}` in a checkout, which adds your cells and replaces equal ones"
        return f"{done.home} exists in LongCA, so do not copy it there: {ways}. Then {review}."
    return f"To publish it, copy it to {done.home} in a checkout of LongCA and {review}."
