"""`longca mask`: one mask as a picture in the terminal, as a PNG or as JSON; or all of them in one picture."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_documents, add_json, add_plugins, add_seed, add_set, call, flag, switch, typed
from longca.cli._notes import load_only_masks
from longca.cli._tables import show
from longca.errors import BadInput
from longca.text import parse_size

HELP = "show one mask, or draw a gallery of all"
NAME_HELP = "a name from `longca ls masks`, a file that --json wrote, or an expression such as 'causal_document & sliding_window(w=512)'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mask", metavar="name", nargs="?", help=NAME_HELP)
    flag(parser, "--seqlen", "S", "tokens, such as 997, 8K or 1M (default 8K, or the length of the mask in a file)")
    add_seed(parser, "the seed of lengths and parameters (default 0)")
    add_set(parser, "a parameter, such as w=512")
    flag(parser, "--source", "NAME", "how a block pattern is selected: random, nsa, moba or msa (default random)")
    flag(parser, "--heads", "Q:KV", "query and KV heads, such as 64:8, of a block pattern (one per KV head) or of the limit")
    flag(parser, "--head-dim", "D", "head size (default 128)")
    add_documents(parser)
    add_plugins(parser, "masks of your own")
    add_json(parser, "print the mask as JSON, a file for `--masks`")
    flag(parser, "--png", "FILE", "draw the mask into a PNG file")
    switch(parser, "--bands", "with --png: draw each band of the mask, with its six numbers")
    limit = parser.add_argument_group("the least time of a device", "--tiles or --device prints it instead of the picture; nothing is run")
    flag(limit, "--tiles", "MxN", "query tokens and keys of a tile of your kernel, such as 128x128")
    flag(limit, "--device", "NAME", "such as h200 or a100 (default: the GPU of this machine)")
    flag(limit, "--dtype", "T", "bf16, fp16 or fp32 (default bf16)")
    flag(parser, "--gallery", "DIR", "draw all masks, at this length and seed, into DIR/masks.png")


def run(args: argparse.Namespace) -> int:
    if args.gallery is not None:
        return _gallery(args)
    if args.mask is None:
        raise BadInput("give a mask (`longca ls masks` lists them), or --gallery DIR for a picture of all.")
    from longca.api.show_mask import show_mask

    load_only_masks(args.plugins, "mask")
    if args.tiles or args.device or args.dtype:
        return _limit(args)
    shown = call(show_mask, args)
    if shown.png is not None and not args.json:
        print(f"wrote {shown.png}")
    else:
        show(shown, args.json, lines=True)
    return 0


def _limit(args: argparse.Namespace) -> int:
    from longca.api.mask_limit import mask_limit

    if args.png is not None or args.bands:
        raise BadInput("--png and --bands draw the mask, and --tiles and --device print its limit; leave out one or the other.")
    show(call(mask_limit, args), args.json, lines=True)
    return 0


def _gallery(args: argparse.Namespace) -> int:
    from longca.masks.draw import write_gallery

    if typed(args, add_arguments).keys() - {"gallery", "seqlen", "seed"}:
        raise BadInput("--gallery draws every mask with its own parameters; it takes only --seqlen and --seed.")
    print(f"wrote {write_gallery(args.gallery, parse_size(args.seqlen or '8K'), args.seed or 0)}")
    return 0
