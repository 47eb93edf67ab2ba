"""Flags for the lengths of documents; `mask`, `run`, `verify`, `explain`, `plan`, `simulate` and `recommend` share them."""

from __future__ import annotations

import argparse


def add_document_flags(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--lengths", dest="documents", metavar="FILE", help="document lengths instead of drawn ones: a JSON list, or numbers in a text file"
    )
    parser.add_argument("--distribution", metavar="NAME|FILE", help="the distribution of document lengths (`longca ls distributions`)")
    parser.add_argument("--packing", metavar="NAME", help="how documents fill the sequence: draw, mixed or chunked")
