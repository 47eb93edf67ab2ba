"""`longca submit`: checks a journal of your device, and packs it for publication."""

from __future__ import annotations

import argparse

from longca.cli._journal_notes import say_lacks
from longca.text import plural

HELP = "check a journal and pack it for publication"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a folder that `longca run` wrote")
    parser.add_argument("--out", default="submission", metavar="DIR", help="the folder of the packed copy (default: submission)")


def run(args: argparse.Namespace) -> int:
    import getpass
    import platform
    import sys
    from contextlib import suppress

    from longca.results.submission import prepare, problems

    say_lacks([args.folder])
    if found := problems(args.folder):
        for problem in found:
            print(f"longca: {args.folder}: {problem}", file=sys.stderr)
        return 1
    host = platform.node()
    private = [host, host.partition(".")[0]]
    with suppress(OSError, KeyError):  # a container may have no name for its user
        private.append(getpass.getuser())
    done = prepare(args.folder, args.out, [word for word in private if word not in ("root", "localhost")])
    removed = f"; paths and names were removed from {plural(done.cleaned, 'text')}" if done.cleaned else ""
    print(f"{done.folder}: {plural(done.timed, 'cell')} with a time{removed}")
    if done.failed:
        kinds = ", ".join(f"{count} {status}" for status, count in done.failed.items())
        words = f"also {plural(sum(done.failed.values()), 'cell')} without a time, wrong or failed ({kinds})"
        print(f"{words}: they are published too; `longca run` with --retry failed measures them again.")
    print(f"To publish it, copy it to {done.home} in a checkout of LongCA and open a pull request; CONTRIBUTING.md lists what is reviewed.")
    return 0
