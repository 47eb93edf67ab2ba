"""`longca mask`: one mask as a picture in the terminal, as a PNG or as JSON; or all of them in one picture."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from longca.cli._documents import add_document_flags
from longca.cli._mask_plugins import load_only_masks
from longca.errors import BadInput
from longca.text import parse_dims, parse_heads, parse_settings, parse_size

if TYPE_CHECKING:
    from longca.masks import AnyMask

HELP = "show one mask, or draw a gallery of all"
NAME_HELP = "a name from `longca ls masks`, a file that --json wrote, or an expression such as 'causal_document & sliding_window(w=512)'"
SEQLEN = "8K"
MANY_BLOCKS = 1 << 26  # which take some ten seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help=NAME_HELP)
    parser.add_argument("--seqlen", metavar="S", help="tokens, such as 997, 8K or 1M (default 8K, or the length of the mask in a file)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the seed of lengths and parameters (default 0)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter, such as w=512; repeatable")
    parser.add_argument("--source", metavar="NAME", help="how a block pattern is selected: random, nsa or moba (default random)")
    parser.add_argument("--heads", metavar="Q:KV", help="query and KV heads of a block pattern, such as 64:8: one pattern per KV head")
    parser.add_argument("--head-dim", metavar="D", help="head size of the q and k that select blocks (default 128)")
    add_document_flags(parser)
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE", help="a Python file with masks of your own; repeatable")
    parser.add_argument("--json", action="store_true", help="print the mask as JSON, a file for `--masks`")
    parser.add_argument("--png", metavar="FILE", help="draw the mask into a PNG file")
    parser.add_argument("--bands", action="store_true", help="with --png: draw each band of the mask, with its six numbers")
    parser.add_argument("--gallery", metavar="DIR", help="draw all masks, at this length and seed, into DIR/masks.png")


def run(args: argparse.Namespace) -> int:
    if args.gallery is not None:
        return _gallery(args)
    if args.name is None:
        raise BadInput("give a mask (`longca ls masks` lists them), or --gallery DIR for a picture of all.")
    if args.png is not None:
        _refuse_path(Path(args.png))
    if args.bands and args.png is None:
        raise BadInput("--bands draws the bands of a mask into a file; add --png FILE.")
    mask = _build(args)
    if args.png is not None:
        written = _draw(mask, args.png, args.bands)
        if not args.json:
            print(f"wrote {written}")
    if args.json:
        import json

        from longca.masks.files import describe

        print(json.dumps(describe(mask)))
    elif args.png is None:
        from longca.masks.draw import terminal_picture

        print(terminal_picture(mask))
    return 0


def _refuse_path(path: Path) -> None:
    """Refuses a file that cannot be written, before anything is drawn."""
    if path.suffix.lower() != ".png":
        raise BadInput(f"--png writes a PNG file, so its name must end in .png, not {path.name!r}.")
    if not path.parent.is_dir():
        raise BadInput(f"cannot write {path}: there is no folder {path.parent}; make it, or give another file.")


def _draw(mask: AnyMask, path: str, bands: bool) -> Path:
    from longca.masks import Mask
    from longca.masks.draw import write_png
    from longca.masks.draw_bands import write_bands

    if not bands:
        return write_png(mask, path)
    if not isinstance(mask, Mask):
        raise BadInput(f"{mask.name} is a block pattern, and --bands draws masks of bands; leave it out.")
    return write_bands(mask, path)


def _gallery(args: argparse.Namespace) -> int:
    from longca.masks.draw import write_gallery

    alone = ("name", "documents", "distribution", "packing", "png", "source", "heads", "head_dim")
    if args.set or args.json or args.plugin or args.bands or any(getattr(args, option) is not None for option in alone):
        raise BadInput("--gallery draws every mask with its own parameters; it takes only --seqlen and --seed.")
    print(f"wrote {write_gallery(args.gallery, parse_size(args.seqlen or SEQLEN), args.seed)}")
    return 0


def _build(args: argparse.Namespace) -> AnyMask:
    from longca import masks
    from longca.kernels import block_selection
    from longca.lengths import cut_note, read_lengths

    params = parse_settings(args.set)
    load_only_masks(args.plugin, "mask")
    named = masks.find(args.name)
    named.check(params)
    given = {"--source": args.source, "--heads": args.heads, "--head-dim": args.head_dim}
    if not masks.has_blocks(args.name) and (flags := [flag for flag, value in given.items() if value is not None]):
        raise BadInput(
            f"{args.name} is not a block pattern, so it takes no {' and no '.join(flags)}; {' and '.join(masks.block_names())} do."
        )
    heads = parse_heads(args.heads) if args.heads else (int(params.get("heads", 1)),) * 2
    if args.heads and "heads" in named.defaults:
        params.setdefault("heads", heads[1])
    seqlen = parse_size(args.seqlen or SEQLEN)
    if args.seqlen is None and isinstance(named, masks.MaskFile):
        seqlen = named.seqlen
    if masks.has_blocks(args.name):
        _warn_of_size(args.name, params, seqlen)
    documents = None if args.documents is None else read_lengths(args.documents)
    mask = block_selection.build(
        args.name,
        seqlen,
        args.source or "random",
        block_selection.Heads(*heads, parse_dims(args.head_dim or "128")[0]),
        seed=args.seed,
        documents=documents,
        distribution=args.distribution,
        packing=args.packing,
        **params,
    )
    for note in cut_note(documents, [seqlen]) if documents else []:
        print(f"note: {note}.", file=sys.stderr)
    return mask


def _warn_of_size(name: str, params: Mapping[str, float], seqlen: int) -> None:
    """Warns that a large pattern takes long to make, and refuses one that does not fit into memory."""
    from longca import masks

    pattern = masks.blocks_of(name, params)
    blocks = pattern[0].block_count(seqlen, pattern[1]) if pattern else 0
    if blocks <= MANY_BLOCKS:
        return
    from longca.bench.plan.cells import refuse_large_pattern

    refuse_large_pattern(name, seqlen, params)
    advice = "fewer heads (--set heads=1), larger blocks or a shorter --seqlen would be faster"
    print(f"note: a pattern of {blocks / 1e6:,.4g} million blocks takes a while to make; {advice}.", file=sys.stderr)
