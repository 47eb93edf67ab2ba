"""`longca recommend`: which kernel, or which method on many GPUs, to use, and which records say so."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from longca.cli._collector import collector_paused
from longca.cli._journal_notes import say_lacks
from longca.errors import BadInput

if TYPE_CHECKING:
    from longca.recommend.answer import Answer, Choice, Source

HELP = "say which kernel (or which split over many GPUs) to use, from measured records; exit code 4 if none answers"
FIELDS = (
    *("mask", "seqlen", "heads", "head_dim", "dtype", "pass_", "source", "distribution", "packing", "own_documents", "deterministic"),
    *("softcap", "sinks", "gpus", "cluster", "memory", "device"),
)
SHOWN = 4  # records named below an answer; --export has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mask", help="a name from `longca ls masks`, a file, or an expression such as 'causal & ~sliding_window(w=64)'")
    parser.add_argument("--seqlen", metavar="S", help="tokens, such as 128K; of all GPUs together")
    parser.add_argument("--heads", metavar="Q:KV", help="query and KV heads (default 64:8)")
    parser.add_argument("--head-dim", metavar="D", help="head size, or 192/128 where V has another one (default 128)")
    parser.add_argument("--dtype", help="bf16, fp16, fp32 or fp64 (default bf16)")
    parser.add_argument("--pass", dest="pass_", metavar="P", help="fwd, bwd or fwd+bwd (default)")
    parser.add_argument("--set", action="append", default=[], metavar="w=512", help="a parameter of the mask; repeatable")
    parser.add_argument("--source", metavar="NAME", help="records of block patterns that come from there (default random)")
    parser.add_argument("--distribution", metavar="NAME", help="records of documents drawn from this distribution")
    parser.add_argument("--packing", metavar="NAME", help="records of documents packed this way")
    parser.add_argument("--own-documents", action="store_true", default=None, help="records of documents that a workload or --lengths gave")
    parser.add_argument("--deterministic", action="store_true", default=None, help="records of deterministic backwards")
    parser.add_argument("--softcap", type=float, metavar="C", help="records of capped scores")
    parser.add_argument("--sinks", action="store_true", default=None, help="records of attention with sinks")
    parser.add_argument("--model", metavar="NAME", help="heads, head size, window, softcap and sinks of a well-known model")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs that share the sequence (default 1)")
    parser.add_argument("--cluster", metavar="NAME", help="records simulated for this cluster, instead of measured ones")
    parser.add_argument("--memory", metavar="SIZE", help="the memory of a GPU with its unit, such as 80GiB; inputs count too")
    parser.add_argument("--device", metavar="NAME", help="words of the device's name, or cpu or cuda, where records have several")
    parser.add_argument(
        "--results", nargs="+", metavar="DIR", help="your own journals, or folders of them, instead of those that come with LongCA"
    )
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE", help="a Python file with masks of your own; repeatable")
    parser.add_argument("--code", action="store_true", help="print only the lines of Python that use the answer")
    parser.add_argument("--export", metavar="FILE", help="write the answer as JSON; without --mask or --seqlen, all that the records hold")


def run(args: argparse.Namespace) -> int:
    for path in args.plugin:
        from longca.masks import load_plugin

        load_plugin(path)
    with collector_paused():
        return _export_table(args) if args.mask is None or args.seqlen is None else _answer(args)


def _answer(args: argparse.Namespace) -> int:
    from longca.recommend import usage
    from longca.recommend.answer import recommend
    from longca.recommend.best import NO_RECORD
    from longca.recommend.question import Question
    from longca.recommend.shipped import load

    question = Question.parse(**_typed(args))
    say_lacks(args.results or [])
    answer = recommend(question, load(args.results))
    if args.export:
        _write(args.export, [answer])
    if answer.best is not None and args.code:
        print(usage.code(answer, answer.best), end="")
    else:
        _show(answer)
    return 0 if answer.best is not None else NO_RECORD


def _typed(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of the question as typed; None for those that were not given."""
    from longca.text import parse_settings

    typed = {name: getattr(args, name) for name in FIELDS} | {"params": parse_settings(args.set)}
    if args.model is None:
        return typed
    from longca.bench.plan.workload import model

    shape = model(args.model)
    usual: dict[str, Any] = {"heads": shape.heads, "head_dim": shape.head_dim, "softcap": shape.softcap, "sinks": shape.sinks}
    given = {name: value for name, value in typed.items() if value is not None}
    return typed | usual | given | {"params": shape.mask_params.get(args.mask, {}) | typed["params"]}


def _export_table(args: argparse.Namespace) -> int:
    from longca.recommend.best import NO_RECORD, table
    from longca.recommend.question import parse_fields
    from longca.recommend.shipped import load

    if not args.export or args.code:
        raise BadInput("name a --mask and a --seqlen; or give --export FILE for all answers that the records hold.")
    say_lacks(args.results or [])
    answers = table(load(args.results), parse_fields(**_typed(args)))
    _write(args.export, answers)
    return 0 if answers else NO_RECORD


def _write(target: str, answers: list[Answer]) -> None:
    import json
    import sys
    from pathlib import Path

    from longca.recommend.best import exported
    from longca.text import plural

    try:
        Path(target).write_text(json.dumps(exported(answers), indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise BadInput(f"cannot write {target}: {error.strerror}; give another file.") from error
    print(f"wrote {plural(len(answers), 'answer')} to {target}", file=sys.stderr)


def _show(answer: Answer) -> None:
    from longca.cli._tables import show_table

    print(answer.question.describe(answer.unit) + (f", {answer.device}" if answer.device else ""))
    if answer.best is None:
        print("\nno kernel that was measured can be recommended." if answer.out else "\nno record answers this.")
    else:
        _show_best(answer, answer.best)
    if answer.out:
        print("\nout:")
        show_table(["", "", "why"], [[out.line, out.status, out.reason] for out in answer.out])
    if answer.unmeasured and (answer.best is not None or answer.out):
        print(f"\nof these there is no record here: {', '.join(answer.unmeasured)}")
    for sentence in answer.advice:
        print(sentence)


def _show_best(answer: Answer, best: Choice) -> None:
    from longca.cli._tables import show_table

    equals = [choice.name for choice in answer.choices if choice.as_good]
    others = f", or {'one of ' if len(equals) > 1 else ''}{', '.join(equals)}: as good {_alike()}" if equals else ""
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
    print("\nit rests on:" if len(best.sources) <= SHOWN else f"\nit rests on {len(best.sources)} records, among them:")
    for source in best.sources[:SHOWN]:
        print(f"  {_source(source)}")
    command = best.command(answer.seeds)
    if command:
        print(f"to measure it again: {command}")


def _source(source: Source) -> str:
    record, environment = source.record, source.environment
    facts = [environment.name, environment.date, f"commit {environment.commit[:10]}" if environment.commit else ""]
    return f"{source.file} {record.key} {record.pass_} seed {record.seed} ({', '.join(fact for fact in facts if fact)})"


def _alike() -> str:
    from longca.results.ranking import PRACTICAL

    return f"within the noise or {100 * PRACTICAL:g} %"


def _against(choice: Choice, best: Choice) -> str:
    if choice is best:
        return "best"
    return f"{choice.against_best:.2f}x" + (f", as good as it {_alike()}" if choice.as_good else "")


def _remarks(answer: Answer, best: Choice) -> list[str]:
    """Sentences on what the figures are of, and on doubts about them."""
    from longca.results.record import Pass

    remarks = []
    if best.simulated:
        remarks.append(f"these figures come from a simulation of the cluster {best.simulated}; nothing of it was measured.")
    if best.summed:
        summed = _names(answer, [choice for choice in answer.choices if choice.summed])
        remarks.append(f"fwd+bwd is the sum of a forward and a backward that were measured apart ({summed}).")
    if answer.masks > 1:
        seeds = ", ".join(map(str, answer.seeds))
        remarks.append(f"median and worst over the masks of {len(answer.seeds)} seeds ({seeds}), the same for all.")
    elif answer.question.has_documents:
        remarks.append(f"one seed only ({answer.seeds[0]}); other documents may give another answer.")
    training = [choice for choice in answer.choices if choice.sources[0].record.grad]
    if answer.question.pass_ is Pass.FWD and training:
        others = "" if len(training) == len(answer.choices) else f" of {_names(answer, training)}"
        remarks.append(f"the forward{others} is that of training: it keeps what a backward needs.")
    return remarks + _doubts(answer)


def _doubts(answer: Answer) -> list[str]:
    from longca.results.ranking import ENOUGH_SAMPLES, SETTLED_S

    doubts = []
    if noisy := [choice for choice in answer.choices if choice.noisy]:
        doubts.append(f"noisy when it was measured: {', '.join(choice.name for choice in noisy)}.")
    if (warmup_s := _shortest_warmup(answer.choices)) is not None and warmup_s < SETTLED_S:
        doubts.append(
            f"measured after a warm-up of {1e3 * warmup_s:g} ms: a GPU slows down under load, an H200 by up to 13 % within "
            f"{1e3 * SETTLED_S:g} ms, so close kernels may be in another order."
        )
    few = [choice for choice in answer.choices if choice.samples < ENOUGH_SAMPLES and not choice.simulated]
    if few:
        doubts.append(
            f"measured with fewer than {ENOUGH_SAMPLES} samples: {', '.join(f'{choice.name} ({choice.samples})' for choice in few)}."
        )
    if older := [choice for choice in answer.choices if choice.older]:
        doubts.append(f"measured with an older version of this kernel's code, or before versions were recorded: {_names(answer, older)}.")
    return doubts


def _names(answer: Answer, choices: Sequence[Choice]) -> str:
    return "all of them" if len(choices) == len(answer.choices) else ", ".join(choice.name for choice in choices)


def _shortest_warmup(choices: Sequence[Choice]) -> float | None:
    """The shortest warm-up on a GPU, in seconds."""
    sources = [source for choice in choices for source in choice.sources if not source.environment.on_cpu and not choice.simulated]
    return min((seconds for source in sources if (seconds := source.environment.warmup_s) is not None), default=None)
