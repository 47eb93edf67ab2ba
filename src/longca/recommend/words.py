"""An answer in sentences and tables. Facts are in `answer`; nothing reads these texts."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec.structs import asdict

from longca.errors import LongcaError
from longca.kernels import registry
from longca.lengths import cut_note
from longca.recommend.answer import Answer, Choice, ModelNote, Pair
from longca.recommend.commands import FOLDER, run_command, simulate_command
from longca.recommend.match import OTHER_TERMS, Near
from longca.recommend.question import DRAWN, Question
from longca.recommend.shipped import portable
from longca.results.grouping import grouped
from longca.results.ratio import ENOUGH_SAMPLES, REPEATS
from longca.results.shown import Part
from longca.results.tables import Table, format_figure, speed_unit
from longca.results.words import excluded
from longca.text import format_dims, format_extras, format_heads, format_shape, format_size, format_tokens, plural

AGAIN = f"then ask again with --results {FOLDER}"
SHOWN = 3  # lines on the closest records
FLAGS = {"heads_q": "heads", "heads_kv": "heads", "head_dim_v": "head_dim", "ranks": "gpus", "params": "set", "documents": "lengths"}


def parts(answer: Answer, details: bool = False) -> list[Part]:
    """The answer, the table, a line of caveats and what to type; with `details` also the records, and what is excluded. Without an answer,
    why there is none and what to type."""
    best, excluded = answer.best, _excluded(answer)
    if best is None:
        return [*_no_answer(answer), *_model(answer.question, answer.model), *_commands(answer), *excluded]
    caveats, shown = " ".join(_caveats(answer, best)), [answer.ways[0], best]
    lines: list[Part] = [*_heading(answer, best), "", _table(answer, best), "", *([caveats] if caveats else [])]
    lines += _model(answer.question, answer.model)
    if not details:
        return [*lines, *_commands(answer), *_installing(shown)]
    lines += [_records(answer), *_commands(answer), *_installing([*shown, *(way for way in answer.choices if way.as_good)])]
    return [*lines, *excluded, *(["", f"no record of: {', '.join(answer.unmeasured)}"] if answer.unmeasured else [])]


def describe(question: Question, unit: str = "GPU") -> str:
    """The question in one line; `unit` is what shares a sequence."""
    problem = question.problem
    words = f"{problem.mask} of {problem.source}" if problem.source != "random" else problem.mask
    params = [f"{name} drawn" if value == DRAWN else f"{name}={value}" for name, value in question.all_params.items()]
    own = [f"{plural(len(problem.documents), 'document')} of your own"] if problem.documents else []
    own += ["documents of a workload"] if question.own_documents else []
    own += [f"{name} {value}" for name in ("distribution", "packing") if (value := getattr(problem, name))]
    shape = [format_shape(asdict(problem)), *format_extras(asdict(problem)), problem.dtype, problem.pass_.value]
    shape += ["deterministic"] if problem.deterministic else []
    split = [f"{problem.ranks} {unit}s"] if problem.ranks > 1 else []
    split += [f"within {question.memory_gib:.3g} GiB"] if question.memory_gib is not None else []
    return ", ".join([words, *params, *own, format_tokens(problem.seqlen), *shape, *split])


def _unit(answer: Answer) -> str:
    return "rank" if answer.on_cpu else "GPU"


def _asked(answer: Answer) -> str:
    return describe(answer.question, _unit(answer)) + (f", {answer.device}" if answer.device else "")


def _heading(answer: Answer, best: Choice) -> list[str]:
    """The answer in one line; then what it is for, and what else may be used, a line each."""
    pair, equals = answer.pair, [choice.name for choice in answer.choices if choice.as_good]
    first = f"{pair.kernel}, the default of longca.attention ({pair.forward} forward + {pair.backward} backward)" if pair else best.name
    what = "means" if best.ms_range else "means and ranges"
    over = f"; {what} over {answer.masks} masks (seeds {', '.join(map(str, answer.seeds))})" if answer.masks > 1 else ""
    lines = [f"use {first}: {_speed_and_time(answer, pair or best)}{_mark(answer, best)}.", f"for {_asked(answer)}{over}."]
    lines += [f"as a single kernel, use {best.name}: {_speed_and_time(answer, best)}."] if pair else []
    alike = f"within {'' if answer.nearest else 'the noise and '}{100 * REPEATS:g} %"  # what is computed has no noise
    return [*lines, f"as fast as {best.name}, {alike}: {', '.join(equals)}."] if equals else lines


def _mark(answer: Answer, best: Choice) -> str:
    """What sets values apart that were not measured."""
    if answer.nearest is None:
        return ""
    return "; NEAREST ANSWER, scaled from other measurements" + (", error unknown" if answer.nearest.spread is None else "")


def _speed_and_time(answer: Answer, choice: Choice) -> str:
    unit = speed_unit(way.tflops for way in answer.ways)
    about = "about " if answer.nearest else ""
    speed = f"{about}{unit.text(choice.tflops)} {unit.name}{f' per {_unit(answer)}' if choice.method else ''}"
    ends = choice.ms_range or (choice.ms_over_masks if answer.masks > 1 else None)
    return f"{speed}, {_ms(choice.ms)} ms" + (f" ({'likely ' if choice.ms_range else ''}{_between(ends)})" if ends else "")


def _ms(value: float) -> str:
    """Milliseconds in four digits, from 1000 on without a fraction: 512K tokens take tens of seconds."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _between(ends: tuple[float, float]) -> str:
    return " to ".join(map(format_figure, ends))


def _table(answer: Answer, best: Choice) -> Table:
    choices = answer.ways
    unit = speed_unit(choice.tflops for choice in choices)
    columns = {"": [f"{choice.kernel}: {choice.name}" if choice is answer.pair else choice.name for choice in choices]}
    columns[unit.name + (f"/{_unit(answer)}" if best.method else "")] = [unit.text(choice.tflops, choice.noisy) for choice in choices]
    columns["ms"] = [_ms(choice.ms) for choice in choices]
    if answer.masks > 1:
        columns["range"] = [_between(choice.ms_over_masks) for choice in choices]
    if best.ms_range:
        columns["likely"] = [_between(choice.ms_range) if choice.ms_range else "" for choice in choices]
    columns["GiB"] = ["not counted" if choice.memory_gib is None else f"{choice.memory_gib:.3g}" for choice in choices]
    if any(choice.plan_ms for choice in choices):
        columns["plan ms"] = ["" if choice.plan_ms is None else f"{choice.plan_ms:.3g}" for choice in choices]
    if any(choice.joules for choice in choices):
        columns["J"] = ["" if choice.joules is None else format_figure(choice.joules) for choice in choices]
    columns[f"against {best.name}"] = [f"{choice.against_best:.2f}x{', equal' if choice.as_good else ''}" for choice in choices]
    return Table("", list(columns), [list(row) for row in zip(*columns.values(), strict=True)])


def _caveats(answer: Answer, best: Choice) -> list[str]:
    """What to know about the times, the most important first."""
    question, ways = answer.question, answer.ways
    cut = [f"{note}." for note in cut_note(question.problem.documents or (), [question.problem.seqlen])]
    caveats = [*cut, *_scaled(answer)]
    if question.calls_per_plan is not None:
        caveats.append(f"times include planning, divided by {plural(question.calls_per_plan, 'call')}.")
    elif question.has_documents and ways[0].plan_ms:
        caveats.append("times do not include the planning that new documents need (--calls-per-plan).")
    if question.has_documents and answer.masks == 1 and not question.problem.documents:
        caveats.append(f"documents of one seed ({answer.seeds[0]}); --lengths asks for your own.")
    few = [way for way in ways if way.samples < ENOUGH_SAMPLES]
    doubts = {
        "noisy (~)": [way for way in ways if way.noisy],
        f"fewer than {ENOUGH_SAMPLES} samples": few,
        "older or unknown code of the kernel": [way for way in ways if way.older],
    }
    named = {doubt: "all" if len(own) == len(ways) else ", ".join(way.name for way in own) for doubt, own in doubts.items() if own}
    return caveats + [f"{doubt}: {names}." for doubt, names in named.items()]


def _scaled(answer: Answer) -> list[str]:
    """What a nearest answer was scaled from, and how far off it may be."""
    near = answer.nearest
    if near is None:
        return []
    other = near.differences
    what = [format_shape(asdict(near.used[0].record.problem)), *(f"{name}={value}" for name, value in other.get("params", {}).items())]
    what += [f"{name} {other[name] or 'as usual'}" for name in ("distribution", "packing") if name in other]
    what += [f"without {name}" for name in sorted(OTHER_TERMS & other.keys()) if not other[name]]
    lengths = " and ".join(map(format_size, near.seqlens))
    scaled = f"scaled from {', '.join(what)} at {lengths} tokens"
    if near.spread is not None:
        return [f"{scaled}; about 9 of 10 such times are within ±{100 * near.spread:.0f} %."]
    names = {"head_dim": "head size", "head_dim_v": "head size", "params": "mask parameter", "softcap": "softcap", "sinks": "sinks"}
    names |= {"distribution": "distribution of documents", "packing": "packing"}
    lacking = dict.fromkeys(name for field, name in names.items() if field in other)
    why = f"the records differ in {' and '.join(lacking)}" if lacking else "the call is much longer, or smaller, than the measured ones"
    return [f"{scaled}; the error is unknown: {why}."]


def _model(question: Question, note: ModelNote | None) -> list[str]:
    if note is None:
        return []
    lines = [f"one plan serves {plural(note.layers_per_plan, 'layer')} of {note.name}."] if note.layers_per_plan else []
    if note.window and note.windowed_mask is None:
        lines.append(f"w={note.window - 1} is the window of {note.window} of {note.name}: models count the token itself, w does not.")
    elif note.window:
        layers = f"{'all' if note.local_layers == note.layers else note.local_layers} of its {note.layers} layers"
        lacking = f"{note.name} has a window of {note.window} keys in {layers}, which {question.problem.mask} does not have"
        lines.append(f"{lacking}; ask for such a layer with --mask {shlex.quote(note.windowed_mask or '')}.")
    return lines


def _records(answer: Answer) -> str:
    """The files, the machines and the days of the records of the first way."""
    sources = answer.ways[0].sources
    files = dict.fromkeys(portable(source.file) for source in sources)
    names = sorted({source.environment.name for source in sources})
    days = sorted({date for source in sources if (date := source.environment.date)})
    return f"records: {len(sources)} in {', '.join(files)} ({', '.join([*names, *days])})"


def _commands(answer: Answer) -> list[str]:
    """What to type: to measure it, and to ask again."""
    lines, question = list[str](), answer.question
    if answer.ways and not answer.nearest and (again := answer.ways[0].command(answer.seeds)):
        lines.append(f"to measure it again: {again}")
    if command := answer.measure:
        many = f" on {question.problem.ranks} GPUs (under torchrun or srun on several nodes)" if question.problem.ranks > 1 else ""
        lines += [f"to measure it{many}: {command}", AGAIN]
    if not answer.ways and not answer.out and (simulation := simulate_command(question)):
        lines.append(f"to simulate it without GPUs: {simulation}")
    return lines


def simulated(answer: Answer, parts: Sequence[Part]) -> list[Part]:
    """The words of the simulation, and how to measure it."""
    question = answer.question
    return [*parts, f"to measure it on {question.problem.ranks} GPUs: {run_command(question)}", AGAIN]


def _installing(ways: Iterable[Choice]) -> list[str]:
    """How to install these kernels; no line for what torch alone runs, and for kernels that are not known here."""
    wanted: dict[str, list[str]] = {}
    for label in [label for way in ways for label in ((way.forward, way.backward) if isinstance(way, Pair) else (way.kernel,))]:
        with suppress(LongcaError):
            kernel = registry.get(label)
            wanted.setdefault(kernel.getting, []).append(kernel.name)
    return [f"to install {' and '.join(dict.fromkeys(names))}: {how}" for how, names in wanted.items() if how]


def _excluded(answer: Answer) -> list[Part]:
    if not answer.out:
        return []
    title = "excluded as single kernels:" if answer.pair else "excluded:"  # the pair may have the backward of one
    return ["", Table(title, ["", "", "why"], [[out.line, out.status, excluded(out)] for out in answer.out])]


def _no_answer(answer: Answer) -> list[str]:
    first = "no kernel that was measured can be recommended." if answer.out else "no record answers this."
    memory = ["more GPUs have more memory (--gpus)."] if answer.is_too_large else []
    return [first, f"for {_asked(answer)}.", *memory, *_closest(answer)]


def _closest(answer: Answer) -> list[str]:
    """What the closest records have instead, a line per set of fields in which they differ."""
    if not answer.closest:
        return [] if answer.out else [f"there is no measured record of {answer.question.problem.mask}."]
    same = grouped(answer.closest, lambda one: tuple(dict.fromkeys(FLAGS.get(field, field) for field in one.differences)))
    shown = list(same.items())[:SHOWN]
    return [f"there are records with {', '.join(_values(flag, near) for flag in flags)}." for flags, near in shown]


def _values(flag: str, near: Sequence[Near]) -> str:
    """The values that these records have, as a user types them: '--heads 8:1 or 64:8'."""
    if flag == "lengths":
        return "other documents"
    ordered = sorted(near, key=lambda one: (one.record.problem.ranks, one.record.problem.seqlen, one.record.problem.heads_q))
    values = list(dict.fromkeys(_written(flag, one) for one in ordered))
    typed = f"--{flag.replace('_', '-')}"
    if values in ([""], ["True"]):
        return typed if values[0] else f"no {typed}"
    return f"{typed} " + " or ".join(filter(None, [", ".join(values[:-1]), values[-1]]))


def _written(flag: str, near: Near) -> str:
    """The value of a record; empty for a switch that is off."""
    problem = near.record.problem
    if flag == "set":
        return " ".join(f"{name}={number}" for name, number in near.differences["params"].items())
    shape = {"heads": format_heads(asdict(problem)), "head_dim": format_dims(asdict(problem)), "seqlen": format_size(problem.seqlen)}
    value = shape.get(flag) or (problem.ranks if flag == "gpus" else near.differences[flag])
    return shlex.quote(str(value)) if value else ""
