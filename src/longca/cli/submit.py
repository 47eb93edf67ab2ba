"""`longca submit`: checks a journal of your device, and packs it for publication."""

from __future__ import annotations

import argparse

from longca.cli._flags import call, flag
from longca.cli._notes import note, say_lacks

HELP = "check a journal and pack it for publication"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("journal", metavar="DIR", help="a folder that `longca run` wrote")
    flag(parser, "--out", "DIR", "the folder of the packed copy (default submission)")
    flag(parser, "--name", "NAME", "the name of the copy below the device's folder (default: that of DIR)")
    words = "remove this word from all texts, such as the name of the machine that measured; repeatable"
    flag(parser, "--private", "WORD", words, action="append", default=[])


def run(args: argparse.Namespace) -> int:
    from longca.api.journals import submit
    from longca.results import words

    say_lacks([args.journal])
    done = call(submit, args)
    for sentence in words.questions(done):
        note(sentence)
    print("\n".join(words.submitted(done)))
    return 0
