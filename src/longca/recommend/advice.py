"""Where no record answers: which records come close, and which run would answer."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from longca.masks.by_name import plugins_of
from longca.recommend.geometry import FARTHEST
from longca.recommend.matching import Near, is_device
from longca.recommend.nearest_error import VARYING
from longca.recommend.question import Question
from longca.results.record import Environment
from longca.text import format_shape, format_size, parse_size, shape_options

FOLDER = "out/recommend"
CLUSTER = "h100-ib"  # whose simulation is named to somebody who names none
KINDS = ("cpu", "cuda")  # of devices, as `longca run --device` takes them


def advice(question: Question, others: Sequence[Near], matching: Sequence[Environment]) -> list[str]:
    """Sentences. `matching` are the machines of records that lack only a pass, or their memory.

    No run is named that could not answer: LongCA measures what is not simulated, and counts the memory of GPUs only.
    """
    if question.cluster:
        simulated = [near for near in others if "--cluster" not in near.differences]
        return _nearby(question, simulated) if simulated and not matching else []
    sentences = [] if matching else [*_nearby(question, others), *_too_far(question, others)]
    machines = matching or [near.environment for near in others if question.device and is_device(question.device, near.environment)]
    on_cpu = all(machine.on_cpu for machine in machines) if machines else question.device.lower() == "cpu"
    if on_cpu and question.memory_gib is not None:
        sentences.append("memory is counted on GPUs only, and this is about a CPU: leave out --memory.")
        if question.device:
            return sentences
        where = _where(question) or " on a GPU"
        return [*sentences, f"or to measure it{where}: {run_command(question)}", f"then: {ask_command(question)}"]
    kind = "cpu" if on_cpu else question.device.lower()
    run = run_command(question) + (f" --device {kind}" if question.device and kind in KINDS else "")
    sentences += [f"to measure it{_where(question)}: {run}", f"then: {ask_command(question)}"]
    if not question.device and (command := simulate_command(question)):
        sentences.append(f"to simulate it without GPUs: {command}")
        sentences.append(f"then: {ask_command(replace(question, cluster=CLUSTER))}")
    return sentences


def _nearby(question: Question, others: Sequence[Near]) -> list[str]:
    """What the records have instead: those that differ in one flag only, or else all of them."""
    how = "simulated" if question.cluster else "measured"
    flags = dict.fromkeys(flag for near in others if len(near.differences) == 1 for flag in near.differences)
    if flags:
        return [_instead(flag, others, how) for flag in flags]
    if not others:
        return [f"there is no record of {question.mask} at all."]
    shapes: dict[tuple[bool, str], set[tuple[int, int]]] = {}
    for near in others:
        is_other_level = bool(near.record.ranks) != (question.gpus > 1)  # of one GPU where many are asked for, or the other way round
        shapes.setdefault((is_other_level, _shape(near)), set()).add((near.record.seqlen, near.record.ranks or 0))
    order = sorted(shapes, key=lambda key: (key[0], _by_numbers(key[1])))
    return [f"there are records of {question.mask} at {_sizes(shapes[key])} with {key[1]}." for key in order]


def _sizes(sizes: set[tuple[int, int]]) -> str:
    """Lengths, each with its number of GPUs: '64K on 8 GPUs, 128K on 16 GPUs'."""
    return ", ".join(f"{format_size(seqlen)}{f' on {ranks} GPUs' if ranks else ''}" for seqlen, ranks in sorted(sizes))


def _too_far(question: Question, others: Sequence[Near]) -> list[str]:
    """Says how far a nearest answer reaches, where the length alone rules it out."""
    one_device = [near for near in others if near.differences.keys() <= set(VARYING) and not near.record.method]
    lengths = [near.record.seqlen for near in one_device]
    if question.exact or question.gpus > 1 or not lengths:
        return []
    least, most = math.ceil(min(lengths) / FARTHEST), int(max(lengths) * FARTHEST)
    if least <= question.seqlen <= most:
        return []
    return [f"a nearest answer reaches from {format_size(least)} to {format_size(most)} tokens: {FARTHEST:g} times the measured lengths."]


def _by_numbers(value: object) -> list[str | int]:
    """A key that sorts 8:8 before 64:8."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(value))]


def _instead(flag: str, others: Sequence[Near], how: str) -> str:
    """What the records that differ in this flag only have instead."""
    values = {near.differences[flag] for near in others if list(near.differences) == [flag]}
    if flag == "--seqlen":
        lengths = sorted(map(parse_size, values))
        return f"{how} lengths are {', '.join(map(format_size, lengths))}."
    shown = []
    for value in sorted(values, key=_by_numbers):
        is_switch = value is None or isinstance(value, bool)
        shown.append(f"with{'' if value else 'out'} {flag}" if is_switch else f"with {flag} {shlex.quote(str(value))}")
    return f"there are records {' or '.join(shown)}."


def _shape(near: Near) -> str:
    record = near.record
    shape = {"heads_q": record.heads_q, "heads_kv": record.heads_kv, "head_dim": record.head_dim, "head_dim_v": record.head_dim_v}
    simulated = f" (simulated on {record.simulated})" if record.simulated else ""
    return f"{format_shape(shape)}, {record.dtype}, {near.environment.name}{simulated}"


def _where(question: Question) -> str:
    many = f" on {question.gpus} GPUs (under torchrun or srun on several nodes)" if question.gpus > 1 else ""
    is_named = question.device and question.device.lower() not in KINDS
    return many + (f", on a machine whose device is named {question.device}" if is_named else "")


def _common(question: Question) -> list[str]:
    words = shape_options(vars(question))
    words += [word for name, value in question.params.items() for word in ("--set", f"{name}={value}")]
    words += ["--source", question.source] if question.source != "random" else []
    drawn = {"--distribution": question.distribution, "--packing": question.packing}
    words += [word for flag, value in drawn.items() if value for word in (flag, value)]
    return [*words, "--deterministic"] if question.deterministic else words


def run_command(question: Question) -> str:
    """The `longca run` whose records answer the question."""
    passes = ",".join(part.value for part in question.pass_.parts)
    split = ["--level", "cp", "--nproc", str(question.gpus)] if question.gpus > 1 else []
    drawn = ["--masks", question.mask, "--seqlens", format_size(question.seqlen)]
    mask = ["--workload", "steps.jsonl"] if question.own_documents else drawn
    words = ["longca", "run", "--kernels", "all", *split, *mask, *_common(question), "--passes", passes]
    words += [] if question.own_documents else ["--seeds", "3"]
    words += [word for file in plugins_of(question.mask) for word in ("--plugin", file)]
    return shlex.join([*words, "--out", FOLDER])


def simulate_command(question: Question) -> str:
    """The `longca simulate` whose records answer the question; empty where no simulation does."""
    if question.gpus < 2 or question.is_pattern or question.own_documents or question.deterministic or question.dtype in ("fp32", "fp64"):
        return ""
    passes = ",".join(part.value for part in question.pass_.parts)
    words = ["longca", "simulate", "--cluster", question.cluster or CLUSTER, "--gpus", str(question.gpus)]
    words += ["--seqlen", format_size(question.seqlen), "--masks", question.mask, *_common(question), "--passes", passes]
    return shlex.join([*words, "--out", FOLDER])


def ask_command(question: Question) -> str:
    """The command that asks the question again, of the records of that run."""
    words = ["longca", "recommend", "--mask", question.mask, "--seqlen", format_size(question.seqlen), *_common(question)]
    words += ["--own-documents"] if question.own_documents else []
    words += [word for file in plugins_of(question.mask) for word in ("--plugin", file)]
    words += ["--pass", question.pass_.value] + (["--gpus", str(question.gpus)] if question.gpus > 1 else [])
    words += ["--calls-per-plan", str(question.calls_per_plan)] if question.calls_per_plan is not None else []
    words += ["--memory", f"{question.memory_gib:.10g}GiB"] if question.memory_gib is not None else []
    words += ["--device", question.device] if question.device else []
    words += ["--cluster", question.cluster] if question.cluster else []
    return shlex.join([*words, "--results", FOLDER])
