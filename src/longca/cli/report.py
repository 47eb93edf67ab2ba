"""`longca report`: writes a page of results."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from longca.cli._files import write_text
from longca.cli._journal_notes import say_lacks
from longca.text import write_over

if TYPE_CHECKING:
    from longca.api.report import Report

HELP = "write one self-contained HTML page with charts, tables and the commands to reproduce them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", metavar="DIR", help="folders that `longca run` wrote, or folders of them")
    parser.add_argument("-o", "--out", default="report.html", metavar="FILE", help="the page (default report.html)")
    parser.add_argument("--md", metavar="FILE", help="also write the tables as Markdown")
    parser.add_argument("--latex", metavar="FILE", help="also write the speeds as LaTeX tables (booktabs)")
    parser.add_argument("--figures", metavar="DIR", help="also write figures for papers, as PNG, PDF and SVG")
    parser.add_argument("--trace", action="append", default=[], metavar="FILE", help="show a timeline that `longca simulate --trace` wrote")
    parser.add_argument("--title", default="LongCA results", help="the title of the page")


def run(args: argparse.Namespace) -> int:
    from longca.api.files import refuse_unwritable
    from longca.api.report import Report

    refuse_unwritable([args.out, *(target for target in (args.md, args.latex) if target)], args.figures or None)
    say_lacks(args.folders)
    report = Report(args.folders, args.title, args.trace)
    texts = [(args.out, report.html, "; open it in a browser, it needs no network")]
    texts += [(args.md, report.markdown, "")] if args.md else []
    texts += [(args.latex, report.latex, "")] if args.latex else []
    for target, text, remark in texts:  # all are made before one is written
        write_text(target, text, remark)
    if args.figures:
        _write_figures(report, args.figures)
    return 0


def _write_figures(report: Report, folder: str) -> None:
    count = 0
    for count, path in enumerate(report.save_figures(folder), 1):
        write_over(f"{count} {path.name}")  # a large journal takes half a minute
    write_over("")
    print(f"wrote {count} figures to {folder}")
