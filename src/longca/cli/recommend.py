"""`longca recommend`: recommends a kernel, or a method on many GPUs, from records."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from longca.cli._flags import add_extras, add_plugins, add_question, call
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
    parser.add_argument("--pass", dest="pass_", metavar="P", help="fwd, bwd or fwd+bwd (default)")
    parser.add_argument("--source", metavar="NAME", help="how block patterns were selected (default random)")
    parser.add_argument(
        "--calls-per-plan", type=int, metavar="N", help="include planning time, divided by N calls: 1 if every call has a new mask"
    )
    parser.add_argument("--exact", action="store_true", default=None, help="give no nearest answer if no record matches")
    parser.add_argument("--own-documents", action="store_true", default=None, help="only records of a workload")
    parser.add_argument("--deterministic", action="store_true", default=None, help="only records of deterministic backwards")
    add_extras(parser)
    parser.add_argument("--gpus", type=int, metavar="N", help="the number of GPUs that share the sequence (default 1)")
    parser.add_argument("--cluster", metavar="NAME|FILE", help="simulate the methods on this cluster")
    parser.add_argument("--memory", metavar="SIZE", help="the memory of a GPU, such as 80GiB, or 80GB in units of 1000; inputs count too")
    parser.add_argument(
        "--device", metavar="NAME", help="words of the device's name, or cpu or cuda; without it, each device with records has an answer"
    )
    parser.add_argument("--results", nargs="+", metavar="DIR", help="use your own journals, or folders of them, instead of LongCA's")
    add_plugins(parser, "masks of your own")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--details", action="store_true", help="also print the records, and why other kernels are excluded")
    output.add_argument("--code", action="store_true", help="print only Python code that uses the answer")
    output.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument(
        "--export", metavar="FILE", help="write the answer as JSON; without --mask or --seqlen, all that the records contain"
    )


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
    answers = every_answer(call(RecommendRequest, args))
    _write(args.export, answers)
    return 0 if answers else NO_RECORD


def _write(target: str, answers: list[Answer]) -> None:
    import msgspec

    from longca.api.files import write_text
    from longca.text import plural

    write_text(target, msgspec.json.format(msgspec.json.encode([answer.to_json() for answer in answers]), indent=1).decode() + "\n")
    print(f"wrote {plural(len(answers), 'answer')} to {target}", file=sys.stderr)
