"""`longca plan`: computes what each context-parallel method sends, holds and computes per GPU; exact, without a GPU."""

from __future__ import annotations

import argparse
import json

from longca.cli._split_request import add_request_arguments, request_of, show_documents
from longca.cli._tables import show_table
from longca.text import plural

HELP = "show what each method sends, holds and computes per GPU, exactly and without a GPU"
COLUMNS = ("method", "grid", "GPUs", "mask", "tokens", "pass", "sent in node", "to others", "messages", "memory", "work", "imbalance")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_arguments(parser)
    parser.add_argument("--per-node", type=int, default=8, metavar="N", help="GPUs per node (default 8)")
    parser.add_argument("--all-grids", action="store_true", help="all grids of the methods that have several")
    parser.add_argument("--json", action="store_true", help="print one JSON object per row instead of a table")


def run(args: argparse.Namespace) -> int:
    from longca.errors import BadInput, Refused
    from longca.simulate.table import rows
    from longca.text import format_memory, format_size

    if args.per_node < 1:
        raise BadInput(f"--per-node must be 1 or more, not {args.per_node}.")
    if args.grid and args.all_grids:
        raise BadInput("--grid gives one grid, and --all-grids asks for all of them; give one of the two.")
    shown, details, refused, planned = [], {}, {}, False
    request = request_of(args, args.per_node, all_grids=args.all_grids)
    for row in rows(request):
        planned |= not row.refusal
        if args.json:
            print(json.dumps(row.as_dict()), flush=True)
            continue
        grid = f"{row.grid} {row.options}".strip()
        case = f"{row.method} {grid} on {row.gpus} GPUs, {row.mask}:"
        if row.refusal:
            refused[case] = row.refusal
            continue
        if row.details:
            details[case] = row.details
        names = (row.method, grid, row.gpus, row.mask, format_size(row.seqlen), row.pass_)
        sent = (format_memory(row.inside_bytes), format_memory(row.between_bytes))
        work = f"{row.pairs:.3g} pairs in {plural(row.attention_calls, 'call')}"
        shown.append((*names, *sent, row.messages, format_memory(row.peak_bytes), work, f"{row.imbalance:.2f}"))
    if shown:
        show_table(COLUMNS, shown)
        print("\nEach value is the largest of all GPUs. Memory is the peak of inputs, results, buffers, and declared fp32 sums.")
        show_documents(request.cells())
    for case, lines in details.items():
        print("\n  ".join((case, *lines)))
    for case, reason in refused.items():
        print(case, reason)
    return 0 if planned else Refused.exit_code
