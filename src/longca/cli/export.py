"""`longca export`: a journal for other programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from longca.cli._torn import say_torn
from longca.errors import BadInput

HELP = "write a journal as CSV, Parquet, Markdown or PyTorch's benchmark format"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", metavar="DIR", help="a folder that `longca run` wrote")
    for name, about in (("csv", "one row per cell"), ("md", "tables for people"), ("hud", "PyTorch's benchmark format v3, JSON")):
        parser.add_argument(f"--{name}", nargs="?", const="-", metavar="FILE", help=f"{about}; without FILE, printed")
    parser.add_argument("--parquet", metavar="FILE", help="one row per cell; needs pyarrow (pip install pyarrow)")


def run(args: argparse.Namespace) -> int:
    from longca.bench import export
    from longca.report.reading import read, read_environments

    ways = {"csv": export.to_csv, "md": export.to_markdown, "hud": export.to_hud}
    folder, asked = _folder_first(args.folder, {name: getattr(args, name) for name in ways if getattr(args, name) is not None})
    if not asked and args.parquet is None:
        raise BadInput("say what to write: --csv, --parquet, --md or --hud.")
    printed = [f"--{name}" for name, target in asked.items() if target == "-"]
    if len(printed) > 1:
        raise BadInput(f"{' and '.join(printed)} would be printed into one another; give all but one of them a FILE.")
    say_torn([folder])
    records, environments = read(folder), read_environments(folder)
    for name, target in asked.items():
        text = ways[name](records, environments)
        if target == "-":
            sys.stdout.write(text)
        else:
            _write(target, text)
    if args.parquet is not None:
        export.write_parquet(records, environments, args.parquet)
        print(f"wrote {args.parquet}")
    return 0


def _folder_first(folder: str | None, asked: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The folder and what to write where. In `--csv DIR` the flag took the folder for its file, which no folder can be."""
    if folder is not None:
        return folder, asked
    taken = [name for name, target in asked.items() if Path(target).is_dir()]
    if len(taken) != 1:
        raise BadInput("name the folder of the journal first, then what to write: `longca export DIR --csv`.")
    return asked[taken[0]], asked | {taken[0]: "-"}


def _write(target: str, text: str) -> None:
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {target}: {error.strerror}; give another file.") from error
    print(f"wrote {target}")
