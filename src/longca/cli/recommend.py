"""`longca recommend`: which kernel, or which method on many GPUs, to use, and which records say so."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from longca.cli._torn import say_torn
from longca.errors import BadInput
from longca.report import ENOUGH, PRACTICAL, SETTLED_S

if TYPE_CHECKING:
    from longca.report.evidence import Evidence
    from longca.report.recommend import Answer, Choice

HELP = "say which kernel (or which split over many GPUs) to use, from measured records; exit code 4 if none answers"
TYPED = (
    *("mask", "seqlen", "heads", "head_dim", "dtype", "which", "source", "distribution", "packing", "own_documents", "deterministic"),
    *("gpus", "cluster", "memory", "device"),
)
SHOWN = 4  # records named below an answer; --export has all
ALIKE = f"within the noise or {100 * PRACTICAL:g} %"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mask", help="the mask; `longca ls masks` lists them")
    parser.add_argument("--seqlen", metavar="S", help="tokens, such as 128K; of all GPUs together")
    parser.add_argument("--heads", metavar="Q:KV", help="query and KV heads (default 64:8)")
    parser.add_argument("--head-dim", metavar="D", help="head size, or 192/128 where V has another one (default 128)")
    parser.add_argument("--dtype", help="bf16, fp16, fp32 or fp64 (default bf16)")
    parser.add_argument("--pass", dest="which", metavar="P", help="fwd, bwd or fwd+bwd (default)")
    parser.add_argument("--set", action="append", default=[], metavar="w=512", help="a parameter of the mask; repeatable")
    parser.add_argument("--source", metavar="NAME", help="records of block patterns that come from there (default random)")
    parser.add_argument("--distribution", metavar="NAME", help="records of documents drawn from this distribution")
    parser.add_argument("--packing", metavar="NAME", help="records of documents packed this way")
    parser.add_argument("--own-documents", action="store_true", default=None, help="records of a workload's own documents")
    parser.add_argument("--deterministic", action="store_true", default=None, help="records of deterministic backwards")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs that share the sequence (default 1)")
    parser.add_argument("--cluster", metavar="NAME", help="what was simulated for this cluster, instead of what was measured")
    parser.add_argument("--memory", metavar="SIZE", help="what a GPU has, inputs included, with its unit, such as 80GiB")
    parser.add_argument("--device", metavar="NAME", help="words of the device's name, or cpu or cuda, where records have several")
    parser.add_argument(
        "--results", nargs="+", metavar="DIR", help="your own journals, or folders of them, instead of those that come with LongCA"
    )
    parser.add_argument("--code", action="store_true", help="print only the lines of Python that use the answer")
    parser.add_argument("--export", metavar="FILE", help="write the answer as JSON; without --mask or --seqlen, all that the records hold")


def run(args: argparse.Namespace) -> int:
    from longca.report import usage
    from longca.report.best import NO_RECORD, ask
    from longca.report.evidence import load
    from longca.report.recommend import recommend

    if args.mask is None or args.seqlen is None:
        return _table(args)
    question = ask(**_typed(args))
    say_torn(args.results or [])
    answer = recommend(question, load(args.results))
    if args.export:
        _write(args.export, [answer])
    if answer.best is not None and args.code:
        print(usage.code(answer, answer.best), end="")
    else:
        _show(answer)
    return 0 if answer.best is not None else NO_RECORD


def _typed(args: argparse.Namespace) -> dict[str, Any]:
    """What the question is made of; None for what was not given."""
    from longca.text import parse_settings

    return {name: getattr(args, name) for name in TYPED} | {"params": parse_settings(args.set)}


def _table(args: argparse.Namespace) -> int:
    from longca.report.best import NO_RECORD, fields, table
    from longca.report.evidence import load

    if not args.export or args.code:
        raise BadInput("name a --mask and a --seqlen; or give --export FILE for all answers that the records hold.")
    say_torn(args.results or [])
    answers = table(load(args.results), fields(**_typed(args)))
    _write(args.export, answers)
    return 0 if answers else NO_RECORD


def _write(target: str, answers: list[Answer]) -> None:
    import json
    import sys
    from pathlib import Path

    from longca.report.best import exported
    from longca.text import plural

    try:
        Path(target).write_text(json.dumps(exported(answers), indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise BadInput(f"cannot write {target}: {error.strerror}; give another file.") from error
    print(f"wrote {plural(len(answers), 'answer')} to {target}", file=sys.stderr)


def _show(answer: Answer) -> None:
    from longca.cli._tables import show_table

    print(answer.question.words(answer.unit) + (f", {answer.device}" if answer.device else ""))
    if answer.best is None:
        none = "no kernel that was measured can be recommended." if answer.out else "no record answers this."
        print(f"\n{none}")
    else:
        _show_best(answer, answer.best)
    if answer.out:
        print("\nout:")
        show_table(["", "", "why"], [[one.name, one.status, one.reason] for one in answer.out])
    if answer.unmeasured and (answer.best is not None or answer.out):
        print(f"\nof these there is no record here: {', '.join(answer.unmeasured)}")
    for sentence in answer.advice:
        print(sentence)


def _show_best(answer: Answer, best: Choice) -> None:
    from longca.cli._tables import show_table

    equals = [choice.name for choice in answer.choices if choice.as_good]
    others = f", or {'one of ' if len(equals) > 1 else ''}{', '.join(equals)}: as good {ALIKE}" if equals else ""
    print(f"\nuse {best.name}{' (SIMULATED, not measured)' if best.simulated else ''}{others}\n")
    several = answer.masks > 1
    columns = ["", "TFLOP/s" + (f"/{answer.unit}" if best.method else ""), *(["worst"] if several else []), "ms", "GiB", "against the best"]
    rows = []
    for choice in answer.choices:
        memory = "not counted" if choice.memory_gib is None else f"{choice.memory_gib:.3g}"
        worst = [f"{choice.worst_tflops:.3g}"] if several else []
        rows.append([choice.name, f"{choice.tflops:.3g}", *worst, f"{choice.ms:.4g}", memory, _against(choice, best)])
    show_table(columns, rows)
    print()
    for remark in _remarks(answer, best):
        print(remark)
    print("\nit stands on:" if len(best.sources) <= SHOWN else f"\nit stands on {len(best.sources)} records, among them:")
    for source in best.sources[:SHOWN]:
        print(f"  {_source(source)}")
    again = best.again(answer.seeds)
    if again:
        print(f"to measure it again: {again}")


def _source(source: Evidence) -> str:
    commit = source.facts.get("commit")
    facts = [source.device, source.facts.get("date"), f"commit {commit[:10]}" if commit else ""]
    record = source.record
    return f"{source.file} {record['key']} {record['pass']} seed {record['seed']} ({', '.join(fact for fact in facts if fact)})"


def _against(choice: Choice, best: Choice) -> str:
    if choice is best:
        return "best"
    return f"{choice.against_best:.2f}x" + (f", as good as it {ALIKE}" if choice.as_good else "")


def _remarks(answer: Answer, best: Choice) -> list[str]:
    question, said = answer.question, []
    if best.simulated:
        said.append(f"these figures come from a simulation of the cluster {best.simulated}; nothing of it was measured.")
    if best.summed:
        apart = [choice.name for choice in answer.choices if choice.summed]
        which = "all of them" if len(apart) == len(answer.choices) else ", ".join(apart)
        said.append(f"fwd+bwd is the sum of a forward and a backward that were measured apart ({which}).")
    if answer.masks > 1:
        said.append(
            f"median and worst over the masks of {len(answer.seeds)} seeds ({', '.join(map(str, answer.seeds))}), the same for all."
        )
    elif question.has_documents:
        said.append(f"one seed only ({answer.seeds[0]}); other documents may give another answer.")
    training = [choice.name for choice in answer.choices if choice.sources[0].record.get("grad")]
    if question.which == "fwd" and training:
        others = "" if len(training) == len(answer.choices) else f" of {', '.join(training)}"
        said.append(f"the forward{others} is that of training: it keeps what a backward needs.")
    if any(choice.noisy for choice in answer.choices):
        noisy = [choice.name for choice in answer.choices if choice.noisy]
        said.append(f"noisy when it was measured: {', '.join(noisy)}.")
    if short := _short_warmup(answer.choices):
        said.append(
            f"measured behind a warm-up of {1e3 * short:g} ms: a GPU slows down under load, an H200 by up to 13 % within "
            f"{1e3 * SETTLED_S:g} ms, so what is close may be in another order."
        )
    few = [f"{choice.name} ({choice.samples})" for choice in answer.choices if choice.samples < ENOUGH and not choice.simulated]
    if few:
        said.append(f"measured with fewer than {ENOUGH} samples: {', '.join(few)}.")
    return said


def _short_warmup(choices: Sequence[Choice]) -> float | None:
    """Seconds, where they were too few for a GPU to be as slow as it stays."""
    sources = [source for choice in choices for source in choice.sources if not source.on_cpu and not choice.simulated]
    warmups = [source.facts.get("clock", {}).get("warmup_s") for source in sources]
    return min((warmup for warmup in warmups if warmup is not None and warmup < SETTLED_S), default=None)
