"""`longca probe`: does a model honour its mask, on one rank and on several?"""

from __future__ import annotations

import argparse

from longca.cli._flags import add_documents, add_json, add_seed, add_set, flag

HELP = "find out whether a model honours its mask, on one rank and on several"
EXAMPLES = (
    "longca probe train.py:make_model --mask causal_document --layers 2 --ranks 4 --png probe.png",
    "longca probe train.py:make_model --mask causal_document --ranks 2 --device cuda --ranks-per-gpu 2",
    "longca probe hf:qwen3 --mask causal_document            # a tiny model of transformers with a packed batch",
    "longca probe hf:qwen3:eager --mask causal_document      # with another attn_implementation",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model = "FILE.py:function, which makes a function of ids; or hf:TYPE[:ATTENTION], a tiny model of transformers"
    parser.add_argument("model", help=model)
    what = "the mask to honour: a name, a file or an expression (default causal); several: one per layer"
    parser.add_argument("--mask", "--layer-mask", action="append", metavar="NAME", help=what)
    flag(parser, "--layers", "N", "how often the model applies the mask (default 1)", type=int)
    flag(parser, "--seqlen", "S", "tokens (default 192)")
    flag(parser, "--ranks", "N", "probe on one rank and on N ranks (default 1)", type=int)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="cpu: gloo ranks (default); cuda: NCCL ranks")
    flag(parser, "--ranks-per-gpu", "N", "let N NCCL ranks share each GPU (default 1)", type=int)
    flag(parser, "--vocab", "N", "ids are smaller than this (default 64)", type=int)
    flag(parser, "--probes", "N", "how many tokens to change (default 48)", type=int)
    flag(parser, "--png", "FILE", "draw what is allowed, what is seen, and the difference")
    add_seed(parser, "the seed of ids, lengths and parameters (default 0)")
    add_set(parser, "a parameter of the masks that have it, such as w=32")
    add_documents(parser)
    add_json(parser)
