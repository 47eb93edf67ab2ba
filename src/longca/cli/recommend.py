"""`longca recommend`: recommends a kernel, or a method on many GPUs, from records."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from longca.cli._flags import add_documents
from longca.cli._journal_notes import say_lacks
from longca.cli._mask_plugins import load_only_masks
from longca.cli._tables import show_parts
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
    parser.add_argument("--mask", help="a name from `longca ls masks`, a file, or an expression such as 'causal & ~sliding_window(w=64)'")
    parser.add_argument("--seqlen", metavar="S", help="tokens of all GPUs together, such as 128K")
    parser.add_argument("--heads", metavar="Q:KV", help="query and KV heads (default 64:8)")
    parser.add_argument("--head-dim", metavar="D", help="head size; 192/128 if V has its own (default 128)")
    parser.add_argument("--dtype", help="bf16, fp16, fp32 or fp64 (default bf16)")
    parser.add_argument("--pass", dest="pass_", metavar="P", help="fwd, bwd or fwd+bwd (default)")
    parser.add_argument("--set", action="append", default=[], metavar="w=512", help="a parameter of the mask; repeatable")
    parser.add_argument("--source", metavar="NAME", help="how block patterns were selected (default random)")
    add_documents(parser)
    parser.add_argument(
        "--calls-per-plan", type=int, metavar="N", help="include planning time, divided by N calls: 1 if every call has a new mask"
    )
    parser.add_argument("--exact", action="store_true", default=None, help="give no nearest answer if no record matches")
    parser.add_argument("--own-documents", action="store_true", default=None, help="only records of a workload")
    parser.add_argument("--deterministic", action="store_true", default=None, help="only records of deterministic backwards")
    parser.add_argument(
        "--softcap", type=float, metavar="C", help="records with this softcap; if there are none, the nearest answer is without it"
    )
    parser.add_argument(
        "--sinks",
        action="store_true",
        default=None,
        help="records with attention sinks; if there are none, the nearest answer is without them",
    )
    parser.add_argument(
        "--scale", type=float, metavar="X", help="the factor of the scores in the printed code; records of any scale are used"
    )
    parser.add_argument("--model", metavar="NAME", help="heads, head size, window, softcap and sinks of a model (`longca ls models`)")
    parser.add_argument("--gpus", type=int, metavar="N", help="the number of GPUs that share the sequence (default 1)")
    parser.add_argument("--cluster", metavar="NAME|FILE", help="use records simulated for this cluster, instead of measured ones")
    parser.add_argument("--memory", metavar="SIZE", help="the memory of a GPU, such as 80GiB, or 80GB in units of 1000; inputs count too")
    parser.add_argument(
        "--device", metavar="NAME", help="words of the device's name, or cpu or cuda; without it, each device with records has an answer"
    )
    parser.add_argument("--results", nargs="+", metavar="DIR", help="use your own journals, or folders of them, instead of LongCA's")
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE", help="a Python file with masks of your own; repeatable")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--code", action="store_true", help="print only Python code that uses the answer")
    output.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument(
        "--export", metavar="FILE", help="write the answer as JSON; without --mask or --seqlen, all that the records contain"
    )


def run(args: argparse.Namespace) -> int:
    load_only_masks(args.plugin, "recommend")
    say_lacks(args.results or [])
    return _export_table(args) if args.mask is None or args.seqlen is None else _answer(args)


def _answer(args: argparse.Namespace) -> int:
    from longca.api.recommend import recommend
    from longca.recommend.match import SeveralDevices
    from longca.recommend.table import NO_RECORD, exported

    asked = _typed(args)
    try:
        recommendation = recommend(**asked)
    except SeveralDevices as several:
        if args.export or args.json or args.code:  # these hold one answer
            raise
        return _answer_each(several.devices, asked)
    if args.export:
        _write(args.export, [recommendation.answer])
    if args.json:
        (entry,) = exported([recommendation.answer])
        print(_encoded(entry))
    elif recommendation.ok and args.code:
        print(recommendation.code, end="")
    else:
        with redirect_stdout(sys.stderr if args.code else sys.stdout):  # no answer is no code: a file of code stays empty
            show_parts(recommendation.parts())
    return 0 if recommendation.ok else NO_RECORD


def _answer_each(devices: Sequence[str], asked: Mapping[str, Any]) -> int:
    """Prints the answer of each device below its name."""
    from longca.api.recommend import recommend
    from longca.recommend.table import NO_RECORD

    has_answer = False
    for number, device in enumerate(devices):
        recommendation = recommend(**{**asked, "device": device})
        has_answer |= recommendation.ok
        show_parts([*([""] if number else []), f"{device}:", *recommendation.parts()])
    return 0 if has_answer else NO_RECORD


def _typed(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the arguments of `longca.recommend` that were given, as typed."""
    from inspect import signature

    from longca.api.recommend import recommend
    from longca.text import parse_settings

    given = {name: getattr(args, name, None) for name in signature(recommend).parameters}
    return {name: value for name, value in given.items() if value is not None} | {"params": parse_settings(args.set)}


def _export_table(args: argparse.Namespace) -> int:
    from longca.api.recommend import every_answer
    from longca.recommend.table import NO_RECORD

    if not args.export or args.code or args.json:
        raise BadInput("give --mask and --seqlen; or --export FILE for all answers that the records contain.")
    answers = every_answer(**_typed(args))
    _write(args.export, answers)
    return 0 if answers else NO_RECORD


def _encoded(value: object) -> str:
    import json

    return json.dumps(value, indent=1, allow_nan=False)


def _write(target: str, answers: list[Answer]) -> None:
    from longca.api.files import write_text
    from longca.recommend.table import exported
    from longca.text import plural

    write_text(target, _encoded(exported(answers)) + "\n")
    print(f"wrote {plural(len(answers), 'answer')} to {target}", file=sys.stderr)
