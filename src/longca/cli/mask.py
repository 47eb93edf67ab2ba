"""`longca mask`: one mask as a picture in the terminal, as a PNG or as JSON; or all of them in one picture."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longca.errors import BadInput
from longca.text import parse_dims, parse_heads, parse_settings, parse_size

if TYPE_CHECKING:
    from longca.masks import AnyMask

HELP = "show one mask, or draw a gallery of all"
MANY_BLOCKS = 1 << 26  # which take some ten seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the mask; `longca ls masks` lists them")
    parser.add_argument("--seqlen", default="8K", metavar="S", help="tokens, such as 997, 8K or 1M (default 8K)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="what lengths and parameters are drawn from (default 0)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter, such as w=512; repeatable")
    parser.add_argument("--source", metavar="NAME", help="where a block pattern comes from: random, nsa or moba (default random)")
    parser.add_argument("--heads", metavar="Q:KV", help="query and KV heads of a block pattern, such as 64:8: one pattern per KV head")
    parser.add_argument("--head-dim", metavar="D", help="head size of the q and k that select blocks (default 128)")
    parser.add_argument("--lengths", metavar="FILE", help="document lengths instead of drawn ones: a JSON list, or numbers in a text file")
    parser.add_argument("--distribution", metavar="NAME|FILE", help="what lengths are drawn from: see `longca ls distributions`, or a file")
    parser.add_argument("--packing", metavar="NAME", help="how lengths fill the sequence: draw, mixed or chunked (default draw)")
    parser.add_argument("--json", action="store_true", help="print the mask as JSON, for programs")
    parser.add_argument("--png", metavar="FILE", help="draw the mask into a PNG file")
    parser.add_argument("--gallery", metavar="DIR", help="draw all masks, at this length and seed, into DIR/masks.png")


def run(args: argparse.Namespace) -> int:
    if args.gallery is not None:
        return _gallery(args)
    if args.name is None:
        raise BadInput("name a mask (`longca ls masks` lists them), or give --gallery DIR for a picture of all.")
    if args.png is not None:
        _refuse_path(Path(args.png))
    mask = _build(args)
    if args.png is not None:
        from longca.masks.draw import write_png

        written = write_png(mask, args.png)
        if not args.json:
            print(f"wrote {written}")
    if args.json:
        import json

        print(json.dumps(describe(mask)))
    elif args.png is None:
        from longca.masks.draw import terminal_picture

        print(terminal_picture(mask))
    return 0


def _refuse_path(path: Path) -> None:
    """Before anything is drawn: the folder is there, and nobody takes the file for something else."""
    if path.suffix.lower() != ".png":
        raise BadInput(f"--png writes a PNG file, so its name must end in .png, not {path.name!r}.")
    if not path.parent.is_dir():
        raise BadInput(f"cannot write {path}: there is no folder {path.parent}; make it, or give another file.")


def _gallery(args: argparse.Namespace) -> int:
    from longca.masks.draw import write_gallery

    alone = ("name", "lengths", "distribution", "packing", "png", "source", "heads", "head_dim")
    if args.set or args.json or any(getattr(args, option) is not None for option in alone):
        raise BadInput("--gallery draws every mask with its own parameters; beside it only --seqlen and --seed can be given.")
    print(f"wrote {write_gallery(args.gallery, parse_size(args.seqlen), args.seed)}")
    return 0


def _build(args: argparse.Namespace) -> AnyMask:
    from longca import masks
    from longca.kernels import block_selection
    from longca.lengths import read_lengths

    params = parse_settings(args.set)
    masks.find(args.name).check(params)
    given = {"--source": args.source, "--heads": args.heads, "--head-dim": args.head_dim}
    if args.name not in masks.block_names() and (flags := [flag for flag, value in given.items() if value is not None]):
        raise BadInput(f"{args.name} is no block pattern, so it takes no {' and no '.join(flags)}; {' and '.join(masks.block_names())} do.")
    heads = parse_heads(args.heads) if args.heads else (int(params.get("heads", 1)),) * 2
    if args.heads:
        params.setdefault("heads", heads[1])
    seqlen = parse_size(args.seqlen)
    if args.name in masks.block_names():
        _warn_of_size(args.name, params, seqlen)
    return block_selection.build(
        args.name,
        seqlen,
        args.source or "random",
        block_selection.Heads(*heads, parse_dims(args.head_dim or "128")[0]),
        seed=args.seed,
        documents=None if args.lengths is None else read_lengths(args.lengths),
        distribution=args.distribution,
        packing=args.packing,
        **params,
    )


def _warn_of_size(name: str, params: Mapping[str, float], seqlen: int) -> None:
    """A pattern is made block by block: say that it takes long, and refuse what memory cannot hold, before it is begun."""
    from longca import masks

    blocks = masks.BLOCK_PATTERNS[name].block_count(seqlen, params)
    if blocks <= MANY_BLOCKS:
        return
    from longca.bench.plan.cells import refuse_large_pattern

    refuse_large_pattern(name, seqlen, params)
    advice = "fewer heads (--set heads=1), larger blocks or a shorter --seqlen would be faster"
    print(f"a pattern of {blocks / 1e6:,.4g} million blocks takes a while to make; {advice}", file=sys.stderr)


def describe(mask: AnyMask) -> dict[str, Any]:
    """Everything about a mask as plain numbers and lists."""
    from longca.masks import BlockMask

    facts: dict[str, Any] = {
        "name": mask.name,
        "seqlen": mask.seqlen_q,
        "seed": mask.seed,
        "params": mask.params,
        "documents": None if mask.documents is None else list(mask.documents),
        "area": mask.area,
        "density": mask.density,
        "digest": mask.digest,
        "bands": [] if isinstance(mask, BlockMask) else mask.table,
    }
    if isinstance(mask, BlockMask):
        facts["source"], facts["bands"] = mask.source, [] if mask.band is None else mask.band.table  # on top of the blocks
        facts["heads"], facts["head_areas"] = mask.heads, mask.head_areas
        facts["row_edges"], facts["col_edges"] = mask.row_edges.tolist(), mask.col_edges.tolist()
        facts["blocks"] = [[row.nonzero()[0].tolist() for row in head] for head in mask.kept]  # kept key blocks per head and row block
    return facts
