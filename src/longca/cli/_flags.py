"""Flags that verbs share, each group written once, and the call of the Python function that they belong to."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

from longca.errors import BadInput
from longca.text import parse_axes, parse_settings

Parser = argparse._ActionsContainer
T = TypeVar("T")
HERE = ("8:2 on a CPU, 64:8 on a GPU", "64 on a CPU, 128 on a GPU", "fp32 on a CPU, bf16 on a GPU")  # usual heads, head sizes and dtypes


def call(function: Callable[..., T], args: argparse.Namespace, **others: Any) -> T:
    """Calls a function, or makes a request, with the flags that have the names of its parameters and were given, and these others. What
    was not given has the default of the parameter."""
    from inspect import signature

    given = {name: value for name, value in vars(args).items() if value is not None and name in signature(function).parameters}
    return function(**given | others)


def typed(args: argparse.Namespace, add_arguments: Callable[[argparse.ArgumentParser], None]) -> dict[str, str]:
    """What was typed: by the name of its value the flag, or the word that stands for an argument in the usage."""
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    given = [action for action in parser._actions if getattr(args, action.dest) != action.default]
    return {action.dest: str(max(action.option_strings, key=len, default=action.metavar or action.dest)) for action in given}


class Settings(argparse.Action):
    """Reads the values of a repeatable flag into a dictionary, all with one call of the function `const`."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, flag: str | None = None) -> None:
        refuse_empty(str(flag), value)
        typed = [*getattr(namespace, f"{self.dest} as typed", []), value]
        setattr(namespace, f"{self.dest} as typed", typed)
        setattr(namespace, self.dest, self.const(typed))


def refuse_empty(flag: str, text: str) -> None:
    """Refuses an empty value: an unset variable in a CI job must not silently mean the default."""
    if not text.strip(" ,\t\n"):
        raise BadInput(f"{flag} is empty; give a value, or leave it out.")


def add_documents(parser: Parser) -> None:
    """How long documents are."""
    parser.add_argument(
        "--lengths", dest="documents", metavar="FILE", help="document lengths instead of drawn ones: a JSON list, or numbers in a text file"
    )
    parser.add_argument("--distribution", metavar="NAME|FILE", help="the distribution of document lengths (`longca ls distributions`)")
    parser.add_argument("--packing", metavar="NAME", help="how documents fill the sequence: draw, mixed, chunked or short")


def add_extras(parser: Parser) -> None:
    """Properties of some models besides heads and head sizes."""
    parser.add_argument("--softcap", type=float, metavar="C", help="cap scores: s becomes C * tanh(s / C), such as 50 for Gemma 2")
    parser.add_argument("--sinks", action="store_true", default=None, help="attention sinks: a learned logit per query head, as in gpt-oss")
    parser.add_argument("--scale", type=float, metavar="X", help="the factor of the scores (default: 0, which means 1/sqrt(head size))")
    add_model(parser)


def add_model(parser: Parser) -> None:
    parser.add_argument("--model", metavar="NAME", help="heads, head size, window, softcap and sinks of a model (`longca ls models`)")


def add_shape(parser: Parser, heads: str, head_dims: str, dtypes: str) -> None:
    """Heads, head size and dtype, with these defaults."""
    parser.add_argument("--heads", metavar="Q:KV", help=f"query and KV heads; 8 is 8 of both (default {heads})")
    parser.add_argument("--head-dim", dest="head_dims", metavar="D", help=f"head size; 192/128 if V has its own (default {head_dims})")
    parser.add_argument("--dtype", dest="dtypes", metavar="T", help=f"bf16, fp16, fp32 or fp64 (default {dtypes})")


def add_local(parser: Parser, several: bool, plugins: str = "masks of your own") -> None:
    """What verbs that run kernels here take besides kernels, masks and lengths; `several`: parameters may have several values."""
    add_shape(parser, *HERE)
    add_extras(parser)
    add_seed(parser)
    add_set(parser, "a parameter of the masks that have it", several)
    add_documents(parser)
    add_plugins(parser, plugins)
    add_device(parser)
    parser.add_argument("--deadline", type=float, metavar="S", help="the time limit of each step in seconds (default 300)")


def add_question(parser: Parser, required: bool) -> None:
    """A mask and the shape of a call."""
    what = "a name from `longca ls masks`, a file, or an expression such as 'causal & ~sliding_window(w=64)'"
    parser.add_argument("--mask", required=required, metavar="NAME", help=what)
    parser.add_argument("--seqlen", required=required, metavar="S", help="tokens, such as 128K; on many GPUs, of all together")
    parser.add_argument("--heads", metavar="Q:KV", help="query and KV heads (default 64:8)")
    parser.add_argument("--head-dim", metavar="D", help="head size; 192/128 if V has its own (default 128)")
    parser.add_argument("--dtype", metavar="T", help="bf16, fp16, fp32 or fp64 (default bf16; explain and tune on a CPU: fp32)")
    add_set(parser, "a parameter of the mask")
    add_documents(parser)


def add_passes(parser: Parser) -> None:
    parser.add_argument("--passes", metavar="P,P", help="fwd, bwd, fwd+bwd (default fwd,bwd)")


def add_set(parser: Parser, what: str, several: bool = False) -> None:
    """Parameters of masks, each with one value or with several."""
    read = parse_axes if several else parse_settings
    parser.add_argument("--set", dest="params", action=Settings, const=read, default={}, metavar="NAME=V", help=f"{what}; repeatable")


def add_plugins(parser: Parser, what: str) -> None:
    parser.add_argument(
        "--plugin", dest="plugins", action="append", default=[], metavar="FILE", help=f"a Python file with {what}; repeatable"
    )


def add_seed(parser: Parser, what: str = "the seed of masks and data (default 0)") -> None:
    parser.add_argument("--seed", type=int, metavar="N", help=what)


def add_device(parser: Parser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is a GPU")


def add_json(parser: Parser, what: str = "print JSON") -> None:
    parser.add_argument("--json", action="store_true", help=what)


def add_sharing(parser: Parser) -> None:
    """How NCCL ranks share the GPUs of a machine."""
    parser.add_argument(
        "--ranks-per-gpu",
        type=int,
        metavar="N",
        help="N NCCL ranks share each GPU, each with its part of the multiprocessors (NCCL 2.30 or newer; docs/cluster.md)",
    )
    parser.add_argument(
        "--pretend-nodes", type=int, metavar="N", help="NCCL takes the ranks of this machine for N nodes with sockets between"
    )


def add_split(parser: Parser) -> None:
    """What `plan` and `simulate` are asked for."""
    parser.add_argument("--gpus", metavar="N,N", help="the number of GPUs that share the sequence (default 8)")
    parser.add_argument("--total-gpus", type=int, metavar="N", help="GPUs in all: tries every number that may share a sequence of --seqlen")
    parser.add_argument("--tp", type=int, metavar="N", help="GPUs that share the heads (default 1); --gpus share the sequence")
    parser.add_argument("--seqlen", dest="seqlens", metavar="S,S", help="tokens of all GPUs together, such as 512K")
    parser.add_argument("--per-gpu", metavar="S", help="tokens of each GPU instead, such as 8K (the default)")
    parser.add_argument("--masks", metavar="A,B", help="names, files or expressions, as in `longca run` (default causal)")
    parser.add_argument("--methods", metavar="A,B", help="context-parallel methods, or all (default)")
    parser.add_argument(
        "--kernels", metavar="NAME", help="the kernel that every rank runs (default: fa4); it affects memory, copies and what is refused"
    )
    add_shape(parser, "64:8", "128", "bf16")
    add_extras(parser)
    add_passes(parser)
    parser.add_argument("--grid", metavar="UxR[xW]", help="the grid of methods that have several (default: each method's own)")
    add_option(parser)
    add_seed(parser, "one seed of the documents")
    parser.add_argument("--seeds", metavar="N|A,B", help="packs of documents: how many, or which seeds (simulate: 8, plan: 1)")
    parser.add_argument(
        "--workload", metavar="FILE", help="your own packs: a JSON object per line with mask and documents, as for `longca run`"
    )
    add_set(parser, "a parameter of the masks that have it", several=True)
    parser.add_argument("--source", metavar="NAME", help="how block patterns are selected: random, nsa, moba or msa (docs/sparse.md)")
    add_documents(parser)
    add_plugins(parser, "methods or masks of your own")


def add_option(parser: Parser) -> None:
    parser.add_argument(
        "--option",
        dest="options",
        action=Settings,
        const=parse_axes,
        default={},
        metavar="NAME=V,V",
        help="an option of the methods that have it, such as stages=4 or windows=2,4 (`longca ls cp`); repeatable",
    )
