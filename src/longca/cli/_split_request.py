"""The arguments that `longca plan` and `longca simulate` share, and the request that they make."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from longca.cli._documents import add_document_flags
from longca.cli._shape_extras import add_shape_extras
from longca.errors import BadInput
from longca.text import format_size, parse_axes, parse_list, plural

if TYPE_CHECKING:
    from longca.bench.plan.cell import Cell
    from longca.simulate.request import Request

LISTS = ("kernels", "masks", "seqlens", "heads", "head_dims", "dtypes", "methods")


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", metavar="N,N", help="the number of GPUs that share the sequence (default 8)")
    parser.add_argument("--seqlen", dest="seqlens", metavar="S,S", help="tokens of all GPUs together, such as 512K")
    parser.add_argument("--per-gpu", metavar="S", help="tokens of each GPU instead, such as 8K (the default)")
    parser.add_argument("--masks", metavar="A,B", help="names, files or expressions, as in `longca run` (default causal)")
    parser.add_argument("--methods", metavar="A,B", help="context-parallel methods, or all (default)")
    parser.add_argument(
        "--kernels", metavar="NAME", help="the kernel that every rank runs (default: fa4); it affects memory, copies and what is refused"
    )
    parser.add_argument("--heads", metavar="Q:KV", help="query and KV heads (default 64:8)")
    parser.add_argument("--head-dim", dest="head_dims", metavar="D", help="head size (default 128)")
    parser.add_argument("--dtype", dest="dtypes", metavar="T", help="bf16 (default), fp16 or fp32")
    add_shape_extras(parser)
    parser.add_argument("--passes", metavar="P,P", help="fwd, bwd, fwd+bwd (default fwd,bwd)")
    parser.add_argument("--grid", metavar="UxR[xW]", help="the grid of methods that have several (default: each method's own)")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=V,V",
        help="an option of the methods that have it, such as stages=4 (`longca ls cp`); repeatable",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the seed of the documents (default 0)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=V", help="a parameter of the masks that have it; repeatable")
    add_document_flags(parser)
    parser.add_argument(
        "--plugin", action="append", default=[], metavar="FILE", help="a Python file with methods or masks of your own; repeatable"
    )


def request_of(
    args: argparse.Namespace, per_node: int, device: str = "cuda", all_grids: bool = False, all_options: bool = False
) -> Request:
    from longca.bench.many_devices.plugins import load_carefully
    from longca.bench.plan import suite as suites
    from longca.bench.plan.mask_plugins import load_masks
    from longca.bench.plan.workload import with_model
    from longca.masks.pattern import check_seed
    from longca.results.problem import Pass, parse_pass
    from longca.results.record import LevelName
    from longca.results.settings import Limits
    from longca.simulate.request import Request

    load_masks(args.plugin)
    for path in args.plugin:
        load_carefully(path, Limits().start_s)
    if args.seqlens and args.per_gpu:
        raise BadInput("--seqlen and --per-gpu both set the length of the sequence; give one of them.")
    suite = suites.Suite(masks=("causal",), level=LevelName.CP, seqlens=("8K",), per_rank=args.seqlens is None)
    lists: dict[str, Any] = {name: tuple(parse_list(getattr(args, name))) for name in LISTS if getattr(args, name) is not None}
    if len(lists.get("kernels", ())) > 1:
        raise BadInput(f"methods are compared on one kernel, and --kernels has {len(lists['kernels'])}; give one.")
    if args.model:
        suite = with_model(suite, args.model, lists.get("masks", ()))
    if args.per_gpu:
        lists["seqlens"] = tuple(parse_list(args.per_gpu))
    passes = tuple(map(parse_pass, parse_list(args.passes))) if args.passes else (Pass.FWD, Pass.BWD)
    suite = suite.changed(
        **lists, passes=passes, seeds=(check_seed(args.seed),), grid=args.grid, distribution=args.distribution, packing=args.packing
    )
    suite = suite.changed(documents=args.documents, softcap=args.softcap, sinks=args.sinks, scale=args.scale)
    suite = suites.with_options(suites.with_params(suite, parse_axes(args.set)), parse_axes(args.option))
    return Request(suite, _numbers(args.gpus), per_node, device, all_grids, all_options)


def _numbers(text: str | None) -> tuple[int, ...]:
    from longca.simulate.request import MOST_GPUS

    entries = parse_list(text or "8")
    if not all(entry.isdecimal() for entry in entries):
        raise BadInput(f"--gpus must be numbers such as 8,16,64, not {text}.")
    if any(len(entry) > len(str(MOST_GPUS)) for entry in entries):
        raise BadInput(f"--gpus must be from 1 to {MOST_GPUS}, not {text}.")
    return tuple(dict.fromkeys(map(int, entries)))


def show_documents(cells: Sequence[Cell]) -> None:
    """Prints the number and the lengths of the documents of each mask that has some. They decide which method is the best."""
    from longca.bench.plan.cells import mask_of

    for cell in {(cell.problem.mask_title, cell.problem.seqlen): cell for cell in cells}.values():
        if documents := mask_of(cell.problem).documents:
            lengths = f"{plural(len(documents), 'document')} of {min(documents)} to {max(documents)} tokens"
            origin = "given" if cell.problem.documents else f"drawn with seed {cell.problem.seed}; --lengths gives your own"
            print(f"{cell.problem.mask_title}, {format_size(cell.problem.seqlen)} tokens: {lengths} ({origin}).")
