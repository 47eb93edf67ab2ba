"""Flags that verbs share, each group written once, and the call of the Python function that they belong to."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

from longca.errors import BadInput
from longca.text import parse_axes, parse_settings

Parser = argparse._ActionsContainer
T = TypeVar("T")
MASKS = "names, files, expressions such as 'causal & ~sliding_window(w=64)'; all: the paper's twelve; every: all static masks"
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


def flag(parser: Parser, name: str, metavar: str, help: str, **settings: Any) -> None:
    """Adds a flag with a value. It has no default: that of the function's parameter counts."""
    parser.add_argument(name, metavar=metavar, help=help, **settings)


def switch(parser: Parser, name: str, help: str) -> None:
    """Adds a flag without a value."""
    parser.add_argument(name, action="store_true", default=None, help=help)


def settings(parser: Parser, name: str, dest: str, read: Callable[[list[str]], Any], what: str) -> None:
    """Adds a repeatable flag for settings; `read` makes a dictionary of them all."""
    flag(parser, name, "NAME=V", f"{what}; repeatable", dest=dest, action=Settings, const=read, default={})


def refuse_empty(flag: str, text: str) -> None:
    """Refuses an empty value: an unset variable in a CI job must not silently mean the default."""
    if not text.strip(" ,\t\n"):
        raise BadInput(f"{flag} is empty; give a value, or leave it out.")


def add_documents(parser: Parser) -> None:
    """How long documents are."""
    flag(parser, "--lengths", "FILE", "document lengths instead of drawn ones: a JSON list, or numbers in a text file", dest="documents")
    flag(parser, "--distribution", "NAME|FILE", "the distribution of document lengths (`longca ls distributions`)")
    flag(parser, "--packing", "NAME", "how documents fill the sequence: draw, mixed, chunked or short")


def add_extras(parser: Parser) -> None:
    """Properties of some models besides heads and head sizes."""
    flag(parser, "--softcap", "C", "cap scores: s becomes C * tanh(s / C), such as 50 for Gemma 2", type=float)
    switch(parser, "--sinks", "attention sinks: a learned logit per query head, as in gpt-oss")
    flag(parser, "--scale", "X", "the factor of the scores (default: 0, which means 1/sqrt(head size))", type=float)
    add_model(parser)


def add_model(parser: Parser) -> None:
    flag(parser, "--model", "NAME", "heads, head size, window, softcap and sinks of a model (`longca ls models`)")


def add_shape(parser: Parser, heads: str, head_dims: str, dtypes: str) -> None:
    """Heads, head size and dtype, with these defaults."""
    flag(parser, "--heads", "Q:KV", f"query and KV heads; 8 is 8 of both (default {heads})")
    flag(parser, "--head-dim", "D", f"head size; 192/128 if V has its own (default {head_dims})", dest="head_dims")
    flag(parser, "--dtype", "T", f"bf16, fp16, fp32 or fp64 (default {dtypes})", dest="dtypes")


def add_local(parser: Parser, several: bool, plugins: str = "masks of your own") -> None:
    """What verbs that run kernels here take besides kernels, masks and lengths; `several`: parameters may have several values."""
    add_shape(parser, *HERE)
    add_extras(parser)
    add_seed(parser)
    add_set(parser, "a parameter of the masks that have it", several)
    add_documents(parser)
    add_plugins(parser, plugins)
    add_device(parser)
    flag(parser, "--deadline", "S", "the time limit of each step in seconds (default 300)", type=float)


def add_question(parser: Parser, required: bool) -> None:
    """A mask and the shape of a call."""
    what = "a name from `longca ls masks`, a file, or an expression such as 'causal & ~sliding_window(w=64)'"
    flag(parser, "--mask", "NAME", what, required=required)
    flag(parser, "--seqlen", "S", "tokens, such as 128K; on many GPUs, of all together", required=required)
    flag(parser, "--heads", "Q:KV", "query and KV heads (default 64:8)")
    flag(parser, "--head-dim", "D", "head size; 192/128 if V has its own (default 128)")
    flag(parser, "--dtype", "T", "bf16, fp16, fp32 or fp64 (default bf16; explain and tune on a CPU: fp32)")
    add_set(parser, "a parameter of the mask")
    add_documents(parser)


def add_passes(parser: Parser) -> None:
    flag(parser, "--passes", "P,P", "fwd, bwd, fwd+bwd (default fwd,bwd)")


def add_set(parser: Parser, what: str, several: bool = False) -> None:
    """Parameters of masks, each with one value or with several."""
    settings(parser, "--set", "params", parse_axes if several else parse_settings, what)


def add_plugins(parser: Parser, what: str) -> None:
    flag(parser, "--plugin", "FILE", f"a Python file with {what}; repeatable", dest="plugins", action="append", default=[])


def add_seed(parser: Parser, what: str = "the seed of masks and data (default 0)") -> None:
    flag(parser, "--seed", "N", what, type=int)


def add_device(parser: Parser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is a GPU")


def add_json(parser: Parser, what: str = "print JSON") -> None:
    switch(parser, "--json", what)


def add_sharing(parser: Parser) -> None:
    """How NCCL ranks share the GPUs of a machine."""
    flag(parser, "--ranks-per-gpu", "N", "N NCCL ranks share each GPU and its multiprocessors (NCCL 2.30+; docs/cluster.md)", type=int)
    flag(parser, "--pretend-nodes", "N", "NCCL takes the ranks of this machine for N nodes with sockets between", type=int)


def add_split(parser: Parser) -> None:
    """What `plan` and `simulate` are asked for."""
    flag(parser, "--gpus", "N,N", "the number of GPUs that share the sequence (default 8)")
    flag(parser, "--total-gpus", "N", "GPUs in all: tries every number that may share a sequence of --seqlen", type=int)
    flag(parser, "--tp", "N", "GPUs that share the heads (default 1); --gpus share the sequence", type=int)
    flag(parser, "--seqlen", "S,S", "tokens of all GPUs together, such as 512K", dest="seqlens")
    flag(parser, "--per-gpu", "S", "tokens of each GPU instead, such as 8K (the default)")
    flag(parser, "--masks", "A,B", "names, files or expressions, as in `longca run` (default causal)")
    flag(parser, "--methods", "A,B", "context-parallel methods, or all (default)")
    flag(parser, "--kernels", "NAME", "the kernel that every rank runs (default: fa4); it affects memory, copies and what is refused")
    add_shape(parser, "64:8", "128", "bf16")
    add_extras(parser)
    add_passes(parser)
    flag(parser, "--grid", "UxR[xW]", "the grid of methods that have several (default: each method's own)")
    add_option(parser)
    add_seed(parser, "one seed of the documents")
    flag(parser, "--seeds", "N|A,B", "packs of documents: how many, or which seeds (simulate: 8, plan: 1)")
    flag(parser, "--workload", "FILE", "your own packs: a JSON object per line with mask and documents, as for `longca run`")
    add_set(parser, "a parameter of the masks that have it", several=True)
    flag(parser, "--source", "NAME", "how block patterns are selected: random, nsa, moba or msa (docs/sparse.md)")
    add_documents(parser)
    add_plugins(parser, "methods or masks of your own")


def add_option(parser: Parser) -> None:
    what = "an option of the methods that have it, such as stages=4 or windows=2,4 (`longca ls cp`)"
    settings(parser, "--option", "options", parse_axes, what)
