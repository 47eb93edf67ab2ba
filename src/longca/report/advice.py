"""Where no record answers: which records come close, and which run would tell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from longca.report.evidence import Evidence
from longca.report.question import Question
from longca.text import format_shape, format_size, parse_size, shape_options

FOLDER = "out/recommend"
Near = tuple[Evidence, dict[str, Any]]


def advice(question: Question, others: Sequence[Near], matching: Sequence[Evidence]) -> tuple[str, ...]:
    """Sentences. `others` are records of the same mask, with the flags in which they differ; `matching` those that only lack a pass."""
    said = [] if matching else [_near(flag, others) for flag in dict.fromkeys(flag for _, far in others if len(far) == 1 for flag in far)]
    if not matching and not said:
        shapes = sorted({_shape(one) for one, _ in others})
        said = [f"measured of {question.mask} are: {'; '.join(shapes)}."] if shapes else [f"there is no record of {question.mask} at all."]
    return (*said, f"to measure it{_where(question)}: {run_command(question)}", f"then: {ask_command(question)}")


def _near(flag: str, others: Sequence[Near]) -> str:
    """What the records that differ in one flag only have instead."""
    values = {far[flag] for _, far in others if list(far) == [flag]}
    if flag == "--seqlen":
        lengths = sorted(map(parse_size, values))
        return f"measured lengths are {', '.join(map(format_size, lengths))}; nothing is said about others."
    shown = []
    for value in sorted(values, key=str):
        switched = value is None or isinstance(value, bool)
        shown.append(f"{'' if value else 'no '}{flag}" if switched else f"{flag} {shlex.quote(str(value))}")
    return f"records answer with {' or with '.join(shown)}."


def _shape(one: Evidence) -> str:
    record = one.record
    split = f" on {record['ranks']} GPUs" if record.get("ranks") else ""
    split += f" (simulated on {record['simulated']})" if record.get("simulated") else ""
    return f"{format_size(record['seqlen'])}, {format_shape(record)}, {record['dtype']}, {one.device}{split}"


def _where(question: Question) -> str:
    return f" on {question.gpus} GPUs (under torchrun or srun on several nodes)" if question.gpus > 1 else ""


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
    """The question again, of those records: measured ones, so without a cluster."""
    words = ["longca", "recommend", "--mask", question.mask, "--seqlen", format_size(question.seqlen), *_common(question)]
    words += ["--own-documents"] if question.own_documents else []
    words += ["--pass", question.which] + (["--gpus", str(question.gpus)] if question.gpus > 1 else [])
    words += ["--memory", f"{question.memory_gib:g}GiB"] if question.memory_gib is not None else []
    return shlex.join([*words, "--results", FOLDER])
