"""Where no record answers: which records come close, and which run would tell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from longca.report.evidence import Evidence
from longca.report.question import Question, is_device
from longca.text import format_shape, format_size, parse_size, shape_options

FOLDER = "out/recommend"
KINDS = ("cpu", "cuda")  # of devices, as `longca run --device` takes them
Near = tuple[Evidence, dict[str, Any]]


def advice(question: Question, others: Sequence[Near], matching: Sequence[Evidence]) -> tuple[str, ...]:
    """Sentences. `others` are records of the same mask, with the flags in which they differ; `matching` those that lack a pass only, or
    the memory. No run is named that could not answer: LongCA measures what is not simulated, and counts the memory of GPUs only."""
    if question.cluster:
        others = [(one, far) for one, far in others if "--cluster" not in far]
        return tuple(_nearby(question, others)) if others and not matching else ()
    said = [] if matching else _nearby(question, others)
    alike = matching or [one for one, _ in others if question.device and is_device(question.device, one)]
    on_cpu = all(one.on_cpu for one in alike) if alike else question.device.lower() == "cpu"
    if on_cpu and question.memory_gib is not None:
        said.append("memory is counted on GPUs only, and this is about a CPU: leave out --memory.")
        if question.device:
            return tuple(said)
        where = _where(question) or " on a GPU"
        return (*said, f"or to measure it{where}: {run_command(question)}", f"then: {ask_command(question)}")
    kind = "cpu" if on_cpu else question.device.lower()
    run = run_command(question) + (f" --device {kind}" if question.device and kind in KINDS else "")
    return (*said, f"to measure it{_where(question)}: {run}", f"then: {ask_command(question)}")


def _nearby(question: Question, others: Sequence[Near]) -> list[str]:
    """What the records have instead: those that differ in one flag only, or else all of them."""
    how = "simulated" if question.cluster else "measured"
    said = [_near(flag, others, how) for flag in dict.fromkeys(flag for _, far in others if len(far) == 1 for flag in far)]
    if said:
        return said
    if not others:
        return [f"there is no record of {question.mask} at all."]
    shapes = {_shape(one): one.record["seqlen"] for one, _ in others}
    return [f"{how} of {question.mask} are: {'; '.join(sorted(shapes, key=lambda shape: (shapes[shape], _by_numbers(shape))))}."]


def _by_numbers(value: object) -> list[str | int]:
    """Sorts 8:8 before 64:8, which as text comes first."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(value))]


def _near(flag: str, others: Sequence[Near], how: str) -> str:
    """What the records that differ in this flag only have instead."""
    values = {far[flag] for _, far in others if list(far) == [flag]}
    if flag == "--seqlen":
        lengths = sorted(map(parse_size, values))
        return f"{how} lengths are {', '.join(map(format_size, lengths))}; nothing is said about others."
    shown = []
    for value in sorted(values, key=_by_numbers):
        switched = value is None or isinstance(value, bool)
        shown.append(f"{'' if value else 'no '}{flag}" if switched else f"{flag} {shlex.quote(str(value))}")
    return f"records answer with {' or with '.join(shown)}."


def _shape(one: Evidence) -> str:
    record = one.record
    split = f" on {record['ranks']} GPUs" if record.get("ranks") else ""
    split += f" (simulated on {record['simulated']})" if record.get("simulated") else ""
    return f"{format_size(record['seqlen'])}, {format_shape(record)}, {record['dtype']}, {one.device}{split}"


def _where(question: Question) -> str:
    many = f" on {question.gpus} GPUs (under torchrun or srun on several nodes)" if question.gpus > 1 else ""
    named = question.device and question.device.lower() not in KINDS
    return many + (f", on a machine whose device is named {question.device}" if named else "")


def _common(question: Question) -> list[str]:
    words = shape_options(vars(question))
    words += [word for name, value in question.params.items() for word in ("--set", f"{name}={value}")]
    words += ["--source", question.source] if question.source != "random" else []
    words += [word for name in ("distribution", "packing") if getattr(question, name) for word in (f"--{name}", getattr(question, name))]
    return [*words, "--deterministic"] if question.deterministic else words


def run_command(question: Question) -> str:
    """The `longca run` whose records answer the question."""
    passes = {"fwd+bwd": "fwd,bwd"}.get(question.which, question.which)
    split = ["--level", "cp", "--nproc", str(question.gpus)] if question.gpus > 1 else []
    drawn = (
        ["--workload", "steps.jsonl"] if question.own_documents else ["--masks", question.mask, "--seqlens", format_size(question.seqlen)]
    )
    words = ["longca", "run", "--kernels", "all", *split, *drawn, *_common(question), "--passes", passes]
    words += [] if question.own_documents else ["--seeds", "3"]
    return shlex.join([*words, "--out", FOLDER])


def ask_command(question: Question) -> str:
    """The question again, of those records."""
    words = ["longca", "recommend", "--mask", question.mask, "--seqlen", format_size(question.seqlen), *_common(question)]
    words += ["--own-documents"] if question.own_documents else []
    words += ["--pass", question.which] + (["--gpus", str(question.gpus)] if question.gpus > 1 else [])
    words += ["--memory", f"{question.memory_gib:.10g}GiB"] if question.memory_gib is not None else []
    words += ["--device", question.device] if question.device else []
    return shlex.join([*words, "--results", FOLDER])
