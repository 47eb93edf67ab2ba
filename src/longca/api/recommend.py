"""`longca.recommend` and `longca.best`: which kernel, or which method on many GPUs, to use, why others are out, and the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from inspect import Parameter, signature
from itertools import pairwise
from pathlib import Path
from typing import Any

from longca.api.model_window import window_remarks
from longca.bench.plan.workload import Model
from longca.bench.plan.workload import model as find_model
from longca.errors import LongcaError, unknown
from longca.kernels import registry
from longca.recommend import answer as answers
from longca.recommend import shipped, usage
from longca.recommend.answer import Answer, Choice, Pair, Source
from longca.recommend.planning import LONGER
from longca.recommend.question import Question
from longca.recommend.table import NoRecord
from longca.results.naming import cluster_name
from longca.results.ranking import ENOUGH_SAMPLES, NOISE_EXPLAINS, PRACTICAL, SETTLED_S
from longca.results.reading import Results
from longca.results.record import Pass
from longca.results.shown import Part, Shown
from longca.results.tables import Table, format_figure, speed_unit
from longca.simulate import cluster as clusters
from longca.simulate.trust import trust
from longca.text import format_shape, format_tokens, plural

SHOWN = 4  # records named below an answer; its `choices` have all


class Recommendation(Shown):
    """An answer from measured records."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    @property
    def ok(self) -> bool:
        """Whether anything is recommended."""
        return self.answer.best is not None

    @property
    def best(self) -> Choice | None:
        """The best single kernel."""
        return self.answer.best

    @property
    def pair(self) -> Pair | None:
        """The forward and the backward of two kernels that are together faster than the best one; None where no two are."""
        return self.answer.pair

    @property
    def code(self) -> str:
        """The lines of Python that use the answer, the pair before the best kernel; empty where there is none."""
        return usage.code(self.answer, self.answer.ways[0]) if self.answer.ways else ""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per single kernel, the best first."""
        names = (
            *("name", "kernel", "method", "tflops", "worst_tflops", "highest_tflops", "ms", "ms_over_masks", "ms_range", "memory_gib"),
            *("plan_ms", "joules", "against_best", "as_good", "noisy", "samples"),
        )
        return [{name: getattr(choice, name) for name in names} for choice in self.answer.choices]

    def parts(self) -> list[Part]:
        answer = self.answer
        parts: list[Part] = []
        if answer.best is None:
            first = "no kernel that was measured can be recommended." if answer.out else "no record answers this."
            parts += [first, _asked(answer)]
        else:
            parts += _best(answer, answer.best)
        if answer.out:
            title = "excluded as single kernels:" if answer.pair else "excluded:"  # the pair may have the backward of one
            parts += ["", Table(title, ["", "", "why"], [[out.line, out.status, out.reason] for out in answer.out])]
        if answer.unmeasured and (answer.best is not None or answer.out):
            parts += ["", f"no record of: {', '.join(answer.unmeasured)}"]
        return [*parts, *answer.advice, *(answer.remarks if answer.best is None else ())]


def recommend(
    mask: str,
    seqlen: int | str,
    heads: str | int | Sequence[int] | None = None,
    head_dim: int | str | None = None,
    dtype: str = "bf16",
    *,
    model: str | None = None,
    results: str | Path | Sequence[str | Path] | None = None,
    params: Mapping[str, int | float] | None = None,
    **question: Any,
) -> Recommendation:
    """Returns which kernel to use for a mask and a length, from LongCA's records or those in `results`. `longca.best` returns only the best
    one.

    The other arguments are those of `longca.best`: pass_, gpus, memory, device and others.

    >>> longca.recommend("causal_document", "32K").best.kernel
    """
    known = [name for name, parameter in signature(best).parameters.items() if parameter.kind is not Parameter.VAR_KEYWORD]
    for name in question:
        if name not in known:
            raise unknown("argument of longca.recommend", name, known, listed=True)
    shaped = {"mask": mask, "seqlen": seqlen, "heads": heads, "head_dim": head_dim, "dtype": dtype, "params": dict(params or {})}
    asked = Question.parse(**in_shape(model, shaped | question))
    records, shape = shipped.load(results), find_model(model) if model else None
    refuse_unknown_cluster(asked.cluster, records)
    answer = answers.recommend(with_layers(asked, shape) if shape else asked, records)
    if answer.best is None and answer.question != asked:
        answer = answers.recommend(asked, records)  # records without planning times
    remarks = window_remarks(model, shape, asked, answer.seeds) if model and shape else ()
    if model and answer.question.calls_per_plan != asked.calls_per_plan:
        remarks = (*remarks, f"one plan serves {plural(answer.question.calls_per_plan or 0, 'layer')} of {model}.")
    return Recommendation(replace(answer, remarks=(*answer.remarks, *remarks)))


def refuse_unknown_cluster(name: str | None, records: Results) -> None:
    """Raises BadInput where no record was simulated for a cluster of this name and none could be."""
    simulated = {record.simulated for record in records.records if record.simulated}
    if name is not None and cluster_name(name) not in simulated:
        clusters.find(name, simulated)


def best(
    mask: str,
    seqlen: int | str,
    heads: str | int | Sequence[int] | None = None,
    head_dim: int | str | None = None,
    dtype: str = "bf16",
    *,
    pass_: str = "fwd+bwd",
    gpus: int = 1,
    cluster: str | None = None,
    memory: str | None = None,
    device: str = "",
    source: str = "random",
    distribution: str | None = None,
    packing: str | None = None,
    own_documents: bool = False,
    deterministic: bool = False,
    softcap: float | None = None,
    sinks: bool | None = None,
    scale: float | None = None,
    model: str | None = None,
    calls_per_plan: int | None = None,
    exact: bool = False,
    results: str | Path | Sequence[str | Path] | None = None,
    params: Mapping[str, int | float] | None = None,
    **more_params: int | float,
) -> Choice:
    """Returns the fastest kernel (on many GPUs: method, grid and kernel) for a mask, from LongCA's records or those in `results`.

    `heads`, `head_dim`, `softcap`, `sinks`, `scale` and the window default to those of `model`, or else to 64:8 heads of 128. If no record
    matches, the choice is scaled from the nearest records, and its `ms_range` is set if the error is known; `exact` excludes such choices.
    Give parameters of the mask by name (w=512), or in `params` if an argument has that name ({"heads": 1}).

    >>> longca.best("causal_document", "32K", "64:8").kernel
    """
    answer = recommend(
        mask, seqlen, heads=heads, head_dim=head_dim, dtype=dtype, pass_=pass_, gpus=gpus, cluster=cluster, memory=memory, device=device,
        source=source, distribution=distribution, packing=packing, own_documents=own_documents, deterministic=deterministic,
        softcap=softcap, sinks=sinks, scale=scale, model=model, calls_per_plan=calls_per_plan, exact=exact, results=results,
        params={**(params or {}), **more_params},
    ).answer  # fmt: skip
    if answer.best is None:
        reasons = [f"{out.line}: {out.reason}" for out in answer.out]
        raise NoRecord("\n".join([f"no record recommends anything for {answer.question.describe()}.", *reasons, *answer.advice]))
    return answer.best


def in_shape(model: str | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is asked, with the shape and the window of a model where nothing else is given; None stands for what is not given."""
    given = {name: value for name, value in asked.items() if value is not None}
    if model is None:
        return given
    shape = find_model(model)
    usual = {name: getattr(shape, name) for name in ("heads", "head_dim", "softcap", "sinks", "scale")}
    window = shape.params_of(given["mask"]) if "mask" in given else {}
    return {**usual, **given, "params": {**window, **given.get("params", {})}}


def with_layers(asked: Question, shape: Model) -> Question:
    """The question with one plan for the layers of a model that have this mask: documents are new at every step. It stays as it is if it
    says how often planning counts, and on many GPUs, where planning is not measured."""
    if asked.calls_per_plan is not None or not asked.has_documents or asked.gpus > 1 or asked.cluster:
        return asked
    return replace(asked, calls_per_plan=shape.layers_of(asked.mask))


def _asked(answer: Answer) -> str:
    return answer.question.describe(answer.unit) + (f", {answer.device}" if answer.device else "")


def _heading(answer: Answer, best: Choice) -> list[str]:
    """The answer in one sentence; then what it is for, and what else may be used, a line each."""
    pair, equals = answer.pair, [choice.name for choice in answer.choices if choice.as_good]
    kinds = f"; {'medians' if answer.nearest else 'medians and ranges'} over {answer.masks} masks" if answer.masks > 1 else ""
    lines = [f"use {_named(best, pair)}: {_speed_and_time(answer, pair or best)}{_mark(answer, best)}.", f"for {_asked(answer)}{kinds}."]
    if pair:
        lines.append(f"as a single kernel, use {best.name}: {_speed_and_time(answer, best)}.")
    if equals:
        lines.append(f"as fast as {best.name}, {_alike(answer)}: {', '.join(equals)}.")
    return [*lines, *_few_calls(answer)]


def _few_calls(answer: Answer) -> list[str]:
    """Which kernel is the best by the calls that share a plan, unless it is always the first; documents are new at every training step."""
    steps, first = answer.by_calls, answer.ways[0].name
    if not steps or all(step.name == first for step in steps):
        return []
    if len(steps) == 1:
        return [f"counting planning, use {steps[0].name}, however many calls share a plan."]
    ends = [f"{step.name} up to {following.calls - 1}" for step, following in pairwise(steps)]
    return [f"counting planning, the best by calls per plan: {', '.join(ends)}, then {steps[-1].name}."]


def _named(best: Choice, pair: Pair | None) -> str:
    return f"{pair.kernel}, the default of longca.attention ({pair.forward} forward + {pair.backward} backward)" if pair else best.name


def _mark(answer: Answer, best: Choice) -> str:
    """What sets values apart that were not measured."""
    if best.simulated:
        return "; SIMULATED, not measured"
    error = ", error unknown" if answer.nearest and answer.nearest.unknown else ""
    return f"; NEAREST ANSWER, scaled from other measurements{error}" if answer.nearest else ""


def _speed_and_time(answer: Answer, choice: Choice) -> str:
    unit = speed_unit(way.tflops for way in answer.ways)
    speed, ms = f"{unit.text(choice.tflops)} {unit.name}{f' per {answer.unit}' if choice.method else ''}", f"{_ms(choice.ms)} ms"
    if answer.nearest:
        return f"about {speed}, {ms}" + (f" ({_between(*map(format_figure, choice.ms_range))})" if choice.ms_range else "")
    if answer.masks > 1:
        speed += f" ({_between(unit.text(choice.worst_tflops), unit.text(choice.highest_tflops))})"
        ms += f" ({_between(*map(format_figure, choice.ms_over_masks))})"
    return f"{speed}, {ms}"


def _between(low: str, high: str) -> str:
    return f"{low} to {high}"


def _best(answer: Answer, best: Choice) -> list[Part]:
    first = answer.ways[0]
    missing = answer.elsewhere.kernels if answer.elsewhere else ()
    command = "" if answer.nearest else first.command(answer.seeds, missing)
    return [
        *_heading(answer, best),
        *([answer.elsewhere.sentence()] if answer.elsewhere else []),
        "",
        _table(answer, best),
        "",
        *_remarks(answer, best),
        "",
        *_listed("records", first.sources),
        *_listed("records of another shape or mask", first.other_sources),
        *([f"to measure {'all of them' if missing else 'it again'}: {command}"] if command else []),
        *_installing(answer),
    ]


def _installing(answer: Answer) -> list[str]:
    """How to install the kernels of the heading; no line for what torch alone runs, and for kernels that are not known here."""
    wanted: dict[str, list[str]] = {}
    pair = (answer.pair.forward, answer.pair.backward) if answer.pair else ()
    for label in (*pair, *(choice.kernel for choice in answer.choices if choice is answer.best or choice.as_good)):
        with suppress(LongcaError):
            kernel = registry.get(label)
            wanted.setdefault(kernel.getting, []).append(kernel.name)
    return [f"to install {' and '.join(dict.fromkeys(names))}: {how}" for how, names in wanted.items() if how]


def _listed(what: str, sources: Sequence[Source]) -> list[str]:
    """The first of these records, a line each; no line where there are none."""
    if not sources:
        return []
    title = f"{what}:" if len(sources) <= SHOWN else f"{len(sources)} {what}, among them:"
    return [title, *(f"  {_source(source)}" for source in sources[:SHOWN])]


def _table(answer: Answer, best: Choice) -> Table:
    several, choices = answer.masks > 1, answer.ways
    names = [f"{choice.kernel}: {choice.name}" if choice is answer.pair else choice.name for choice in choices]
    columns: dict[str, list[str]] = {"": names}
    unit = speed_unit(choice.tflops for choice in choices)
    columns[unit.name + (f"/{answer.unit}" if best.method else "")] = [unit.text(choice.tflops, choice.noisy) for choice in choices]
    if several:
        columns[f"{unit.name} range"] = [_between(unit.text(choice.worst_tflops), unit.text(choice.highest_tflops)) for choice in choices]
    columns["ms"] = [_ms(choice.ms) for choice in choices]
    if several:
        columns["ms range"] = [_between(*map(format_figure, choice.ms_over_masks)) for choice in choices]
    if any(choice.ms_range for choice in choices):
        columns["likely range"] = [_between(*map(format_figure, choice.ms_range)) if choice.ms_range else "unknown" for choice in choices]
    columns["GiB"] = ["not counted" if choice.memory_gib is None else f"{choice.memory_gib:.3g}" for choice in choices]
    if any(choice.plan_ms for choice in choices):
        columns["plan ms"] = ["" if choice.plan_ms is None else f"{choice.plan_ms:.3g}" for choice in choices]
    if any(choice.joules for choice in choices):
        columns["J"] = ["" if choice.joules is None else format_figure(choice.joules) for choice in choices]
    columns[f"against {best.name}" if answer.pair else "against the best"] = [_against(answer, choice) for choice in choices]
    return Table("", list(columns), [list(row) for row in zip(*columns.values(), strict=True)])


def _source(source: Source) -> str:
    record, environment = source.record, source.environment
    facts = [environment.name, environment.date, f"commit {environment.commit[:10]}" if environment.commit else ""]
    return f"{source.file} {record.key} {record.pass_} seed {record.seed} ({', '.join(fact for fact in facts if fact)})"


def _alike(answer: Answer) -> str:
    """What equal means; predicted times have no noise, but ranges where these are known, and simulated ones have neither."""
    if answer.best is not None and answer.best.simulated:
        return f"within {100 * PRACTICAL:g} %"
    if answer.nearest is None:
        return f"within the noise or {100 * PRACTICAL:g} %"
    return f"within {100 * PRACTICAL:g} %" if answer.nearest.unknown else f"within {100 * NOISE_EXPLAINS:g} %, with overlapping ranges"


def _against(answer: Answer, choice: Choice) -> str:
    if choice is answer.best and answer.pair is None:
        return "best"
    return f"{choice.against_best:.2f}x" + (f", equal {_alike(answer)}" if choice.as_good else "")


def _remarks(answer: Answer, best: Choice) -> list[str]:
    """Sentences on what the figures are of, and on doubts about them."""
    pair = [_combined(answer.pair, best, answer.question.calls_per_plan is not None)] if answer.pair else []
    same = [f"at this length the mask shows the same pairs as {answer.same_as}, whose records answer."] if answer.same_as else []
    remarks = [*answer.remarks, *same, *pair, *_scaled(answer), *_plans_of(answer), *_planning(answer)]
    powered = [choice for choice in answer.ways if choice.joules]
    if powered and not any(source.record.joules for choice in powered for source in choice.sources):
        unsure = "energy itself was not measured, and power may be the average of a second with a pause in it: up to half too low"
        remarks.append(f"J is the power during sampling times the time of a call; {unsure}.")
    if best.simulated:
        remarks.append(f"these values are simulated for the cluster {best.simulated}; none of them was measured.{_trust(answer, best)}")
    if answer.ways[0].summed:
        summed = _names(answer.ways, [choice for choice in answer.ways if choice.summed])
        how = "simulated" if best.simulated else "measured"
        remarks.append(f"fwd+bwd is the sum of a forward and a backward that were {how} separately ({summed}).")
    if answer.masks > 1:
        seeds = ", ".join(map(str, answer.seeds))
        remarks.append(
            f"speeds and times are medians and ranges over the masks of {len(answer.seeds)} seeds ({seeds}), the same for all kernels."
        )
    elif answer.question.has_documents:
        remarks.append(f"one seed only ({answer.seeds[0]}); other documents may give another answer{_other_documents(answer)}.")
    training = [choice for choice in answer.choices if choice.sources[0].record.grad]
    if answer.question.pass_ is Pass.FWD and training:
        others = "" if len(training) == len(answer.choices) else f" of {_names(answer.choices, training)}"
        remarks.append(f"the forward{others} is that of training: it keeps what a backward needs.")
    return remarks + _doubts(answer)


def _trust(answer: Answer, best: Choice) -> str:
    """How near predictions for this cluster came to other values; empty for a cluster that is not known here."""
    question = answer.question
    with suppress(LongcaError):
        shape = question.heads_q, question.heads_kv, question.head_dim, question.head_dim_v
        return f" {trust(clusters.find(best.simulated or '')[1], [question.mask], [shape])}"
    return ""


def _other_documents(answer: Answer) -> str:
    """What documents of more seeds change with other heads."""
    more = answer.more_seeds
    if more is None or more.best is None:
        return ""
    there = {way.name: way for way in more.ways}
    same = next((there[way.name] for way in answer.ways[: 2 if answer.pair else 1] if way.name in there), None)  # the pair, or the best
    shown, which = (same, same.name) if same else (more.ways[0], f"the fastest, {more.ways[0].name},")
    unit = speed_unit([shown.tflops])
    speeds = f"{_between(unit.text(shown.worst_tflops), unit.text(shown.highest_tflops))} {unit.name}"
    return f": with {format_shape(vars(more.question))}, {which} has {speeds} on the masks of {len(more.seeds)} seeds"


def _combined(pair: Pair, best: Choice, is_planning_counted: bool) -> str:
    """What the forward and the backward of two kernels take."""
    passes = f"the forward of {pair.forward} ({_ms(pair.forward_ms)} ms) with the backward of {pair.backward} ({_ms(pair.backward_ms)} ms)"
    plans = f"; their plans take {_ms(pair.plan_ms)} ms" if pair.plan_ms and not is_planning_counted else ""
    speed = f"{pair.against_best:.2f} times the speed of {best.name}{plans}"
    return f"{pair.kernel} can combine {passes}: {speed}. `longca explain` shows what it chooses on your device."


def _scaled(answer: Answer) -> list[str]:
    """What a nearest answer was scaled from, and how far off such answers are."""
    if answer.nearest is None:
        return []
    sentences = [f"{sentence}." for sentence in answer.nearest.differences]
    sentences.append("times are scaled by the number of tiles that the mask touches; none of these values was measured.")
    first = answer.ways[0]
    if first.plan_ms and (planned := first.sources[0].record.seqlen) != answer.question.seqlen:
        sentences.append(f"planning was not scaled: it is that of {format_tokens(planned)}.")
    if answer.nearest.unknown:
        return [*sentences, f"the error of these times is unknown: {'; '.join(answer.nearest.unknown)}."]
    without = ", without another shape's change of speed" if answer.nearest.guided else ""
    derived = f"the range follows from measured cells that were predicted in the same way{without}"
    return [*sentences, f"{derived}; docs/recommend.md shows how many new measurements such ranges contain."]


def _planning(answer: Answer) -> list[str]:
    """What planning changes where masks are new again and again."""
    calls = answer.question.calls_per_plan
    if calls is not None:
        return [f"times include planning, divided by {plural(calls, 'call')}."]
    first = answer.ways[0]
    if not answer.by_calls or not first.plan_ms:
        return []
    new, planned = answer.by_calls[0], first.ms + first.plan_ms
    sentence = f"times do not include planning; with new documents in every call, {first.name} takes {_ms(planned)} ms"
    is_best = new.name == first.name or planned <= new.ms
    return [f"{sentence}." if is_best else f"{sentence} and {new.name} {_ms(new.ms)} ms: see --calls-per-plan."]


def _plans_of(answer: Answer) -> list[str]:
    """Which plans are those of other heads or a longer sequence."""
    names: dict[str, list[str]] = {}
    for choice in answer.ways:
        for other in choice.plans_of:
            names.setdefault(other, []).append(choice.name)
    if not names:
        return []
    others = "; ".join(f"{other} for {', '.join(own)}" for other, own in names.items())
    return [f"plan ms is that of {others}: its own took over {LONGER:g} times as long, and may have loaded code."]


def _ms(value: float) -> str:
    """Milliseconds in four digits, from 1000 on without a fraction: 512K tokens take tens of seconds."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _doubts(answer: Answer) -> list[str]:
    doubts = []
    everyone = answer.ways
    if noisy := [choice for choice in everyone if choice.noisy]:
        doubts.append(f"noisy: {', '.join(choice.name for choice in noisy)}.")
    if (warmup_s := _shortest_warmup(everyone)) is not None and warmup_s < SETTLED_S:
        doubts.append(
            f"measured after a warm-up of {1e3 * warmup_s:g} ms: a GPU slows down under load, an H200 by up to 13 % within "
            f"{1e3 * SETTLED_S:g} ms, so the order of close kernels may differ."
        )
    few = [choice for choice in everyone if choice.samples < ENOUGH_SAMPLES and not choice.simulated]
    if few:
        doubts.append(
            f"measured with fewer than {ENOUGH_SAMPLES} samples: {', '.join(f'{choice.name} ({choice.samples})' for choice in few)}."
        )
    if older := [choice for choice in everyone if choice.older]:
        doubts.append(f"the kernel's code has changed since, or its version was not recorded: {_names(everyone, older)}.")
    return doubts


def _names(everyone: Sequence[Choice], choices: Sequence[Choice]) -> str:
    return "all of them" if len(choices) == len(everyone) else ", ".join(choice.name for choice in choices)


def _shortest_warmup(choices: Sequence[Choice]) -> float | None:
    """The shortest warm-up on a GPU, in seconds."""
    sources = [source for choice in choices for source in choice.sources if not source.environment.on_cpu and not choice.simulated]
    return min((seconds for source in sources if (seconds := source.environment.warmup_s) is not None), default=None)
