"""`longca recommend`: recommends a kernel, or a method on many GPUs, from records."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import fields
from typing import TYPE_CHECKING

from longca.cli._flags import add_extras, add_plugins, add_question, call, flag, switch
from longca.cli._notes import load_only_masks, say_lacks
from longca.cli._tables import print_json, show_parts
from longca.errors import BadInput

if TYPE_CHECKING:
    from longca.recommend.answer import Answer

HELP = "recommend a kernel, or a method on many GPUs, from measured records; exit code 4 if there is no answer"
EXAMPLES = (
    "longca recommend --mask causal_document --seqlen 32K",
    "longca recommend --mask causal --seqlen 32K --model llama3-70b --code",
    "longca recommend --mask causal_document --seqlen 64K --lengths lengths.json",
    "longca recommend --mask causal --seqlen 512K --gpus 64 --results out/cp",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_question(parser, required=False)
    flag(parser, "--pass", "P", "fwd, bwd or fwd+bwd (default)", dest="pass_")
    flag(parser, "--source", "NAME", "how block patterns were selected (default random)")
    flag(parser, "--calls-per-plan", "N", "include planning time, divided by N calls: 1 if every call has a new mask", type=int)
    switch(parser, "--exact", "give no nearest answer if no record matches")
    switch(parser, "--own-documents", "only records of a workload")
    switch(parser, "--deterministic", "only records of deterministic backwards")
    add_extras(parser)
    flag(parser, "--gpus", "N", "the number of GPUs that share the sequence (default 1)", type=int)
    flag(parser, "--cluster", "NAME|FILE", "simulate the methods on this cluster")
    flag(parser, "--memory", "SIZE", "the memory of a GPU, such as 80GiB, or 80GB in units of 1000; inputs count too")
    flag(parser, "--device", "NAME", "words of the device's name, or cpu or cuda; without it, each device with records has an answer")
    flag(parser, "--results", "DIR", "use your own journals, or folders of them, instead of LongCA's", nargs="+")
    add_plugins(parser, "masks of your own")
    output = parser.add_mutually_exclusive_group()
    switch(output, "--details", "also print the records, and why other kernels are excluded")
    switch(output, "--code", "print only Python code that uses the answer")
    switch(output, "--json", "print the answer as JSON")
    flag(parser, "--export", "FILE", "write the answer as JSON; without --mask or --seqlen, all that the records contain")


def run(args: argparse.Namespace) -> int:
    load_only_masks(args.plugins, "recommend")
    say_lacks(args.results or [])
    return _export_table(args) if args.mask is None or args.seqlen is None else _answer(args)


def _answer(args: argparse.Namespace) -> int:
    from longca.api.recommend import recommend
    from longca.recommend.match import SeveralDevices
    from longca.recommend.rank import NO_RECORD

    try:
        recommendation = call(recommend, args)
    except SeveralDevices as several:
        if args.export or args.json or args.code:  # these hold one answer
            raise
        return _answer_each(several.devices, args)
    if args.export:
        _write(args.export, [recommendation.answer])
    if args.json:
        print_json(recommendation.answer.to_json())
    elif recommendation.ok and args.code:
        print(recommendation.code, end="")
    else:
        with redirect_stdout(sys.stderr if args.code else sys.stdout):  # no answer is no code: a file of code stays empty
            show_parts(recommendation.parts(args.details))
    return 0 if recommendation.ok else NO_RECORD


def _answer_each(devices: Sequence[str], args: argparse.Namespace) -> int:
    """Prints the answer of each device below its name."""
    codes = list[int]()
    for device in devices:
        show_parts([*([""] if codes else []), f"{device}:"])
        codes.append(_answer(argparse.Namespace(**vars(args) | {"device": device})))
    return min(codes)


def _export_table(args: argparse.Namespace) -> int:
    from longca.api.recommend import RecommendRequest, every_answer
    from longca.recommend.rank import NO_RECORD

    if not args.export or args.code or args.json:
        raise BadInput("give --mask and --seqlen; or --export FILE for all answers that the records contain.")
    asked = {field.name: getattr(args, field.name) for field in fields(RecommendRequest)}  # None: any
    answers = every_answer(RecommendRequest(**asked))
    _write(args.export, answers)
    return 0 if answers else NO_RECORD


def _write(target: str, answers: list[Answer]) -> None:
    import msgspec

    from longca.api.files import write_text
    from longca.text import plural

    write_text(target, msgspec.json.format(msgspec.json.encode([answer.to_json() for answer in answers]), indent=1).decode() + "\n")
    print(f"wrote {plural(len(answers), 'answer')} to {target}", file=sys.stderr)
