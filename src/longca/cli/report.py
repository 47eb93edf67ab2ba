"""`longca report`: a page of what was measured."""

from __future__ import annotations

import argparse
from pathlib import Path

from longca.errors import BadInput

HELP = "write one self-contained HTML page of charts, tables and how to reproduce them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", metavar="DIR", help="folders that `longca run` wrote")
    parser.add_argument("-o", "--out", default="report.html", metavar="FILE", help="the page (default report.html)")
    parser.add_argument("--title", default="LongCA results", help="what stands on top of it")


def run(args: argparse.Namespace) -> int:
    from longca.report.page import render

    page = render(args.folders, args.title)
    try:
        Path(args.out).write_text(page, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {args.out}: {error.strerror}; give another file with -o.") from error
    print(f"wrote {args.out} ({len(page.encode()) / 1e6:.1f} MB); open it in a browser, it needs no network")
    return 0
