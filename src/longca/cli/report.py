"""`longca report`: writes a page of results."""

from __future__ import annotations

import argparse

from longca.cli._flags import flag
from longca.cli._notes import say_lacks
from longca.text import write_over

HELP = "write one self-contained HTML page with charts, tables and the commands to reproduce them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", metavar="DIR", help="folders that `longca run` wrote, or folders of them")
    parser.add_argument("-o", "--out", default="report.html", metavar="FILE", help="the page (default report.html)")
    flag(parser, "--md", "FILE", "also write the tables as Markdown")
    flag(parser, "--latex", "FILE", "also write the speeds as LaTeX tables (booktabs)")
    flag(parser, "--figures", "DIR", "also write figures for papers, as PNG, PDF and SVG")
    parser.add_argument("--title", default="LongCA results", help="the title of the page")


def run(args: argparse.Namespace) -> int:
    from longca.api.files import write_text
    from longca.api.report import report

    say_lacks(args.folders)
    made = report(*args.folders, title=args.title)
    texts = {args.out: made.html}
    texts |= {args.md: made.markdown} if args.md else {}
    texts |= {args.latex: made.latex} if args.latex else {}
    for target, text in texts.items():  # all are made before one is written
        write_text(target, text)
        print(f"wrote {target}{'; open it in a browser, it needs no network' if target == args.out else ''}")
    if args.figures:
        written = made.save_figures(args.figures, lambda path: write_over(path.name))  # a large journal takes half a minute
        write_over("")
        print(f"wrote {len(written)} files to {args.figures}")
    return 0
