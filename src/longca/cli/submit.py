"""`longca submit`: checks a journal of your device, and packs it for publication."""

from __future__ import annotations

import argparse

from longca.cli._flags import call
from longca.cli._notes import note, say_lacks

HELP = "check a journal and pack it for publication"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("journal", metavar="DIR", help="a folder that `longca run` wrote")
    parser.add_argument("--out", metavar="DIR", help="the folder of the packed copy (default submission)")
    parser.add_argument("--name", metavar="NAME", help="the name of the copy below the device's folder (default: that of DIR)")
    words = "remove this word from all texts, such as the name of the machine that measured; repeatable"
    parser.add_argument("--private", action="append", default=[], metavar="WORD", help=words)


def run(args: argparse.Namespace) -> int:
    from longca.api.journals import submit
    from longca.results import words

    say_lacks([args.journal])
    done = call(submit, args)
    for sentence in words.questions(done):
        note(sentence)
    print("\n".join(words.submitted(done)))
    return 0
