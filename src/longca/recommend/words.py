"""An answer in sentences and tables. Facts are in `rank`; nothing reads these texts."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from longca.errors import LongcaError
from longca.kernels import registry
from longca.recommend.answer import Answer, Choice, ModelNote
from longca.recommend.commands import CLUSTER, ask_command, simulate_command
from longca.recommend.match import Near
from longca.recommend.question import Question
from longca.results.points import grouped
from longca.results.problem import Pass
from longca.results.ranking import ENOUGH_SAMPLES, PRACTICAL, SETTLED_S
from longca.results.tables import Table, format_figure, speed_unit
from longca.simulate import cluster as clusters
from longca.simulate.trust import trust
from longca.text import format_extras, format_shape, format_size, format_tokens, plural

SHOWN = 3  # lines on the closest records
Part = Table | str  # an empty text is an empty line


def parts(answer: Answer) -> list[Part]:
    """The answer first, then the table, caveats, what to type, and what is excluded."""
    lines: list[Part] = [*_heading(answer, answer.best), "", _table(answer, answer.best), ""] if answer.best else [*_no_answer(answer)]
    lines += [*_caveats(answer), *_model(answer.question, answer.model), *_commands(answer)]
    if answer.out:
        title = "excluded as single kernels:" if answer.pair else "excluded:"  # the pair may have the backward of one
        lines += ["", Table(title, ["", "", "why"], [[out.line, out.status, out.reason] for out in answer.out])]
    if answer.unmeasured and (answer.best or answer.out):
        lines += ["", f"no record of: {', '.join(answer.unmeasured)}"]
    return lines


def no_answer(answer: Answer) -> str:
    """Why there is no answer, as the message of an error."""
    reasons = [f"{out.line}: {out.reason}" for out in answer.out]
    return "\n".join([f"no record recommends anything for {describe(answer.question)}.", *reasons, *_closest(answer), *_commands(answer)])


def describe(question: Question, unit: str = "GPU") -> str:
    """The question in one line; `unit` is what shares a sequence."""
    params = f" of {question.source}" if question.source != "random" else ""
    params += "".join(f", {name} drawn" if callable(value) else f", {name}={value}" for name, value in question.all_params.items())
    params += f", {plural(len(question.documents), 'document')} of your own" if question.documents else ""
    split = f", {question.gpus} {unit}s" if question.gpus > 1 else ""
    split += f", simulated on {question.cluster}" if question.cluster else ""
    shape = ", ".join([format_shape(vars(question)), *format_extras(vars(question)), question.dtype])
    return f"{question.mask}{params}, {format_tokens(question.seqlen)}, {shape}, {question.pass_}{split}"


def _unit(answer: Answer) -> str:
    return "rank" if answer.on_cpu else "GPU"


def _asked(answer: Answer) -> str:
    return describe(answer.question, _unit(answer)) + (f", {answer.device}" if answer.device else "")


def _heading(answer: Answer, best: Choice) -> list[str]:
    """The answer in one line; then what it is for, and what else may be used, a line each."""
    pair, equals = answer.pair, [choice.name for choice in answer.choices if choice.as_good]
    first = f"{pair.kernel}, the default of longca.attention ({pair.forward} forward + {pair.backward} backward)" if pair else best.name
    over = f"; means and ranges over {answer.masks} masks (seeds {', '.join(map(str, answer.seeds))})" if answer.masks > 1 else ""
    lines = [f"use {first}: {_speed_and_time(answer, pair or best)}{_mark(answer, best)}.", f"for {_asked(answer)}{over}."]
    lines += [f"as a single kernel, use {best.name}: {_speed_and_time(answer, best)}."] if pair else []
    return [*lines, f"as fast as {best.name}, {_alike(best, answer)}: {', '.join(equals)}."] if equals else lines


def _mark(answer: Answer, best: Choice) -> str:
    """What sets values apart that were not measured."""
    if best.simulated:
        return "; SIMULATED, not measured"
    if answer.nearest is None:
        return ""
    return "; NEAREST ANSWER, scaled from other measurements" + (", error unknown" if answer.nearest.spread is None else "")


def _speed_and_time(answer: Answer, choice: Choice) -> str:
    unit = speed_unit(way.tflops for way in answer.ways)
    about = "about " if answer.nearest else ""
    speed = f"{about}{unit.text(choice.tflops)} {unit.name}{f' per {_unit(answer)}' if choice.method else ''}"
    ends = choice.ms_range or (choice.ms_over_masks if answer.masks > 1 else None)
    return f"{speed}, {_ms(choice.ms)} ms" + (f" ({_between(ends)})" if ends else "")


def _ms(value: float) -> str:
    """Milliseconds in four digits, from 1000 on without a fraction: 512K tokens take tens of seconds."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _between(ends: tuple[float, float]) -> str:
    return " to ".join(map(format_figure, ends))


def _alike(best: Choice, answer: Answer) -> str:
    """What equal means; predicted and simulated times have no noise."""
    return f"within {'' if best.simulated or answer.nearest else 'the noise or '}{100 * PRACTICAL:g} %"


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


def _caveats(answer: Answer) -> list[str]:
    if answer.best is None:
        return []
    return [*_scaled(answer), *_simulated(answer, answer.best), *_passes(answer), *_planning(answer), *_doubts(answer)]


def _scaled(answer: Answer) -> list[str]:
    """What a nearest answer was scaled from, and how far off it may be."""
    near = answer.nearest
    if near is None:
        return []
    record = near.used[0].record
    shape = {
        "heads_q": record.problem.heads_q,
        "heads_kv": record.problem.heads_kv,
        "head_dim": record.problem.head_dim,
        "head_dim_v": record.problem.head_dim_v,
    }
    what = [format_shape(shape), *(f"{name}={value}" for name, value in near.differences.get("params", {}).items())]
    drawn = [f"{name} {value or 'as usual'}" for name, value in near.differences.items() if name in ("distribution", "packing")]
    extras = [f"without {name}" for name, value in near.differences.items() if name in ("softcap", "sinks") and not value]
    what += [*drawn, *extras]
    lengths = " and ".join(map(format_size, near.seqlens))
    scaled = f"scaled from {', '.join(what)} at {lengths} tokens, by the number of tiles that the mask touches"
    if near.spread is not None:
        return [f"{scaled}; such times are nearly always within ±{100 * near.spread:.0f} % (docs/recommend.md)."]
    names = {"head_dim": "head size", "params": "mask parameter", "softcap": "softcap", "sinks": "sinks"}
    others = [name for field, name in names.items() if field in near.differences]
    why = f"no record has this {' or '.join(others)}" if others else "the call is much longer, or smaller, than the measured ones"
    return [f"{scaled}; the error is unknown: {why}."]


def _simulated(answer: Answer, best: Choice) -> list[str]:
    if best.simulated is None:
        return []
    question, sentence = answer.question, f"simulated for the cluster {best.simulated}; nothing was measured."
    with suppress(LongcaError):  # a cluster that is not known here
        shape = question.heads_q, question.heads_kv, question.head_dim, question.head_dim_v
        return [f"{sentence} {trust(clusters.find(best.simulated)[1], [question.mask], [shape])}"]
    return [sentence]


def _passes(answer: Answer) -> list[str]:
    """Which passes were measured apart, and which forwards are those of training."""
    how = "simulated" if answer.choices[0].simulated else "measured"
    if summed := [choice for choice in answer.ways if choice.summed]:
        return [f"fwd+bwd is the sum of a forward and a backward that were {how} apart ({_names(answer.ways, summed)})."]
    training = [choice for choice in answer.choices if choice.sources[0].record.grad] if answer.question.pass_ is Pass.FWD else []
    return [f"a forward of training, which keeps what a backward needs: {_names(answer.choices, training)}."] if training else []


def _planning(answer: Answer) -> list[str]:
    calls = answer.question.calls_per_plan
    if calls is not None:
        return [f"times include planning, divided by {plural(calls, 'call')}."]
    if not answer.question.has_documents or not answer.ways[0].plan_ms:
        return []
    return ["times do not include planning; if documents are new at every step, count it with --calls-per-plan."]


def _doubts(answer: Answer) -> list[str]:
    ways, doubts = answer.ways, []
    if answer.question.has_documents and answer.masks == 1 and not answer.question.documents and not answer.choices[0].simulated:
        doubts.append(f"documents of one seed ({answer.seeds[0]}); --lengths asks for your own.")
    if noisy := [choice for choice in ways if choice.noisy]:
        doubts.append(f"noisy (~): {_names(ways, noisy)}.")
    sources = [source for choice in ways for source in choice.sources if not source.environment.on_cpu and not choice.simulated]
    warmup_s = min((seconds for source in sources if (seconds := source.environment.warmup_s) is not None), default=SETTLED_S)
    if warmup_s < SETTLED_S:
        doubts.append(f"a warm-up of {1e3 * warmup_s:g} ms is short: the order of close kernels may differ.")
    if few := [choice for choice in ways if choice.samples < ENOUGH_SAMPLES and not choice.simulated]:
        doubts.append(f"fewer than {ENOUGH_SAMPLES} samples: {_names(ways, few)}.")
    if older := [choice for choice in ways if choice.older]:
        doubts.append(f"the kernel's code has changed since, or its version was not recorded: {_names(ways, older)}.")
    return doubts


def _names(everyone: Sequence[Choice], choices: Sequence[Choice]) -> str:
    return "all of them" if len(choices) == len(everyone) else ", ".join(choice.name for choice in choices)


def _model(question: Question, note: ModelNote | None) -> list[str]:
    if note is None:
        return []
    lines = [f"one plan serves {plural(note.layers_per_plan, 'layer')} of {note.name}."] if note.layers_per_plan else []
    if note.window and note.windowed_mask is None:
        lines.append(f"w={note.window - 1} is the window of {note.window} of {note.name}: models count the token itself, w does not.")
    elif note.window:
        layers = f"{'all' if note.local_layers == note.layers else note.local_layers} of its {note.layers} layers"
        lines.append(
            f"{note.name} has a window of {note.window} keys in {layers}, which {question.mask} does not have; ask for such a layer with "
            f"--mask {shlex.quote(note.windowed_mask or '')}."
        )
    return lines


def _commands(answer: Answer) -> list[str]:
    """The records, and what to type: to measure it, to ask again, to install kernels."""
    lines, question = list[str](), answer.question
    if answer.ways:
        sources = answer.ways[0].sources
        files = list(dict.fromkeys(str(source.file) for source in sources))
        lines += [f"records: {len(sources)} in {', '.join(files)} ({', '.join(_facts(answer.ways[0]))})"]
    if answer.ways and not answer.nearest and (again := answer.ways[0].command(answer.seeds)):
        lines.append(f"to measure it again: {again}")
    if command := answer.measure:
        many = f" on {question.gpus} GPUs (under torchrun or srun on several nodes)" if question.gpus > 1 else ""
        lines += [f"to measure it{many}: {command}", f"then: {ask_command(question)}"]
    if not answer.ways and not answer.out and (simulation := simulate_command(question)):
        asked = replace(question, cluster=question.cluster or CLUSTER)
        lines += [f"to simulate it without GPUs: {simulation}", f"then: {ask_command(asked)}"]
    return lines + _installing(answer)


def _facts(choice: Choice) -> list[str]:
    """The machine and the days of its records."""
    environments = [source.environment for source in choice.sources]
    values = [{machine.name for machine in environments}, {machine.date for machine in environments if machine.date}]
    return [", ".join(sorted(own)) for own in values if own]


def _installing(answer: Answer) -> list[str]:
    """How to install the kernels of the heading; no line for what torch alone runs, and for kernels that are not known here."""
    wanted: dict[str, list[str]] = {}
    pair = (answer.pair.forward, answer.pair.backward) if answer.pair else ()
    for label in (*pair, *(choice.kernel for choice in answer.choices if choice is answer.best or choice.as_good)):
        with suppress(LongcaError):
            kernel = registry.get(label)
            wanted.setdefault(kernel.getting, []).append(kernel.name)
    return [f"to install {' and '.join(dict.fromkeys(names))}: {how}" for how, names in wanted.items() if how]


def _no_answer(answer: Answer) -> list[str]:
    first = "no kernel that was measured can be recommended." if answer.out else "no record answers this."
    lines = [first, f"for {_asked(answer)}."]
    if answer.least_gib:
        name, gib = answer.least_gib
        lines.append(f"the least memory is {gib:.3g} GiB: {name}; more GPUs have more (--gpus).")
    return [*lines, *_closest(answer)]


def _closest(answer: Answer) -> list[str]:
    """What the closest records have instead, a line per set of fields in which they differ."""
    question = answer.question
    if not answer.closest:
        return [] if answer.out else [f"there is no record of {question.mask} at all."]
    same = grouped(answer.closest, lambda near: tuple(near.differences))
    lines = []
    for fields, near in list(same.items())[:SHOWN]:
        lines.append(f"there are records with {', '.join(_values(field, near) for field in fields)}.")
    if question.exact:
        lines.append("--exact excludes nearest answers.")
    elif question.gpus == 1:
        lines.append("a nearest answer is scaled over lengths, heads, head sizes, documents and parameters of the mask only.")
    return lines


def _values(field: str, near: Iterable[Near]) -> str:
    """The values that these records have in a field, as flags: '--heads 8:1 or 64:8'."""
    if field == "documents":
        return "other documents"
    flag = "--set" if field == "params" else f"--{field.replace('_', '-')}"
    ordered = sorted(near, key=lambda one: (one.record.problem.ranks or 0, one.record.problem.seqlen, one.record.problem.heads_q))
    values = list(dict.fromkeys(_written(field, one.differences[field]) for one in ordered))
    if values in ([""], ["True"]):
        return flag if values[0] else f"no {flag}"
    return f"{flag} " + " or ".join(filter(None, [", ".join(values[:-1]), values[-1]]))


def _written(field: str, value: Any) -> str:
    """A value as a user types it; empty for a switch that is off."""
    if field == "seqlen":
        return format_size(value)
    if field == "heads":
        return f"{value[0]}:{value[1]}"
    if field == "head_dim":
        return "/".join(map(str, dict.fromkeys(value)))
    if field == "params":
        return " ".join(f"{name}={number}" for name, number in value.items())
    return shlex.quote(str(value)) if value else ""
