"""`longca export`: writes a journal in other formats."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from longca.cli._flags import flag
from longca.cli._notes import say_lacks
from longca.errors import BadInput

HELP = "write journals as CSV, Parquet or Markdown"
FORMATS = ("csv", "md", "parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="*", metavar="DIR", help="folders that `longca run` wrote, or folders of such folders")
    for name, what in (("csv", "one row per cell"), ("md", "Markdown tables")):
        flag(parser, f"--{name}", "FILE", f"{what}; printed if there is no FILE", nargs="?", const="-")
    flag(parser, "--parquet", "FILE", "one row per cell; needs pyarrow (pip install pyarrow)")


def run(args: argparse.Namespace) -> int:
    from longca.api.journals import export

    folders, targets = _folders_first(args.folders, {name: getattr(args, name) for name in FORMATS if getattr(args, name) is not None})
    if not targets:
        raise BadInput("give a format: --csv, --parquet or --md.")
    printed = [f"--{name}" for name, target in targets.items() if target == "-"]
    if len(printed) > 1:
        raise BadInput(f"{' and '.join(printed)} cannot all be printed; give all but one of them a FILE.")
    say_lacks(folders)
    for name, target in targets.items():
        text = export(*folders, format=name, out=None if target == "-" else target)
        if target == "-":
            sys.stdout.write(text)
        else:
            print(f"wrote {target}")
    return 0


def _folders_first(folders: list[str], targets: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Returns the folders, and the target of each format. In `--csv DIR` argparse takes the folder for the file of the flag."""
    taken = [name for name, target in targets.items() if name != "parquet" and Path(target).is_dir()]
    if len(taken) > 1 or not (taken or folders):
        raise BadInput("give the folder of the journal first, then the format: `longca export DIR --csv`.")
    return [*(targets[name] for name in taken), *folders], targets | dict.fromkeys(taken, "-")
