"""The commands that measure or simulate what a question asks for, and that ask it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from longca.masks.by_name import plugins_of
from longca.recommend.question import Question
from longca.results.metrics import GIB
from longca.text import format_size, shape_options, shortest_memory

FOLDER = "out/recommend"
CLUSTER = "h100-ib"  # whose simulation is named to somebody who names none
KINDS = ("cpu", "cuda")  # of devices, as `longca run --device` takes them
LENGTHS = "lengths.txt"  # where a user's document lengths may be


def run_command(question: Question) -> str:
    """The `longca run` whose records answer the question; empty where it asks for simulated ones."""
    if question.cluster:
        return ""
    split = ["--level", "cp", "--nproc", str(question.gpus)] if question.gpus > 1 else []
    drawn = ["--masks", question.mask, "--seqlens", format_size(question.seqlen)]
    mask = ["--workload", "steps.jsonl"] if question.own_documents else drawn
    words = ["longca", "run", "--kernels", "all", *split, *mask, *_shared(question), "--passes", _passes(question)]
    words += [] if question.own_documents or question.documents else ["--seeds", "3"]
    words += ["--device", question.device.lower()] if question.device.lower() in KINDS else []
    return shlex.join([*words, *_plugins(question), "--out", FOLDER])


def simulate_command(question: Question) -> str:
    """The `longca simulate` whose records answer the question; empty where no simulation does."""
    is_other = question.is_pattern or question.own_documents or question.deterministic or question.dtype in ("fp32", "fp64")
    if question.gpus < 2 or question.device or is_other:
        return ""
    words = ["longca", "simulate", "--cluster", question.cluster or CLUSTER, "--gpus", str(question.gpus)]
    words += ["--seqlen", format_size(question.seqlen), "--masks", question.mask, *_shared(question), "--passes", _passes(question)]
    return shlex.join([*words, "--out", FOLDER])


def ask_command(question: Question, folders: Sequence[str] = (FOLDER,)) -> str:
    """The command that asks the question of the records in these folders."""
    words = ["longca", "recommend", "--mask", question.mask, "--seqlen", format_size(question.seqlen), *_shared(question)]
    words += ["--own-documents"] if question.own_documents else []
    words += [*_plugins(question), "--pass", question.pass_.value] + (["--gpus", str(question.gpus)] if question.gpus > 1 else [])
    words += ["--calls-per-plan", str(question.calls_per_plan)] if question.calls_per_plan is not None else []
    words += ["--memory", shortest_memory(round(question.memory_gib * GIB))] if question.memory_gib is not None else []
    words += ["--device", question.device] if question.device else []
    words += ["--cluster", question.cluster] if question.cluster else []
    return shlex.join([*words, "--results", *folders])


def _shared(question: Question) -> list[str]:
    """The flags that these verbs share."""
    words = shape_options(vars(question))
    words += [word for name, value in question.params.items() for word in ("--set", f"{name}={value}")]
    words += ["--source", question.source] if question.source != "random" else []
    words += ["--lengths", LENGTHS] if question.documents else []
    drawn = {"--distribution": question.distribution, "--packing": question.packing}
    words += [word for flag, value in drawn.items() if value for word in (flag, value)]
    return [*words, "--deterministic"] if question.deterministic else words


def _passes(question: Question) -> str:
    return ",".join(part.value for part in question.pass_.parts)


def _plugins(question: Question) -> list[str]:
    return [word for file in plugins_of(question.mask) for word in ("--plugin", file)]
